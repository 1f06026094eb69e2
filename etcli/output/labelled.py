"""A console for one of several devices at work at once: whole lines, each with the device's name, and no bars, which would overwrite one another."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

from etcli.output.console import Console


class LabelledConsole(Console):
    """Speaks through the streams of `parent`, whose warnings it adds to. All consoles of a parent share its `lock`."""

    def __init__(self, parent: Console, label: str, lock: threading.Lock) -> None:
        super().__init__(json=parent.json, verbosity=parent.verbosity)
        self._live = False
        self._parent, self._label, self._lock = parent, label, lock
        self._pending = ""

    def print(self, text: str = "", *, style: str | None = None) -> None:
        """A line of the result, labelled."""
        with self._lock:
            self._parent.print(f"{self._label}  {text}", style=style)

    def write(self, text: str) -> None:
        """Streamed text, held back until its line is whole; see `flush`."""
        self._pending += text
        *whole, self._pending = self._pending.split("\n")
        with self._lock:
            for line in whole:
                self._parent.write(f"{self._label}  {line}\n")

    def flush(self) -> None:
        """Write a last line that has no end."""
        if self._pending:
            self.write("\n")

    def note(self, text: str) -> None:
        """A remark, labelled."""
        with self._lock:
            self._parent.note(f"{self._label}  {text.strip()}")

    def detail(self, text: str) -> None:
        """A remark shown only when verbose, labelled."""
        with self._lock:
            self._parent.detail(f"{self._label}  {text.strip()}")

    def warn(self, message: str, *, code: str) -> None:
        """A warning, which names the device."""
        with self._lock:
            self._parent.warn(message if self._label in message else f"{self._label}: {message}", code=code)

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """A named step, labelled."""
        self.note(f"==> {title}")
        start = time.monotonic()
        yield
        self.detail(f"{title}: {time.monotonic() - start:.1f} s")

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, names: int = 1) -> None:
        """A table; its title names the device."""
        with self._lock:
            self._parent.table(f"{self._label}  {title}", columns, rows, names=names)
