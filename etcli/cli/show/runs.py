"""What a device answered and how fast, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etcli.cli.show.exports import bundle_table
from etcli.cli.show.inspections import QUALITIES
from etcli.output.console import Console
from etcli.output.units import bytes_text, counted, figure_text, rate_text, seconds_text

if TYPE_CHECKING:
    from etcli.manifests.bench import BenchReport
    from etcli.manifests.run_record import RunRecord
    from etcli.verbs.bench import Comparison
    from etcli.verbs.smoke import SmokeResult


def ran(console: Console, record: RunRecord) -> None:
    """The figures under a streamed answer."""
    console.print()
    console.print(_figures(record), style="dim")


def smoked(console: Console, result: SmokeResult) -> None:
    """The closing tables: files, stages, and the run."""
    from etcli.verbs.comparison import agreement

    console.print()
    bundle_table(console, result.bundle, result.bundle_files)
    rows = [
        (stage.name, "current" if stage.current else stage.outcome, seconds_text(stage.seconds))
        for stage in result.stages
    ]
    console.table("Stages", ("stage", "outcome", "time"), rows)
    device = result.device
    console.table(
        f"Run on {device.serial}{_caveat(device.emulated, result.simulated)}",
        ("what", "value"),
        [
            ("device", f"{device.model}, {device.soc}, {device.abi}, {device.os}"),
            ("target", result.target),
            ("sent", f"{bytes_text(result.sent_bytes)} ({bytes_text(result.skipped_bytes)} were there already)"),
            ("prompt", counted(len(result.prompt_ids), "token")),
            ("answer", f"{counted(len(result.tokens), 'token')}, ended by {result.stop_reason}"),
            ("prefill", rate_text(result.prefill_tokens_per_s)),
            ("decode", rate_text(result.decode_tokens_per_s)),
            ("time to first token", seconds_text(result.time_to_first_token_s)),
            ("load", seconds_text(result.load_s)),
            ("peak memory", bytes_text(result.peak_memory_bytes)),
            ("reference", agreement(result, len(result.tokens))),
            *((("weights", QUALITIES[result.quality]),) if result.quality is not None else ()),
        ],
    )
    console.print(f"smoke passed in {seconds_text(sum(stage.seconds for stage in result.stages))}", style="bold green")


def measured(console: Console, result: BenchReport) -> None:
    """Median and spread of each figure, and each run beside the heat of the device."""
    rows = [
        (
            figure.name,
            *(figure_text(value) for value in (figure.median, figure.low, figure.high)),
            "-" if figure.spread is None else f"{figure.spread * 100:.1f} %",
            figure.unit,
        )
        for figure in result.figures
    ]
    title = (
        f"{result.name} on {result.device.serial}{_caveat(result.device.emulated, result.simulated)}: "
        f"{counted(result.prompt_tokens, 'prompt token')}, {result.new_tokens} new, {counted(result.runs, 'run')} after {result.warm_up}"
    )
    console.table(title, ("figure", "median", "min", "max", "spread", "unit"), rows)
    throttled = [run.after.throttling for run in result.each if run.after.throttling]
    if throttled:
        console.warn(
            f"the device slowed itself down because of heat (Android's thermal status {max(throttled)} of 6) in {len(throttled)} of "
            f"{counted(result.runs, 'run')}; let it cool, or measure with --pause SECONDS",
            code="bench.throttled",
        )
    if result.memory.samples:
        highest = max(sample.resident_bytes for sample in result.memory.samples)
        console.note(
            f"memory of the first run, not counted: {len(result.memory.samples)} looks, at most {bytes_text(highest)}"
        )


def compared(console: Console, result: Comparison) -> None:
    """The ratio of each figure, and what else differs between the two reports."""
    from etcli.verbs.bench.page import ratio_text

    for path in result.ended_early:
        console.warn(f"{path} is of a benchmark that ended early", code="bench.ended_early")
    if result.alone:
        console.warn(f"only one of the documents has: {', '.join(result.alone)}", code="bench.device_missing")
    for pair in result.pairs:
        for difference in pair.differences:
            if difference in pair.unlike:
                console.warn(f"not comparable: the reports differ in {difference}", code="bench.unlike")
            else:
                console.warn(f"the reports differ in {difference}", code="bench.differs")
        rows = [
            (item.name, figure_text(item.a), figure_text(item.b), item.unit, ratio_text(item), item.verdict)
            for item in pair.figures
        ]
        title = f"{result.b.name} against {result.a.name} on {pair.b.device.serial}: above 1 the second is better"
        console.table(title, ("figure", "first", "second", "unit", "ratio", "verdict"), rows)


def _caveat(emulated: bool, simulated: bool) -> str:
    """Why figures are not a phone's, or nothing."""
    why = [*(["emulated"] if emulated else []), *(["simulated NPU"] if simulated else [])]
    return f" ({', '.join(why)}: rates say nothing of a phone)" if why else ""


def _figures(record: RunRecord) -> str:
    emulated = (", emulated" if record.device.emulated else "") + (", simulated NPU" if record.simulated else "")
    quality = "" if record.quality is None else f"; weights of {record.quality} quality"
    return (
        f"{counted(len(record.tokens), 'token')}, ended by {record.stop_reason}; prefill {rate_text(record.prefill_tokens_per_s)}, "
        f"decode {rate_text(record.decode_tokens_per_s)}, first token after {seconds_text(record.time_to_first_token_s)}, "
        f"load {seconds_text(record.load_s)}, peak {bytes_text(record.peak_memory_bytes)} on {record.device.serial} "
        f"({record.device.model}{emulated}){quality}"
    )
