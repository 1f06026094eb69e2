"""Two reports held against one another: ratios of medians, and whether a difference is more than the spread of the runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from etcli.common.errors import UsageError
from etcli.manifests.bench import BenchReport, Figure
from etcli.verbs.bench.spread import Interval, ratio_interval

_MOST_BYTES = 64 << 20

Verdict = Literal["better", "worse", "within the spread", "too few runs"]


@dataclass(frozen=True)
class ComparedFigure:
    """One quantity in both. `ratio` is above 1 where the second is better, by the spread of the runs between `low` and `high`.

    `within the spread`: 1 lies between them. `sure` is whether there were enough runs for 95 %.
    """

    name: str
    unit: str
    a: float
    b: float
    ratio: float
    verdict: Verdict
    low: float | None = None
    high: float | None = None
    sure: bool = False


@dataclass(frozen=True)
class ComparedPair:
    """Two reports of a device each, and what else they differ in; `unlike` are those of the differences that make ratios mean nothing."""

    a: BenchReport
    b: BenchReport
    figures: tuple[ComparedFigure, ...]
    differences: tuple[str, ...]
    unlike: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Pairs of reports out of the documents `a` and `b`.

    Attributes:
        alone: serials of devices that only one of them has.
        ended_early: which of them are of a benchmark that failed or was ended, and hold the runs until then.
        passed: whether every figure is as good as was asked for, None where nothing was.
    """

    a: Path
    b: Path
    pairs: tuple[ComparedPair, ...]
    alone: tuple[str, ...] = ()
    ended_early: tuple[Path, ...] = ()
    passed: bool | None = None


def compare_files(a: Path, b: Path) -> Comparison:
    """Compare what two files hold, each the document of `etcli bench --json`. Reports of several devices are paired by serial.

    Raises:
        UsageError: a file is missing or no such document, or both speak of no device in common.
    """
    (first, first_whole), (second, second_whole) = _read(a), _read(b)
    alone: tuple[str, ...] = ()
    if len(first) == len(second) == 1:
        pairs = [(first[0], second[0])]
    else:
        by_serial = {report.device.serial: report for report in second}
        pairs = [(report, by_serial[report.device.serial]) for report in first if report.device.serial in by_serial]
        alone = tuple(sorted(by_serial.keys() ^ {report.device.serial for report in first}))
    if not pairs:
        serials = "; ".join(
            f"{path.name}: {', '.join(report.device.serial for report in reports)}"
            for path, reports in ((a, first), (b, second))
        )
        raise UsageError(
            f"the two documents have no device in common ({serials})",
            code="bench.no_common_device",
            hint="Compare documents of one device each, or of the same devices.",
        )
    early = tuple(path for path, whole in ((a, first_whole), (b, second_whole)) if not whole)
    return Comparison(a, b, tuple(compare(x, y) for x, y in pairs), alone, early)


def compare(a: BenchReport, b: BenchReport) -> ComparedPair:
    """What both measured, in the order of `a`."""
    found = []
    for figure in a.figures:
        other = b.figure(figure.name)
        if other is None or (other.unit, other.better) != (figure.unit, figure.better) or figure.better == "neither":
            continue
        if not figure.median or not other.median:
            continue
        compared = _compared(figure, other)
        if all(
            map(math.isfinite, (compared.ratio, compared.low or 0, compared.high or 0))
        ):  # whoever wrote the document
            found.append(compared)
    return ComparedPair(
        a, b, tuple(found), tuple(_differences(a, b, {**_UNLIKE, **_ALIKE})), tuple(_differences(a, b, _UNLIKE))
    )


def read_reports(path: Path) -> tuple[BenchReport, ...]:
    """The reports in `path`: one, or one a device.

    Raises:
        UsageError: there is no such file, or it is no document of `etcli bench --json`.
    """
    return _read(path)[0]


def _read(path: Path) -> tuple[tuple[BenchReport, ...], bool]:
    """The reports, and whether the benchmark came to its end."""
    document = _object(path)
    result = document.get("result", document)
    if document.get("ok") is False and not result:
        raise _bad(path, "it is the document of a benchmark that failed")
    if document.get("command", "bench") != "bench" or not isinstance(result, Mapping):
        raise _bad(path, "it is the document of another command")
    several = result.get("devices")
    items: list[Any] = several if isinstance(several, list) else [result]
    if not items:
        raise _bad(path, "it holds no report")
    # a device that failed stands among the others with its errors alone
    texts = [json.dumps(item) for item in items if not (isinstance(item, Mapping) and item.get("errors"))]
    if not texts:
        raise _bad(path, "it is the document of a benchmark that failed")
    whole = document.get("ok") is not False and len(texts) == len(items)
    return tuple(BenchReport.parse(text, file=path) for text in texts), whole


def _object(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise _bad(path, error.strerror or str(error)) from None
    if len(data) > _MOST_BYTES:
        raise _bad(path, f"it has more than {_MOST_BYTES >> 20} MiB")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"it is no JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise _bad(path, "it is no JSON object")
    return value


def _bad(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path.name} cannot be compared: {why}",
        code="bench.document",
        hint="Make one with: etcli bench --json > FILE",
        file=path,
    )


def _compared(a: Figure, b: Figure) -> ComparedFigure:
    assert a.median is not None  # noqa: S101 - the caller has looked
    assert b.median is not None  # noqa: S101 - the caller has looked
    if a.better == "more":
        ratio, interval = b.median / a.median, ratio_interval(a.values, b.values)
    else:
        ratio, interval = a.median / b.median, ratio_interval(b.values, a.values)
    low, high, sure = (None, None, False) if interval is None else (interval.low, interval.high, interval.sure)
    return ComparedFigure(a.name, a.unit, a.median, b.median, ratio, _verdict(interval), low, high, sure)


def _verdict(interval: Interval | None) -> Verdict:
    if interval is None:
        return "too few runs"
    if interval.low <= 1 <= interval.high:
        return "within the spread"
    return "better" if interval.low > 1 else "worse"


def _sampling(report: BenchReport) -> str:
    """How tokens were chosen; nothing for a report from before that was told, which is when prompts were not either."""
    if report.sampling is not None:
        drawn = report.sampling
        return f"temperature {drawn.temperature:g}, top-p {drawn.top_p:g}, seed {drawn.seed}"
    return "" if report.prompt_sha256 is None else "greedy"


_Side = Callable[[BenchReport], object]

_UNLIKE: Mapping[str, _Side] = {
    "recipe": lambda report: report.name,
    "device": lambda report: report.device.model,
    "SoC": lambda report: report.device.soc or "",
    "emulated": lambda report: "yes" if report.device.emulated else "no",
    "simulated NPU": lambda report: "yes" if report.simulated else "no",
    "runner": lambda report: report.runner,
    "prompt": lambda report: (report.prompt_sha256 or "")[:12],
    "prompt tokens": lambda report: report.prompt_tokens,
    "new tokens": lambda report: report.new_tokens,
}
"""With these, ratios compare two things and not two states of one."""

_ALIKE: Mapping[str, _Side] = {
    "bundle": lambda report: report.bundle_sha256[:12],
    "program": lambda report: (report.runner_sha256 or "")[:12],
    "serial": lambda report: report.device.serial,
    "system": lambda report: report.device.os,
    "target": lambda report: report.target,
    "threads": lambda report: report.threads,
    "sampling": lambda report: _sampling(report),
    "slowed down by heat": lambda report: "yes" if any(run.after.throttling for run in report.each) else "no",
}
"""What a reader must know before believing a ratio, or what is being compared."""


def _differences(a: BenchReport, b: BenchReport, sides: Mapping[str, _Side]) -> Iterator[str]:
    """In words; what an older report does not tell is no difference."""
    for name, side in sides.items():
        first, second = side(a), side(b)
        if first != second and "" not in (first, second):
            yield f"{name}: {first} and {second}"
