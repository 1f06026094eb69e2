"""How long an export takes, from the checkpoint to a verified bundle, against ExecuTorch's own `export_llm`.

The default model (SmolLM2-135M) is exported by `etcli export` as 5 chunks of 6 layers with one prompt shape and one-token decode, in two workers, each
method compared with eager afterwards; the peer writes its one program, unverified, from the same weights at the same precision. Each pair
is: ours with an empty template cache, the peer, ours again with the templates of the first run. Downloads, and the operator library that
is compiled once a machine, are there before. Also printed: delegate partitions of each method, which decide the speed on the device.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from executorch_peer import measured, peer_model, run_export_llm
from harness import Row, arguments, publish

from etcli.common.workspace import cache_dir

COLD_BAR = 10.0
WARM_BAR = 30.0
RECIPES = {"fp32": "smollm2-135m", "8da4w": "smollm2-135m-8da4w"}
LAYERS_PER_CHUNK = 6


@dataclass(frozen=True)
class OurExport:
    """One run of `etcli export`: wall seconds of the whole command and its export report."""

    seconds: float
    report: dict[str, Any]

    def partitions(self, *, head: bool) -> set[int]:
        """Delegate calls of the methods of the last chunk, or of all others."""
        last = len(self.report["chunks"]) - 1
        return {
            calls
            for chunk in self.report["chunks"]
            if (chunk["index"] == last) == head
            for calls in chunk["delegate_calls"].values()
        }


def main() -> int:
    """Measure and print; 1 where a bar was missed."""
    flags = arguments(__doc__.splitlines()[0] if __doc__ else "")
    pairs = 1 if flags.quick else 5
    peer_model()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="etcli-export-time-") as folder:
        _warm_up(Path(folder))
        for precision in RECIPES:
            rows += list(_timed(Path(folder), precision, pairs))
        for precision in RECIPES:
            rows.append(_partitions(Path(folder), precision))
    return publish("export_time", rows, as_json=flags.json)


def _timed(folder: Path, precision: str, pairs: int) -> Iterator[Row]:
    cold: list[float] = []
    warm: list[float] = []
    peer: list[float] = []
    for number in range(pairs):
        cache = _cache_without_templates(folder / f"cache-{precision}-{number}")
        first = our_export(folder, precision, cache)
        cold.append(first.seconds)
        peer.append(run_export_llm(precision, force=True).seconds)
        warm.append(our_export(folder, precision, cache).seconds)
    yield _row(f"export, {precision}, 5 chunks, no templates", cold, peer, COLD_BAR)
    yield _row(f"export, {precision}, 5 chunks, warm templates", warm, peer, WARM_BAR if precision == "fp32" else None)
    yield Row(
        f"partitions a method, {precision}, ring",
        max(first.partitions(head=False)),
        LAYERS_PER_CHUNK + 1,
        "calls",
        (LAYERS_PER_CHUNK + 1) / max(first.partitions(head=False)),
        1.0,
        first.partitions(head=False) == {LAYERS_PER_CHUNK + 1},
        f"body chunks; the head chunk's methods: {sorted(first.partitions(head=True))}",
    )


def _partitions(folder: Path, precision: str) -> Row:
    found = our_export(folder, precision, cache_dir(), "--set", "export.cache=shift").partitions(head=False)
    return Row(
        f"partitions a method, {precision}, shift",
        max(found),
        1,
        "calls",
        1 / max(found),
        1.0,
        found == {1},
        "body chunks",
    )


def our_export(folder: Path, precision: str, cache: Path, *more: str) -> OurExport:
    """`etcli export` of the default model into a fresh workspace below `folder`.

    Raises:
        RuntimeError: it failed.
    """
    with tempfile.TemporaryDirectory(prefix="workspace-", dir=folder) as workspace:
        recipe = RECIPES[precision]
        argv = [sys.executable, "-m", "etcli", "export", recipe, "--jobs", "2", "--workspace", workspace, *more]
        seconds, _ = measured(argv, folder / "export.log", {"ETCLI_CACHE_DIR": str(cache)})
        (report,) = Path(workspace).glob("*/bundle/export-report.json")
        return OurExport(seconds, json.loads(report.read_text(encoding="utf-8")))


def _warm_up(folder: Path) -> None:
    """What is done once a machine: the model downloaded, the operator library compiled, files in the page cache."""
    start = time.perf_counter()
    our_export(folder, "fp32", cache_dir())
    print(f"warm-up: {time.perf_counter() - start:.0f} s", file=sys.stderr)


def _cache_without_templates(folder: Path) -> Path:
    """A cache folder with everything of the user's own but templates."""
    folder.mkdir()
    for entry in cache_dir().iterdir():
        if entry.name != "templates":
            (folder / entry.name).symlink_to(entry)
    return folder


def _row(case: str, ours: list[float], peer: list[float], bar: float | None) -> Row:
    ratio = statistics.median(theirs / mine for mine, theirs in zip(ours, peer, strict=True))
    return Row(
        case,
        statistics.median(ours),
        statistics.median(peer),
        "s",
        ratio,
        bar,
        None if bar is None else ratio >= bar,
        "peer: export_llm",
    )


if __name__ == "__main__":
    sys.exit(main())
