"""Whatever a program prints, reading it gives events or a `RunError`, and no event holds what its fields exclude."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etcli.common.errors import RunError
from etcli.run import events
from etcli.run.events import AnyEvent, Event, Failure, Note, Stats, Token
from etcli.run.outcome import Answer
from etcli.run.runners.etcli_runner import EtcliRunner
from etcli.run.runners.mtk_output import MtkReader

QUICK = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])

MODELS = [
    model
    for model in vars(events).values()
    if isinstance(model, type) and issubclass(model, Event) and model not in (Event, Note)
]
KINDS = ["start", "loaded", "prefill", "token", "stats", "error", "kept", "refused"]
FIELDS = sorted({name for model in MODELS for name in model.model_fields} - {"event"})
NUMBERS = st.one_of(
    st.integers(-2, 9),
    st.sampled_from([1 << 31, (1 << 63) - 1, 1 << 63, 10**400, -1]),
    st.floats(),  # json.dumps writes NaN and Infinity, which json.loads takes
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    st.text(max_size=6),
    st.lists(NUMBERS, max_size=3),
    st.sampled_from(["stop_id", "max_new_tokens", "cache_full", "stopped", "\ud800", "\0", "x" * 70_000]),
)
EVENTS = st.builds(
    lambda kind, values: {"event": kind, **values},
    st.one_of(st.sampled_from(KINDS), VALUES),
    st.dictionaries(st.sampled_from(FIELDS), VALUES),
)
TOKENS = st.builds(
    lambda index, id_: {"event": "token", "index": index, "id": id_, "t_s": 0.5}, st.integers(0, 4), st.integers(-1, 12)
)
LINES = st.one_of(
    st.one_of(EVENTS, TOKENS).map(json.dumps),
    st.builds(lambda event, cut: json.dumps(event)[:cut], EVENTS, st.integers(0, 80)),
    st.text(max_size=40),
    st.sampled_from(
        ["[" * 100_000, "{" * 5, "null", '"token"', '{"event": []}', "1" * 5000, '{"event": "token", "index": 1e400}']
    ),
)


class Words:
    """A stream that gives a letter a token."""

    def push(self, token: int) -> str:
        return chr(ord("a") + token)

    def finish(self) -> str:
        return ""


def sound(event: AnyEvent) -> None:
    """No number of it is negative or none, no text endless."""

    def look(value: Any) -> None:
        if isinstance(value, (tuple, list)):
            for one in value:
                look(one)
        elif isinstance(value, float):
            assert math.isfinite(value)
            assert value >= 0
        elif isinstance(value, int) and not isinstance(value, bool):
            assert 0 <= value < 1 << 63
        elif isinstance(value, str):
            assert len(value) <= 1 << 16

    if not isinstance(event, Note):
        for name in type(event).model_fields:
            if name != "protocol":  # it is the one protocol that there is
                look(getattr(event, name))


def answer() -> Answer:
    return Answer(prompt_tokens=3, max_new_tokens=4, vocab_size=10, stop_ids=(2,), stream=Words(), write=lambda _: None)


def consistent(told: Answer) -> None:
    """What was taken is an answer that can be."""
    assert len(told.tokens) <= told.max_new_tokens
    assert [token.index for token in told.tokens] == list(range(len(told.tokens)))
    assert all(token.id < told.vocab_size for token in told.tokens)
    assert told.text == "".join(chr(ord("a") + token.id) for token in told.tokens)
    if told.stats is not None:
        assert told.stats.new_tokens == len(told.tokens)
        assert told.stats.stop_reason != "stopped"


@QUICK
@given(lines=st.lists(LINES, max_size=8))
def test_any_lines_of_our_runner(lines: list[str]) -> None:
    reader = EtcliRunner().reader(None)  # type: ignore[arg-type]
    told = answer()
    refused: RunError | None = None
    for line in lines:
        try:
            event = reader.line(line)
            sound(event)
            if isinstance(event, Note):
                assert event.text == line
            told.take(event)
        except RunError as error:
            refused = error
            break
    if refused is not None:
        assert refused.problems[0].code in ("run.bad_event", "run.protocol", "run.bad_output")
        assert len(str(refused)) < 2000, "what a device printed does not flood the message"
    assert list(reader.end("", 0)) == []
    consistent(told)


IDS = st.lists(st.one_of(st.integers(0, 12), st.sampled_from([1 << 40, 10**17])), max_size=6).map(
    lambda ids: "{" + ", ".join(map(str, ids)) + "}"
)
STDOUT = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "[Input Prompt]",
                "[Input Prompt Tokens]",
                "[Real-time Response]",
                "[Generated Tokens]",
                "",
                "{1, 40, 41}",
                "{5, 6, 2}",
                "{" + "9" * 5000 + "}",
            ]
        ),
        IDS,
        st.text(max_size=12),
    ),
    max_size=10,
)
LOG = st.lists(
    st.one_of(
        st.builds(
            "{} {}:{:02}:{:02}.{:06} executorch:{}] {}".format,
            st.sampled_from("DIEFX"),
            st.integers(0, 9999),
            st.integers(0, 99),
            st.integers(0, 99),
            st.integers(0, 999_999),
            st.text(max_size=5),
            st.one_of(
                st.sampled_from(
                    [
                        "Begin model loading.",
                        "Model initialized.",
                        "Done analyzing prompt in 0.500000 sec (1 tok/s)",
                        "Token generation speed: 4.000000 tok/s",
                        "Token generation speed: 0.000000 tok/s",
                        f"Token generation speed: {'9' * 400}.0 tok/s",
                    ]
                ),
                st.text(max_size=20),
            ),
        ),
        st.text(max_size=20),
    ),
    max_size=6,
).map("\n".join)


@QUICK
@given(lines=STDOUT, log=LOG, status=st.sampled_from([0, 0, 0, 1, 139]), most=st.integers(1, 8))
def test_any_output_of_upstreams_runner(lines: list[str], log: str, status: int, most: int) -> None:
    reader = MtkReader((1, 40, 41), most, (2,), eos_id=2, cache=8, batch=4, chunks=1)
    for line in lines:
        assert reader.line(line) == Note(text=line)
    found = list(reader.end(log, status))
    for event in found:
        sound(event)
    told = answer()
    with contextlib.suppress(RunError):
        for event in found:
            told.take(event)
    consistent(told)
    ends = [event for event in found if isinstance(event, (Stats, Failure))]
    assert len(ends) <= 1
    if any(isinstance(event, Token) for event in found):
        assert status == 0
        assert lines[-1].startswith("{") or not lines[-1].strip()
        (stats,) = ends
        assert isinstance(stats, Stats)
