"""Where a conversation's words come from: lines of any bytes, and what a person types and presses at a terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator

import pytest

from etcli.common.errors import UsageError
from etcli.run import asking
from etcli.run.asking import ByHand, FromLines


def lines(monkeypatch: pytest.MonkeyPatch, data: bytes, first: str | None = None) -> Iterator[str | None]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return iter(FromLines(first).next, None)


def test_lines_are_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    data = "\ufeffone\r\n\n  \ntwo \\\nçé 😀 \u202e".encode()
    assert list(lines(monkeypatch, data, first="zero")) == ["zero", "one", "two \\", "çé 😀 \u202e"]


def test_a_line_that_is_no_text_is_refused_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = lines(monkeypatch, b"one\n\nab\xff\n")
    assert next(asked) == "one"
    with pytest.raises(UsageError, match="line 3 of standard input is no UTF-8: its byte 3 is 0xff") as caught:
        next(asked)
    assert caught.value.problems[0].code == "run.prompt_encoding"


def test_a_line_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_LONGEST_LINE", 100)
    asked = lines(monkeypatch, b"x" * 100 + b"\n"[:0])
    assert next(asked) == "x" * 100
    with pytest.raises(UsageError) as caught:
        next(lines(monkeypatch, b"\0" * 5000))
    assert caught.value.problems[0].code == "run.prompt_too_long"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ByHand]:
    """A person who types these lines; an exception among them is what happens instead."""

    def begin(*what: str | BaseException) -> ByHand:
        coming = iter(what)

        def type_line(_prompt: str) -> str:
            item = next(coming)
            if isinstance(item, BaseException):
                raise item
            return item

        monkeypatch.setattr("builtins.input", type_line)
        return ByHand()

    return begin


def test_a_backslash_goes_on_in_the_next_line(typed: Callable[..., ByHand]) -> None:
    person = typed("one\\", "two", EOFError())
    assert person.next() == "one\ntwo"
    assert person.next() is None


def test_bytes_of_another_encoding_are_replaced(typed: Callable[..., ByHand]) -> None:
    assert typed("na\udcefve").next() == "na\ufffdve"


def test_one_interrupt_drops_the_line_and_two_end(
    typed: Callable[..., ByHand], capsys: pytest.CaptureFixture[str]
) -> None:
    person = typed("half\\", KeyboardInterrupt(), "whole", KeyboardInterrupt(), KeyboardInterrupt())
    assert person.next() == "whole"
    assert "Ctrl-C again" in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt):
        person.next()


def test_interrupts_that_are_far_apart_each_drop_a_line(
    typed: Callable[..., ByHand], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_AGAIN_SECONDS", -1.0)
    assert typed(KeyboardInterrupt(), KeyboardInterrupt(), "whole").next() == "whole"


def test_a_signal_that_asks_to_end_ends_at_once(typed: Callable[..., ByHand]) -> None:
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        typed(KeyboardInterrupt("SIGTERM"), "more").next()
