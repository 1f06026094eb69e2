"""How fast and how large a deployed model is: one warm-up, then counted runs that go on to the last token."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.common.workspace import Workspace
from etcli.device.base import Device
from etcli.manifests.run_record import DeviceFacts, RunRecord
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.run.stage import RunOptions, run


@dataclass(frozen=True)
class BenchOptions:
    """`runs` are counted after one that is not; each generates `max_new_tokens`, stop ids ignored. `runner_binary` as in `RunOptions`."""

    runs: int = 5
    max_new_tokens: int = 32
    target: str | None = None
    bundle: Path | None = None
    runner_binary: Path | None = None
    stale_ok: bool = False


@dataclass(frozen=True)
class Figure:
    """One quantity over all counted runs. None where no run could measure it."""

    name: str
    unit: str
    median: float | None
    low: float | None
    high: float | None
    values: tuple[float, ...]


@dataclass(frozen=True)
class BenchResult:
    """Figures of one device. Those of an emulated device, or of the simulated NPU, say nothing of a phone."""

    name: str
    target: str
    device: DeviceFacts
    prompt_tokens: int
    new_tokens: int
    runs: int
    figures: tuple[Figure, ...]
    simulated: bool = False


_QUANTITIES: tuple[tuple[str, str, Callable[[RunRecord], float | None]], ...] = (
    ("prefill", "tok/s", lambda record: record.prefill_tokens_per_s),
    ("decode", "tok/s", lambda record: record.decode_tokens_per_s),
    ("time to first token", "s", lambda record: record.time_to_first_token_s),
    ("load", "s", lambda record: record.load_s),
    ("peak memory", "MB", lambda record: None if record.peak_memory_bytes is None else record.peak_memory_bytes / 1e6),
)


def bench(
    loaded: LoadedRecipe, workspace: Workspace, device: Device, options: BenchOptions, console: Console
) -> BenchResult:
    """Run what is deployed `options.runs + 1` times and report median and spread of the counted runs.

    Raises:
        EtcliError: whatever a run raises.
    """
    asked = RunOptions(
        max_new_tokens=options.max_new_tokens,
        target=options.target,
        bundle=options.bundle,
        runner_binary=options.runner_binary,
        stale_ok=options.stale_ok,
        ignore_stop_ids=True,
        stream=False,
    )
    records: list[RunRecord] = []
    with (
        console.step(f"bench {loaded.recipe.name} on {device.serial}"),
        console.progress("runs", options.runs + 1) as advance,
    ):
        for _ in range(options.runs + 1):
            records.append(run(loaded, workspace, device, asked, console))
            advance(1)
    counted = records[1:]
    last = counted[-1]
    return BenchResult(
        name=loaded.recipe.name,
        target=last.target,
        device=last.device,
        prompt_tokens=len(last.prompt_ids),
        new_tokens=len(last.tokens),
        runs=len(counted),
        figures=tuple(_figure(name, unit, [read(record) for record in counted]) for name, unit, read in _QUANTITIES),
        simulated=last.simulated,
    )


def _figure(name: str, unit: str, measured: Sequence[float | None]) -> Figure:
    values = tuple(value for value in measured if value is not None)
    if not values:
        return Figure(name, unit, None, None, None, ())
    return Figure(name, unit, statistics.median(values), min(values), max(values), values)
