"""What every benchmark shares: interleaved pairs, the machine's description, the printed document.

A benchmark is a program `benchmarks/NAME.py` with `--json` and `--quick`. It prints one document
`{"benchmark", "machine", "rows": [{"case", "ours", "peer", "unit", "ratio", "bar", "ok", "note"}]}`; `ratio` is larger when we are better,
the median over interleaved pairs of one run, since these machines change speed within minutes. `ok` is None where a row could not be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import psutil


@dataclass(frozen=True)
class Row:
    """One comparison. `bar` is what `ratio` must reach."""

    case: str
    ours: float | None
    peer: float | None
    unit: str
    ratio: float | None
    bar: float | None
    ok: bool | None
    note: str = ""


def paired(
    ours: Callable[[], float], peer: Callable[[], float], *, pairs: int, warmup: int = 1
) -> tuple[float, float, float]:
    """Run both in turn (A B A B ...) and return (median ours, median peer, median of peer / ours pair by pair).

    Both functions return a cost (seconds, bytes): a ratio above 1 means that ours is smaller.
    """
    for _ in range(warmup):
        ours()
        peer()
    measured = [(ours(), peer()) for _ in range(pairs)]
    return (
        statistics.median(a for a, _ in measured),
        statistics.median(b for _, b in measured),
        statistics.median(b / a for a, b in measured),
    )


def compare(
    case: str,
    ours: Callable[[], float],
    peer: Callable[[], float],
    *,
    unit: str,
    bar: float | None,
    pairs: int,
    note: str = "",
) -> Row:
    """A row from interleaved runs of two costs."""
    mine, theirs, ratio = paired(ours, peer, pairs=pairs)
    return Row(case, mine, theirs, unit, ratio, bar, None if bar is None else ratio >= bar, note)


def wall_seconds(argv: Sequence[str]) -> float:
    """Wall seconds of one whole process whose output is dropped.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    start = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return time.perf_counter() - start


def arguments(description: str) -> argparse.Namespace:
    """The command line every benchmark takes: `--json` and `--quick`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--quick", action="store_true", help="as short as an honest answer allows")
    return parser.parse_args()


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
    }


def publish(name: str, rows: Sequence[Row], *, as_json: bool) -> int:
    """Print the rows as the document or as a table; return 1 where a bar was missed."""
    if as_json:
        print(json.dumps({"benchmark": name, "machine": machine(), "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        print(f"{name} on {_processor()}, {os.cpu_count()} cores")
        print(f"{'case':44} {'ours':>12} {'peer':>12} {'unit':8} {'ratio':>8} {'bar':>6}  ok")
        for row in rows:
            verdict = {True: "yes", False: "NO", None: "-"}[row.ok]
            numbers = " ".join(
                f"{'-' if value is None else format(value, '.4g'):>{width}}"
                for value, width in ((row.ours, 12), (row.peer, 12))
            )
            ratio, bar = (("-" if value is None else format(value, ".3g")) for value in (row.ratio, row.bar))
            print(f"{row.case:44} {numbers} {row.unit:8} {ratio:>8} {bar:>6}  {verdict}  {row.note}")
    return int(any(row.ok is False for row in rows))


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - one line of a pseudo file
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit("this is a library; run one of the benchmarks beside it")
