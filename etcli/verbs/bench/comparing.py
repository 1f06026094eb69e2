"""Two reports held against one another: ratios of medians, and whether a difference is more than the runs of one report differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from etcli.common.errors import UsageError
from etcli.manifests.bench import BenchReport, Figure

_MOST_BYTES = 64 << 20

Verdict = Literal["better", "worse", "within the spread"]


@dataclass(frozen=True)
class ComparedFigure:
    """One quantity in both. `ratio` is above 1 where the second is better; `within the spread` where values of both overlap."""

    name: str
    unit: str
    a: float
    b: float
    ratio: float
    verdict: Verdict


@dataclass(frozen=True)
class ComparedPair:
    """Two reports of a device each, and what makes them unlike in other ways than speed."""

    a: BenchReport
    b: BenchReport
    figures: tuple[ComparedFigure, ...]
    differences: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """Pairs of reports out of the documents `a` and `b`."""

    a: Path
    b: Path
    pairs: tuple[ComparedPair, ...]


def compare_files(a: Path, b: Path) -> Comparison:
    """Compare what two files hold, each the document of `etcli bench --json`. Reports of several devices are paired by serial.

    Raises:
        UsageError: a file is missing or no such document, or both speak of no device in common.
    """
    first, second = read_reports(a), read_reports(b)
    if len(first) == len(second) == 1:
        pairs = [(first[0], second[0])]
    else:
        by_serial = {report.device.serial: report for report in second}
        pairs = [(report, by_serial[report.device.serial]) for report in first if report.device.serial in by_serial]
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
    return Comparison(a, b, tuple(compare(x, y) for x, y in pairs))


def compare(a: BenchReport, b: BenchReport) -> ComparedPair:
    """What both measured, in the order of `a`."""
    found = []
    for figure in a.figures:
        other = b.figure(figure.name)
        if other is None or (other.unit, other.better) != (figure.unit, figure.better) or figure.better == "neither":
            continue
        if not figure.median or not other.median:
            continue
        ratio = other.median / figure.median if figure.better == "more" else figure.median / other.median
        found.append(
            ComparedFigure(figure.name, figure.unit, figure.median, other.median, ratio, _verdict(figure, other, ratio))
        )
    return ComparedPair(a, b, tuple(found), tuple(_differences(a, b)))


def read_reports(path: Path) -> tuple[BenchReport, ...]:
    """The reports in `path`: one, or one a device.

    Raises:
        UsageError: there is no such file, or it is no document of `etcli bench --json`.
    """
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
    return tuple(BenchReport.parse(text, file=path) for text in texts)


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


def _verdict(a: Figure, b: Figure, ratio: float) -> Verdict:
    if a.low is None or a.high is None or b.low is None or b.high is None or (a.low <= b.high and b.low <= a.high):
        return "within the spread"
    return "better" if ratio > 1 else "worse"


def _differences(a: BenchReport, b: BenchReport) -> list[str]:
    """What a reader must know before believing a ratio."""

    def sides(report: BenchReport) -> dict[str, object]:
        device = report.device
        return {
            "recipe": report.name,
            "bundle": report.bundle_sha256[:12],
            "device": f"{device.model} ({device.serial})",
            "SoC": device.soc,
            "system": device.os,
            "emulated": "yes" if device.emulated else "no",
            "simulated NPU": "yes" if report.simulated else "no",
            "runner": report.runner,
            "target": report.target,
            "threads": report.threads,
            "prompt tokens": report.prompt_tokens,
            "new tokens": report.new_tokens,
        }

    first, second = sides(a), sides(b)
    return [f"{name}: {first[name]} and {second[name]}" for name in first if first[name] != second[name]]
