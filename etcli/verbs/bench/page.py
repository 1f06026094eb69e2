"""Reports as one static page that opens offline: tables, and plots as inline SVG, no script and nothing fetched."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import UsageError
from etcli.common.files import output_path, write_atomically
from etcli.common.templating import render_page
from etcli.manifests.bench import BenchReport
from etcli.output.plots import Bar, Chart, Line, Mark, bars, line_chart
from etcli.output.units import bytes_text, counted, figure_text, rate_text, seconds_text
from etcli.verbs.bench.comparing import ComparedFigure, ComparedPair

TEMPLATE = "bench.html.j2"

_MOST_POINTS = 2000


@dataclass(frozen=True)
class Shown:
    """A report as the page's tables have it. `letter` tells reports of one page apart, empty where there is only one."""

    letter: str
    title: str
    caveats: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    figures: tuple[tuple[str, ...], ...]
    runs: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Compared:
    """Two of the reports against one another."""

    title: str
    differences: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def prepare_page(path: Path) -> None:
    """See that `path` can be written, which is worth knowing before minutes of measuring.

    Raises:
        UsageError: its folder is none that may be written to.
        OSError: its folder cannot be made.
    """
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"{path} cannot be written: its folder is read-only",
            code="bench.page",
            hint="Name a file in a folder that you may write to.",
        )


def write_page(path: Path, reports: Sequence[BenchReport], pairs: Sequence[ComparedPair] = ()) -> None:
    """Write the page of `reports`, and of `pairs` out of them, atomically.

    Raises:
        OSError: `path` cannot be written.
    """
    write_atomically(output_path(path), page(reports, pairs))


def page(reports: Sequence[BenchReport], pairs: Sequence[ComparedPair] = ()) -> str:
    """The page's HTML. Names, prompts and what devices say of themselves are untrusted: all of it is escaped."""
    letters = [chr(ord("A") + index) if index < 26 else str(index + 1) for index in range(len(reports))]
    if len(reports) == 1:
        letters = [""]
    named = list(zip(letters, reports, strict=True))
    by_report = {id(report): letter for letter, report in named}
    return render_page(
        TEMPLATE,
        title=", ".join(dict.fromkeys(report.name for report in reports)),
        shown=[_shown(letter, report) for letter, report in named],
        compared=[_compared(pair, by_report) for pair in pairs],
        charts=[chart for chart in (_latencies(named), _memory(named), _rates(named), _heat(named)) if chart],
        chunks=_chunks(named),
    )


def _shown(letter: str, report: BenchReport) -> Shown:
    device = report.device
    caveats = [
        *(["emulated device: its rates say nothing of a phone"] if device.emulated else []),
        *(["simulated NPU: its rates say nothing of a phone's NPU"] if report.simulated else []),
        *([f"weights of {report.quality} quality"] if report.quality else []),
    ]
    threads = "the runtime's choice" if report.threads is None else str(report.threads)
    return Shown(
        letter,
        f"{report.name} on {device.model}",
        tuple(caveats),
        (
            ("device", f"{device.serial}, {device.soc}, {device.abi}, {device.os}"),
            ("build", f"{report.target}, runner {report.runner}, threads: {threads}"),
            ("bundle", report.bundle_sha256[:12]),
            ("measured", f"{report.measured_at} by etcli {report.etcli}"),
            ("prompt", counted(report.prompt_tokens, "token")),
            (
                "answer",
                f"{counted(report.new_tokens, 'token')}, {counted(report.runs, 'run')} after {report.warm_up} not counted",
            ),
        ),
        tuple(
            (
                figure.name,
                *map(figure_text, (figure.median, figure.low, figure.high)),
                percent(figure.spread),
                figure.unit,
            )
            for figure in report.figures
        ),
        tuple(
            (
                str(number),
                rate_text(run.prefill_tokens_per_s),
                rate_text(run.decode_tokens_per_s),
                seconds_text(run.time_to_first_token_s),
                seconds_text(run.load_s),
                bytes_text(run.peak_memory_bytes),
                change(run.before.hottest_c, run.after.hottest_c, "°C"),
                change(run.before.clock_mhz, run.after.clock_mhz, "MHz"),
            )
            for number, run in enumerate(report.each, 1)
        ),
    )


def change(before: float | None, after: float | None, unit: str) -> str:
    """`41.5 → 44.0 °C`, or `-`."""
    if before is None and after is None:
        return "-"
    first, second = (
        "-" if value is None else f"{value:.1f}" if unit == "°C" else f"{value:.0f}" for value in (before, after)
    )
    return f"{first} → {second} {unit}"


def percent(part: float | None) -> str:
    """`1.2 %`, or `-`."""
    return "-" if part is None else f"{part * 100:.1f} %"


def _compared(pair: ComparedPair, letters: dict[int, str]) -> Compared:
    a, b = letters.get(id(pair.a), "A"), letters.get(id(pair.b), "B")
    return Compared(
        f"{b} against {a}",
        pair.differences,
        tuple(
            (
                item.name,
                f"{figure_text(item.a)} {item.unit}",
                f"{figure_text(item.b)} {item.unit}",
                ratio_text(item),
                item.verdict,
            )
            for item in pair.figures
        ),
    )


def ratio_text(item: ComparedFigure) -> str:
    """`0.951 (0.940 to 0.960)`: the ratio, and where it lies by the spread of the runs."""
    between = "" if item.low is None or item.high is None else f" ({item.low:.3f} to {item.high:.3f})"
    return f"{item.ratio:.3f}{between}"


def _label(letter: str, text: str) -> str:
    return f"{letter}: {text}" if letter else text


def _latencies(named: Sequence[tuple[str, BenchReport]]) -> Chart | None:
    """Every counted run as a faint line, and over them each token's median."""
    lines = []
    for group, (letter, report) in enumerate(named):
        runs = [run.token_latencies_s for run in report.each if run.token_latencies_s]
        for number, latencies in enumerate(runs, 1):
            points = tuple((float(index), seconds * 1000) for index, seconds in enumerate(latencies, 1))
            lines.append(Line(_thin(points), _label(letter, f"run {number}"), group, faint=len(runs) > 1))
        if len(runs) > 1:
            middle = tuple(
                (float(index), statistics.median(run[index - 1] for run in runs if len(run) >= index) * 1000)
                for index in range(1, max(map(len, runs)) + 1)
            )
            lines.append(Line(_thin(middle), _label(letter, "median of the runs"), group))
    return line_chart("Time of each token", "token after the first", "ms", lines, whole_x=True)


def _memory(named: Sequence[tuple[str, BenchReport]]) -> Chart | None:
    lines, marks = [], []
    for group, (letter, report) in enumerate(named):
        trace = report.memory
        if not trace.samples:
            continue
        points = tuple((sample.t_s, sample.resident_bytes / 1e6) for sample in trace.samples)
        lines.append(Line(points, _label(letter, "resident memory"), group))
        for seconds, what in ((trace.loaded_s, "loaded"), (trace.first_token_s, "first token"), (trace.ended_s, "end")):
            if seconds is not None:
                marks.append(Mark(seconds, _label(letter, what), group))
    note = "Of the first run, which is not counted: watching it costs no counted run anything."
    return line_chart("Memory over time", "seconds since the runner started", "MB", lines, marks, note=note)


def _rates(named: Sequence[tuple[str, BenchReport]]) -> Chart | None:
    lines = []
    for group, (letter, report) in enumerate(named):
        decode = tuple(
            (float(number), run.decode_tokens_per_s)
            for number, run in enumerate(report.each, 1)
            if run.decode_tokens_per_s is not None
        )
        if len(decode) > 1:
            lines.append(Line(decode, _label(letter, "decode"), group))
    return line_chart(
        "Decode rate of each run",
        "run",
        "tok/s",
        lines,
        note="A line that falls is a device that slows down as it warms up.",
        whole_x=True,
    )


def _heat(named: Sequence[tuple[str, BenchReport]]) -> Chart | None:
    lines = []
    for group, (letter, report) in enumerate(named):
        points = []
        for number, run in enumerate(report.each, 1):
            for at, celsius in ((number - 0.25, run.before.hottest_c), (number + 0.25, run.after.hottest_c)):
                if celsius is not None:
                    points.append((at, celsius))
        lines.append(Line(tuple(points), _label(letter, "hottest sensor"), group))
    return line_chart("Temperature before and after each run", "run", "°C", lines, whole_x=True)


def _chunks(named: Sequence[tuple[str, BenchReport]]) -> tuple[tuple[str, tuple[Bar, ...]], ...]:
    """A block of bars for decoding and one for the prefill, where there are several chunks."""
    found = []
    for title, ending in (("A token's time by chunk", ", a token"), ("The prefill's time by chunk", ", prefill")):
        rows = [
            (_label(letter, figure.name.removesuffix(ending)), figure.median, group)
            for group, (letter, report) in enumerate(named)
            for figure in report.figures
            if figure.name.startswith("chunk ") and figure.name.endswith(ending) and figure.median is not None
        ]
        if len(rows) > len(named):
            found.append((title, bars(rows, "ms")))
    return tuple(found)


def _thin(points: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """At most `_MOST_POINTS`, of neighbours the highest: a page of a long run stays small, and no slow token is lost."""
    together = -(-len(points) // _MOST_POINTS) or 1
    return tuple(max(points[at : at + together], key=lambda point: point[1]) for at in range(0, len(points), together))
