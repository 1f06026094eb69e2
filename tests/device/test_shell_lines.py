"""A program's lines, whatever pieces they arrive in."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from etcli.device.shell import EXIT, STDERR, STDOUT, ShellStream

SAID = "first\r\nsecond é 😀\n\n\0third\xa0\nno end é".encode()


def stream(data: bytes, size: int) -> ShellStream:
    def frames() -> Iterator[tuple[int, bytes]]:
        for at in range(0, len(data), size):
            yield STDOUT, data[at : at + size]
            yield STDERR, b"e"
        yield EXIT, b"\3"

    return ShellStream(SimpleNamespace(closed=False), frames())  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
def test_lines_are_the_same_in_any_pieces(size: int) -> None:
    shell = stream(SAID, size)
    assert list(shell.lines()) == ["first", "second é 😀", "", "\0third\xa0", "no end é"]
    assert shell.code == 3
    assert shell.stderr == "e" * -(-len(SAID) // size)


def test_a_line_that_never_ends_is_cut_and_not_looked_through_with_every_piece() -> None:
    class Counted(bytes):
        looked = 0

        def __contains__(self, what: object) -> bool:
            Counted.looked += len(self)
            return super().__contains__(what)  # type: ignore[arg-type]

    pieces = [(STDOUT, Counted(b"." * 100)) for _ in range(30_000)]
    shell = ShellStream(SimpleNamespace(closed=False), iter([*pieces, (EXIT, b"\0")]))  # type: ignore[arg-type]
    lengths = [len(line) for line in shell.lines()]
    assert sum(lengths) == 3_000_000
    assert max(lengths) <= (1 << 20) + 100
    assert Counted.looked == 3_000_000
