"""Charts as geometry: what a template needs to draw them as inline SVG. Nothing here knows what is plotted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from etcli.output.units import figure_text

WIDTH, HEIGHT = 880, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 22, 44
_LETTER = 6.2
"""Pixels, about, of a letter of a mark's text."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """Points by rising x. `group` chooses the colour, from 0; a `faint` line is one of many behind another."""

    points: tuple[Point, ...]
    label: str
    group: int = 0
    faint: bool = False


@dataclass(frozen=True)
class Mark:
    """Something that happened at `x`."""

    x: float
    label: str
    group: int = 0


@dataclass(frozen=True)
class Tick:
    """A place on an axis, in pixels, and its text."""

    at: float
    text: str


@dataclass(frozen=True)
class DrawnLine:
    """A polyline's `points` attribute; `lonely` is set where a single point has to be a dot."""

    points: str
    label: str
    group: int
    faint: bool
    lonely: Point | None


@dataclass(frozen=True)
class DrawnMark:
    """A vertical line, its text on row `row` above the chart, ending rather than starting at the line where it would run out of the chart."""

    at: float
    label: str
    group: int
    row: int
    ends: bool


@dataclass(frozen=True)
class Chart:
    """A line chart in pixels of `WIDTH` by `HEIGHT`."""

    title: str
    x_title: str
    y_title: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[DrawnLine, ...]
    marks: tuple[DrawnMark, ...]
    note: str = ""

    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def line_chart(
    title: str,
    x_title: str,
    y_title: str,
    lines: Sequence[Line],
    marks: Sequence[Mark] = (),
    *,
    note: str = "",
    whole_x: bool = False,
) -> Chart | None:
    """A chart of `lines`, its y axis from 0; None where no line has a point.

    With `whole_x` the x axis counts things: it has no ticks between two of them. A point far above
    the rest (one slow step in a hundred) is drawn, so the axis reaches it.
    """
    points = [point for line in lines for point in line.points]
    if not points:
        return None
    xs = [x for x, _ in points] + [mark.x for mark in marks]
    low, high = min(xs), max(xs)
    high = high if high > low else low + 1
    ticks = nice_ticks(0, max(y for _, y in points) * 1.05 or 1)
    top = ticks[-1]

    def place(x: float, y: float) -> Point:
        return (
            round(LEFT + (x - low) / (high - low) * (WIDTH - LEFT - RIGHT), 1),
            round(HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM), 1),
        )

    drawn = []
    for line in lines:
        at = [place(x, y) for x, y in line.points]
        text = " ".join(f"{x:g},{y:g}" for x, y in at)
        drawn.append(DrawnLine(text, line.label, line.group, line.faint, at[0] if len(at) == 1 else None))
    return Chart(
        title,
        x_title,
        y_title,
        x_ticks=tuple(Tick(place(x, 0)[0], _tick_text(x)) for x in _x_ticks(low, high, whole_x)),
        y_ticks=tuple(Tick(place(low, y)[1], _tick_text(y)) for y in ticks),
        lines=tuple(drawn),
        marks=_marks(marks, place),
        note=note,
    )


def _marks(marks: Sequence[Mark], place: Callable[[float, float], Point]) -> tuple[DrawnMark, ...]:
    """Texts of neighbours that would cover one another stand on different rows."""
    drawn: list[DrawnMark] = []
    free: list[float] = []  # where each row's last text ends
    for mark in sorted(marks, key=lambda mark: mark.x):
        at = place(mark.x, 0)[0]
        length = _LETTER * len(mark.label) + 8
        ends = at + length > WIDTH - RIGHT
        start = at - length if ends else at
        row = next((index for index, end in enumerate(free) if end <= start), len(free))
        free[row : row + 1] = [at if ends else at + length]
        drawn.append(DrawnMark(at, mark.label, mark.group, row, ends))
    return tuple(drawn)


def _x_ticks(low: float, high: float, whole: bool) -> list[float]:
    ticks = [x for x in nice_ticks(low, high) if low <= x <= high]
    return [x for x in ticks if x.is_integer()] if whole else ticks


def nice_ticks(low: float, high: float, count: int = 6) -> tuple[float, ...]:
    """About `count` round numbers (1, 2 or 5 times a power of ten apart) from at or below `low` to at or above `high`."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((nice * power for nice in (1, 2, 5) if nice * power >= rough * 0.999), 10 * power)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(index * step, 12) for index in range(first, last + 1))


def _tick_text(value: float) -> str:
    return f"{value:,.10g}" if abs(value) < 1e9 else figure_text(value)


@dataclass(frozen=True)
class Bar:
    """One bar: its text, its value in the chart's unit, and its length as a part of the longest."""

    label: str
    text: str
    part: float
    group: int = 0


def bars(rows: Sequence[tuple[str, float, int]], unit: str) -> tuple[Bar, ...]:
    """Bars for (label, value, group), the longest of length 1."""
    longest = max((value for _, value, _ in rows), default=0) or 1
    return tuple(Bar(label, f"{figure_text(value)} {unit}", value / longest, group) for label, value, group in rows)
