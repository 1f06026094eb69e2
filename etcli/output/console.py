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
from typing import Literal, Protocol

import rich.console
import rich.markup
import rich.progress
import rich.table
import rich.text

from etcli.common.text import shown

# Columns of a file or pipe, where there is no terminal to ask: a table's row stays one line, for grep and for logs. $COLUMNS goes before it.
_LOG_WIDTH = 10_000


_LEAST_SECONDS = 0.1
"""The least time that a rate can be told from: below it the figure is one of the clock."""


class Progress(Protocol):
    """Work that goes on: called with how much more is done."""

    def __call__(self, more: float, /) -> None:
        """So much more is done; 0 is a sign of life."""

    def doing(self, text: str, /) -> None:
        """What is under way now, in a few words."""


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
    def progress(self, title: str, total: float, *, bytes_: bool = False) -> Iterator[Progress]:
        """A bar on a terminal; elsewhere a line now and then, and one at the end. Yields what takes how much more is done.

        Work that takes long calls it with 0 now and then: where there is no bar, lines are written only when it is called. Of several pieces
        nothing is foretold before the first is done.
        """
        if not self._live:
            lines = _ProgressLines(title, total, bytes_=bytes_, say=self.note)
            yield lines
            lines.end()
            return
        columns: list[rich.progress.ProgressColumn] = [
            rich.progress.TextColumn("    {task.description}"),
            rich.progress.BarColumn(),
        ]
        if bytes_:
            columns += [rich.progress.DownloadColumn(), _Rate()]
        else:
            columns += [rich.progress.MofNCompleteColumn()]
        columns += [rich.progress.TimeElapsedColumn(), _TimeLeft(of_pieces=not bytes_)]
        with rich.progress.Progress(*columns, console=self._err) as bar:
            yield _Bar(bar, title, total)

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[Callable[[str | None], None]]:
        """A spinner with `text` on a terminal. Yields a function that takes the next text, which elsewhere is a line, or None to end it.

        It must have ended before anything is written to stdout.
        """
        if not self._live:
            yield lambda news: None if news is None else self.note(f"    {news}")
            return
        with self._err.status(_wrapped(text)) as status:
            yield lambda news: status.stop() if news is None else status.update(_wrapped(news))

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


def _wrapped(text: str) -> rich.console.Group:
    """`text` beside a spinner, wrapped where the terminal is narrow: a bare string would be cut there."""
    return rich.console.Group(rich.text.Text(f"  {shown(text)}", overflow="fold", no_wrap=False))


class _Rate(rich.progress.TransferSpeedColumn):
    """Bytes a second, once there is a time to tell them from."""

    def render(self, task: rich.progress.Task) -> rich.text.Text:
        """The rate, or nothing."""
        return super().render(task) if (task.elapsed or 0) >= _LEAST_SECONDS else rich.text.Text("")


class _TimeLeft(rich.progress.ProgressColumn):
    """The time that is left, once there is something to foretell it from: a piece that is done, or bytes that go.

    Of pieces it is told by all that is done so far. Rich's own estimate looks at the last half minute alone, in which of long pieces next
    to nothing has moved.
    """

    max_refresh = 0.5

    def __init__(self, *, of_pieces: bool) -> None:
        super().__init__()
        self._of_pieces = of_pieces

    def render(self, task: rich.progress.Task) -> rich.text.Text:
        """`0:01:30`, or nothing."""
        left = self._seconds(task)
        if left is None:
            return rich.text.Text("")
        return rich.text.Text(f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02}", style="progress.remaining")

    def _seconds(self, task: rich.progress.Task) -> int | None:
        if task.finished:
            return 0
        if not self._of_pieces:
            return None if task.time_remaining is None else math.ceil(task.time_remaining)
        if task.completed < 1 or task.remaining is None or not task.elapsed:
            return None
        return math.ceil(task.elapsed / task.completed * task.remaining)


class _Bar:
    """Progress on a terminal: one task of Rich's, described by what is under way."""

    def __init__(self, bar: rich.progress.Progress, title: str, total: float) -> None:
        self._bar = bar
        self._task = bar.add_task(rich.markup.escape(shown(title)), total=total)

    def __call__(self, more: float, /) -> None:
        self._bar.advance(self._task, more)

    def doing(self, text: str, /) -> None:
        self._bar.update(self._task, description=rich.markup.escape(shown(text)))


class _ProgressLines:
    """Progress for logs: a line at each quarter of work that takes long, and a sign of life where nothing was written for a while."""

    _QUARTER_SECONDS = 10.0
    """The least time between two lines: short work has a line at its end only."""
    _SILENCE_SECONDS = 30.0
    _MOST_SECONDS_LEFT = 86_400.0

    def __init__(self, title: str, total: float, *, bytes_: bool, say: Callable[[str], None]) -> None:
        self._title, self._total, self._bytes, self._say = title, total, bytes_, say
        self._done = 0.0
        self._doing = ""
        self._quarter = 0
        self._start = self._last = time.monotonic()

    def __call__(self, more: float, /) -> None:
        self._done += more
        now = time.monotonic()
        quarter = int(4 * self._done / self._total) if self._total > 0 else 0
        passed = self._quarter < quarter < 4 and now - self._last >= self._QUARTER_SECONDS
        if passed or now - self._last >= self._SILENCE_SECONDS:
            self._quarter, self._last = quarter, now
            of = f"{self._done / 1e6:.1f}/{self._total / 1e6:.1f} MB" if self._bytes else self._count()
            doing = f", now {self._doing}" if self._doing else ""
            self._say(f"    {self._title}: {of} after {now - self._start:.0f} s{self._pace(now)}{doing}")

    def doing(self, text: str, /) -> None:
        self._doing = text

    def end(self) -> None:
        amount = f"{self._done / 1e6:.1f} MB" if self._bytes else self._count()
        taken = time.monotonic() - self._start
        rate = f", {self._done / 1e6 / taken:.1f} MB/s" if self._bytes and taken >= _LEAST_SECONDS else ""
        self._say(f"    {self._title}: {amount} in {taken:.1f} s{rate}")

    def _pace(self, now: float) -> str:
        """Rate and what it leaves to wait for, where bytes are counted."""
        taken = now - self._start
        if not self._bytes or self._done <= 0 or taken < _LEAST_SECONDS:
            return ""
        rate = self._done / taken
        left = max(0.0, self._total - self._done) / rate
        # while a connection is taken up again next to nothing has gone, and nothing can be foretold
        return f", {rate / 1e6:.1f} MB/s" + (f", {left:.0f} s left" if left < self._MOST_SECONDS_LEFT else "")

    def _count(self) -> str:
        # steps within a piece move the bar of a terminal; a log counts pieces that are whole
        return f"{math.floor(self._done + 1e-6)}/{self._total:g}"
