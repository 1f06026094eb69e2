"""The runs of a benchmark: warm-up, then counted ones that go on to the last token, with the device's heat before and after each."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from etcli import __version__
from etcli.common.errors import EtcliError, RunError
from etcli.common.hashing import file_sha256
from etcli.common.workspace import Workspace
from etcli.device.base import Device
from etcli.device.lock import device_lock
from etcli.device.sensors import read_sensors
from etcli.manifests.bench import BenchReport, BenchRun, MemoryTrace
from etcli.manifests.run_record import RunRecord
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import MANIFEST
from etcli.run.events import AnyEvent, Prefill, Stats, Token
from etcli.run.stage import RunOptions, run
from etcli.verbs.bench.figures import figures_of
from etcli.verbs.bench.watching import watching


@dataclass(frozen=True)
class BenchOptions:
    """`runs` are counted after `warm_up` that are not; each generates `max_new_tokens`, stop ids ignored, `pause_s` seconds after the last.

    None of `prompt` stands for the recipe's. `runner_binary` as in `RunOptions`.
    """

    runs: int = 5
    warm_up: int = 1
    max_new_tokens: int = 32
    pause_s: float = 0.0
    prompt: str | None = None
    target: str | None = None
    bundle: Path | None = None
    runner_binary: Path | None = None
    stale_ok: bool = False


@dataclass
class _Heard:
    """What one run's events tell beyond its record."""

    token_s: list[float] = field(default_factory=list)
    prefill_chunk_s: tuple[float, ...] = ()
    stats: Stats | None = None

    def take(self, event: AnyEvent) -> None:
        if isinstance(event, Token) and event.t_s is not None:
            self.token_s.append(event.t_s)
        elif isinstance(event, Prefill):
            self.prefill_chunk_s = event.chunk_seconds
        elif isinstance(event, Stats):
            self.stats = event


def bench(
    loaded: LoadedRecipe, workspace: Workspace, device: Device, options: BenchOptions, console: Console
) -> BenchReport:
    """Run what is deployed and report median and spread of the counted runs.

    The memory of the runner over time is of the first warm-up, so that watching it costs no counted run anything.

    Raises:
        InterruptedByUser: Ctrl-C.
        EtcliError: whatever a run raises, and where one was ended by the clock (`run.timeout_s`). The `etcli_result` of either is the report
            of the runs that were counted until then, if there are any.
    """
    started = datetime.datetime.now(datetime.timezone.utc)
    counted: list[tuple[RunRecord, BenchRun]] = []
    memory = MemoryTrace()

    def report() -> BenchReport:
        last = counted[-1][0]
        each = tuple(measured for _, measured in counted)
        return BenchReport(
            name=loaded.recipe.name,
            runner=last.runner,
            target=last.target,
            device=last.device,
            measured_at=started.isoformat(timespec="seconds"),
            etcli=__version__,
            bundle_sha256=file_sha256((options.bundle or workspace.bundle) / MANIFEST),
            threads=last.threads,
            prompt_tokens=len(last.prompt_ids),
            new_tokens=len(last.tokens),
            warm_up=options.warm_up,
            runs=len(each),
            figures=figures_of(each),
            each=each,
            memory=memory,
            simulated=last.simulated,
            quality=last.quality,
            prompt_sha256=hashlib.sha256(",".join(map(str, last.prompt_ids)).encode()).hexdigest(),
            runner_sha256=last.runner_sha256,
            sampling=last.sampling,
        )

    total = options.warm_up + options.runs
    try:
        with (
            device_lock(device, f"bench of {loaded.recipe.name}", console),
            console.step(f"bench {loaded.recipe.name} on {device.serial}"),
            console.progress("runs", total) as advance,
            watching(device) as watch,
        ):
            for number in range(total):
                if number and options.pause_s:
                    device.pause(options.pause_s)
                warming = number < options.warm_up
                before = read_sensors(device)
                heard = _Heard()
                record = _run(
                    loaded,
                    workspace,
                    device,
                    options,
                    console,
                    [heard.take, *([watch.take] if not number and warming else [])],
                )
                if not number and warming:
                    memory = watch.trace()
                if not warming:
                    measured = _measured(record, heard).model_copy(
                        update={"before": before, "after": read_sensors(device)}
                    )
                    counted.append((record, measured))
                advance(1)
    except EtcliError as error:
        if counted:
            error.etcli_result = report()  # type: ignore[attr-defined]
        raise
    return report()


def _run(
    loaded: LoadedRecipe,
    workspace: Workspace,
    device: Device,
    options: BenchOptions,
    console: Console,
    listeners: list[Callable[[AnyEvent], None]],
) -> RunRecord:
    def tell(event: AnyEvent) -> None:
        for listener in listeners:
            listener(event)

    asked = RunOptions(
        prompt=options.prompt,
        max_new_tokens=options.max_new_tokens,
        target=options.target,
        bundle=options.bundle,
        runner_binary=options.runner_binary,
        stale_ok=options.stale_ok,
        ignore_stop_ids=True,
        stream=False,
        on_event=tell,
    )
    record = run(loaded, workspace, device, asked, console)
    if record.stop_reason == "timeout":
        raise RunError(
            f"a run was ended by run.timeout_s after {len(record.tokens)} of {options.max_new_tokens} tokens; there is nothing to count",
            code="bench.timeout",
            hint="Give it more time with --set run.timeout_s=SECONDS, or ask for fewer tokens with --max-new-tokens.",
        )
    return record


def _measured(record: RunRecord, heard: _Heard) -> BenchRun:
    stats = heard.stats
    return BenchRun(
        prefill_tokens_per_s=record.prefill_tokens_per_s,
        decode_tokens_per_s=record.decode_tokens_per_s,
        time_to_first_token_s=record.time_to_first_token_s,
        load_s=record.load_s,
        peak_memory_bytes=record.peak_memory_bytes,
        new_tokens=len(record.tokens),
        token_s=tuple(heard.token_s),
        prefill_chunk_s=heard.prefill_chunk_s,
        chunk_s=stats.chunk_seconds if stats else (),
        steps=stats.decode_steps if stats else 0,
    )
