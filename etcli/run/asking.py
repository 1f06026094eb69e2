"""Where a conversation's words come from: a terminal, or a file or pipe with one question a line."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

from etcli.common.errors import UsageError

_PROMPT = "> "
_AGAIN_SECONDS = 3.0
"""In which Ctrl-C has to be pressed again to end everything."""
_LONGEST_LINE = 16 << 20
"""Bytes. No cache holds a tenth of that; a line without end must not fill the memory."""


class ByHand:
    """A person at a terminal. The line can be edited where Python has readline. A line that ends in a backslash goes on in the next.

    Ctrl-C drops what was typed, since it is easily pressed just after an answer has ended; pressed once more it ends everything.
    """

    by_hand = True

    def __init__(self, first: str | None = None) -> None:
        self._first = first
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - input() then edits and remembers lines

    def next(self) -> str | None:
        """The next words, or None at Ctrl-D.

        Raises:
            KeyboardInterrupt: Ctrl-C twice, or a signal that asks the process to end.
        """
        if self._first is not None:
            words, self._first = self._first, None
            return words
        pressed = -math.inf
        while True:
            try:
                return self._ask()
            except KeyboardInterrupt as interrupt:
                again = time.monotonic() - pressed < _AGAIN_SECONDS
                if again or interrupt.args:  # SIGTERM and SIGHUP say which they are
                    raise
                pressed = time.monotonic()
                print("\n(Ctrl-C again, Ctrl-D or /quit ends the conversation)")

    def _ask(self) -> str | None:
        lines: list[str] = []
        try:
            while (line := input(_PROMPT if not lines else ". ")).endswith("\\"):
                lines.append(line[:-1])
        except EOFError:
            print()
            return _readable("\n".join(lines)) or None
        return _readable("\n".join([*lines, line]))


class FromLines:
    """Lines of standard input, each a question; empty ones are left out."""

    by_hand = False

    def __init__(self, first: str | None = None) -> None:
        self._words = self._all(first)

    def next(self) -> str | None:
        """The next words, or None at the end.

        Raises:
            UsageError: a line is no UTF-8, or has no end.
        """
        return next(self._words, None)

    def _all(self, first: str | None) -> Iterator[str]:
        if first is not None:
            yield first
        source = sys.stdin.buffer
        for number, line in enumerate(_lines(source), 1):
            try:
                words = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise UsageError(
                    f"line {number} of standard input is no UTF-8: its byte {error.start + 1} is 0x{line[error.start]:02x}",
                    code="run.prompt_encoding",
                    hint="Give UTF-8 text, a question a line.",
                ) from None
            if words.strip():
                yield words


def asking(first: str | None, *, json: bool) -> ByHand | FromLines:
    """What standard input is; `first` are words that come before it. With `json` stdout is kept free, so nobody is prompted there."""
    return ByHand(first) if sys.stdin.isatty() and sys.stdout.isatty() and not json else FromLines(first)


def _lines(source: BinaryIO) -> Iterator[bytes]:
    number = 0
    while line := source.readline(_LONGEST_LINE + 1):
        number += 1
        if len(line) > _LONGEST_LINE:
            raise UsageError(
                f"line {number} of standard input has more than {_LONGEST_LINE >> 20} MiB",
                code="run.prompt_too_long",
                hint="Give a question a line.",
            )
        yield line


def _readable(words: str) -> str:
    """What a terminal of another encoding sent, which Python keeps as lone surrogates, with the replacement character in its place."""
    return words.encode(errors="surrogateescape").decode(errors="replace")
