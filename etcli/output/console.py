"""The one object through which stages speak to a person: steps, notes, warnings, progress, streamed text.

It is handed down from the command line, never imported as a global, so quiet modes and tests replace it in one place.
People's text goes to stdout, progress and notes to stderr. With `--json` stdout stays free for the one document: streamed text goes to stderr,
and results for people are left out, because the document holds them.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import rich.console
import rich.markup
import rich.progress
import rich.table

from etcli.common.text import shown

# Columns of a file or pipe, where there is no terminal to ask: a table's row stays one line, for grep and for logs. $COLUMNS goes before it.
_LOG_WIDTH = 10_000


@dataclass(frozen=True)
class Warn:
    """A warning as it goes into the JSON document."""

    code: str
    message: str


class Console:
    """Speaks to a terminal, a log or nobody.

    Args:
        json: keep stdout free, and leave results for people out.
        verbosity: -1 quiet (errors and results only), 0 normal, 1 with details.
    """

    def __init__(self, *, json: bool = False, verbosity: int = 0) -> None:
        plain = bool(os.environ.get("NO_COLOR") or os.environ.get("CI"))
        self.json = json
        self.verbosity = verbosity
        self.warnings: list[Warn] = []
        self._records: list[list[str]] = []
        # no colour system means no escape codes at all, bold and dim included
        colours: Literal["auto"] | None = None if plain else "auto"
        self._out = rich.console.Console(
            file=sys.stderr if json else sys.stdout, color_system=colours, highlight=False, soft_wrap=True
        )
        self._err = rich.console.Console(stderr=True, color_system=colours, highlight=False, soft_wrap=True)
        for target in (self._out, self._err):
            if not target.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
                target.width = _LOG_WIDTH
        self._live = self._err.is_terminal and not plain and verbosity >= 0

    @contextlib.contextmanager
    def recorded(self) -> Iterator[list[str]]:
        """Keeps what is said during the block, also what is not shown: yields a list of pieces of text, lines with their ends."""
        record: list[str] = []
        self._records.append(record)
        try:
            yield record
        finally:
            self._records.pop()

    def _keep(self, text: str) -> None:
        for record in self._records:
            record.append(text)

    def print(self, text: str = "", *, style: str | None = None) -> None:
        """A line of the result for a person."""
        self._keep(f"{text}\n")
        if not self.json:
            self._out.print(shown(text), style=style, markup=False)

    def write(self, text: str) -> None:
        """Text of the model, as it is, without a line end; flushed at once. Control characters but tab and newline are shown escaped."""
        self._keep(text)
        self._out.file.write(shown(text))
        self._out.file.flush()

    def note(self, text: str) -> None:
        """A remark for a person; dropped when quiet."""
        self._keep(f"{text}\n")
        if self.verbosity >= 0:
            self._err.print(shown(text), markup=False, style="dim")

    def detail(self, text: str) -> None:
        """A remark shown only when verbose."""
        self._keep(f"{text}\n")
        if self.verbosity > 0:
            self._err.print(shown(text), markup=False, style="dim")

    def warn(self, message: str, *, code: str) -> None:
        """A warning: shown, and kept for the JSON document. The same one a second time (a benchmark runs several times) is not."""
        if Warn(code, message) in self.warnings:
            return
        self.warnings.append(Warn(code, message))
        self._keep(f"warning: {message}\n")
        self._err.print(shown(f"warning: {message}"), markup=False, style="yellow")

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """A named step: announced as it starts, its time given as it ends."""
        self._keep(f"==> {title}\n")
        if self.verbosity >= 0:
            self._err.print(shown(f"==> {title}"), markup=False, style="bold")
        start = time.monotonic()
        yield
        self.detail(f"    {title}: {time.monotonic() - start:.1f} s")

    @contextlib.contextmanager
    def progress(self, title: str, total: float, *, bytes_: bool = False) -> Iterator[Callable[[float], None]]:
        """A bar on a terminal; elsewhere a line now and then, and one at the end. Yields a function that takes how much more is done.

        Work that takes long calls it with 0 now and then: where there is no bar, lines are written only when it is called.
        """
        if not self._live:
            lines = _ProgressLines(title, total, bytes_=bytes_, say=self.note)
            yield lines.advance
            lines.end()
            return
        columns: list[rich.progress.ProgressColumn] = [
            rich.progress.TextColumn("    {task.description}"),
            rich.progress.BarColumn(),
        ]
        if bytes_:
            columns += [rich.progress.DownloadColumn(), rich.progress.TransferSpeedColumn()]
        else:
            columns += [rich.progress.MofNCompleteColumn()]
        columns += [rich.progress.TimeElapsedColumn(), rich.progress.TimeRemainingColumn()]
        with rich.progress.Progress(*columns, console=self._err) as bar:
            task = bar.add_task(title, total=total)
            yield lambda more: bar.advance(task, more)

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[Callable[[str | None], None]]:
        """A spinner with `text` on a terminal. Yields a function that takes the next text, which elsewhere is a line, or None to end it.

        It must have ended before anything is written to stdout.
        """
        if not self._live:
            yield lambda news: None if news is None else self.note(f"    {news}")
            return
        with self._err.status(f"    {rich.markup.escape(text)}") as status:
            yield lambda news: status.stop() if news is None else status.update(f"    {rich.markup.escape(news)}")

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, names: int = 1) -> None:
        """A table of the result; columns whose every cell is a number or starts with a digit are right-aligned.

        The first `names` columns name the row and are never broken: people copy them.
        """
        if self.json:
            return
        self.print(title, style="italic")  # a line of its own: a title inside the table is broken at the table's width
        table = rich.table.Table(show_edge=False)
        for index, name in enumerate(columns):
            cells = [str(row[index]) for row in rows]
            numeric = bool(cells) and all(cell[:1].isdigit() or cell in ("", "-") for cell in cells)
            table.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=index < names)
        for row in rows:
            table.add_row(*(rich.markup.escape(shown(str(cell))) for cell in row))
        self._out.print(table)


class _ProgressLines:
    """Progress for logs: a line at each quarter of work that takes long, and a sign of life where nothing was written for a while."""

    _QUARTER_SECONDS = 10.0
    """The least time between two lines: short work has a line at its end only."""
    _SILENCE_SECONDS = 30.0
    _MOST_SECONDS_LEFT = 86_400.0

    def __init__(self, title: str, total: float, *, bytes_: bool, say: Callable[[str], None]) -> None:
        self._title, self._total, self._bytes, self._say = title, total, bytes_, say
        self._done = 0.0
        self._quarter = 0
        self._start = self._last = time.monotonic()

    def advance(self, more: float) -> None:
        self._done += more
        now = time.monotonic()
        quarter = int(4 * self._done / self._total) if self._total > 0 else 0
        passed = self._quarter < quarter < 4 and now - self._last >= self._QUARTER_SECONDS
        if passed or now - self._last >= self._SILENCE_SECONDS:
            self._quarter, self._last = quarter, now
            of = f"{self._done / 1e6:.1f}/{self._total / 1e6:.1f} MB" if self._bytes else self._count()
            self._say(f"    {self._title}: {of} after {now - self._start:.0f} s{self._pace(now)}")

    def end(self) -> None:
        amount = f"{self._done / 1e6:.1f} MB" if self._bytes else self._count()
        taken = time.monotonic() - self._start
        rate = f", {self._done / 1e6 / taken:.1f} MB/s" if self._bytes and taken > 0 else ""
        self._say(f"    {self._title}: {amount} in {taken:.1f} s{rate}")

    def _pace(self, now: float) -> str:
        """Rate and what it leaves to wait for, where bytes are counted."""
        taken = now - self._start
        if not self._bytes or self._done <= 0 or taken <= 0:
            return ""
        rate = self._done / taken
        left = max(0.0, self._total - self._done) / rate
        # while a connection is taken up again next to nothing has gone, and nothing can be foretold
        return f", {rate / 1e6:.1f} MB/s" + (f", {left:.0f} s left" if left < self._MOST_SECONDS_LEFT else "")

    def _count(self) -> str:
        # steps within a piece move the bar of a terminal; a log counts pieces that are whole
        return f"{math.floor(self._done + 1e-6)}/{self._total:g}"
