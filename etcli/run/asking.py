"""Where a conversation's words come from: a terminal, or a file or pipe with one question a line."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

_PROMPT = "> "


class ByHand:
    """A person at a terminal. The line can be edited where Python has readline. A line that ends in a backslash goes on in the next."""

    by_hand = True

    def __init__(self, first: str | None = None) -> None:
        self._first = first
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - input() then edits and remembers lines

    def next(self) -> str | None:
        """The next words, or None at Ctrl-D."""
        if self._first is not None:
            words, self._first = self._first, None
            return words
        lines: list[str] = []
        try:
            while (line := input(_PROMPT if not lines else ". ")).endswith("\\"):
                lines.append(line[:-1])
        except EOFError:
            print()
            return "\n".join(lines) or None
        return "\n".join([*lines, line])


class FromLines:
    """Lines of standard input, each a question; empty ones are left out."""

    by_hand = False

    def __init__(self, first: str | None = None) -> None:
        self._words = self._all(first)

    def next(self) -> str | None:
        """The next words, or None at the end."""
        return next(self._words, None)

    def _all(self, first: str | None) -> Iterator[str]:
        if first is not None:
            yield first
        for line in sys.stdin:
            if line.strip():
                yield line.rstrip("\r\n")


def asking(first: str | None, *, json: bool) -> ByHand | FromLines:
    """What standard input is; `first` are words that come before it. With `json` stdout is kept free, so nobody is prompted there."""
    return ByHand(first) if sys.stdin.isatty() and sys.stdout.isatty() and not json else FromLines(first)
