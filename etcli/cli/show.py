"""Results as people read them: one function a verb, each prints what its verb returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from etcli.output.console import Console
from etcli.output.units import bytes_text, counted, figure_text, rate_text, seconds_text, value_text

if TYPE_CHECKING:
    from pathlib import Path

    from etcli.build.stage import BuildResult
    from etcli.deploy.stage import DeployResult
    from etcli.export.result import PlannedWork
    from etcli.export.stage import ExportResult
    from etcli.manifests.base import FileEntry
    from etcli.manifests.build import BuildManifest
    from etcli.manifests.bundle import BundleManifest
    from etcli.manifests.run_record import RunRecord
    from etcli.pte.facts import ProgramFacts
    from etcli.recipe.support import ListedRecipe
    from etcli.verbs.bench import BenchResult
    from etcli.verbs.devices import DeviceInfo, ListedDevice
    from etcli.verbs.doctor import Diagnosis
    from etcli.verbs.inspect import Inspection
    from etcli.verbs.smoke import SmokeResult


def exported(console: Console, result: ExportResult) -> None:
    """The files of the bundle, or the plan."""
    if result.dry_run or result.manifest is None:
        if result.work is not None:
            _planned(console, result.folder, result.work)
            if result.current:
                console.print(f"{result.folder} is current", style="green")
        if result.missing_chunks:
            total = "" if result.plan is None else f" of {len(result.plan.chunks)}"
            names = ", ".join(f"chunk {index}" for index in result.missing_chunks)
            console.print(f"{len(result.missing_chunks)}{total} chunks are still to be exported: {names}")
        return
    console.table(
        f"Bundle {result.folder}",
        ("file", "size", "sha256", "role"),
        [(file.path, bytes_text(file.size), file.sha256[:12], file.role) for file in result.files],
    )
    _quality(console, result)
    console.print(
        f"{result.folder} is current" if result.current else f"exported in {seconds_text(result.seconds)}",
        style="green",
    )


def _quality(console: Console, result: ExportResult) -> None:
    """What quantising cost: each chunk's error against float32, and the evaluation where there was one."""
    lossy = [(chunk, max(chunk.float_errors.values())) for chunk in result.chunks if chunk.float_errors]
    if lossy:
        # with one file a method, a chunk has several programs
        several = len({chunk.index for chunk, _ in lossy}) < len(lossy)
        rows = [(chunk.file if several else chunk.index, f"{error:.3%}") for chunk, error in lossy]
        what = "program" if several else "chunk"
        console.table("Error against float32 on random inputs", (what, "root mean square"), rows)
    found = result.evaluation
    if found is not None:
        figures = [
            ("perplexity, float32", f"{found.perplexity_float:.3f}"),
            ("perplexity, as exported", f"{found.perplexity:.3f}"),
            ("same first choice", f"{found.top1_agreement:.1%}"),
            ("mean divergence (KL)", f"{found.mean_kl:.3g} nats"),
        ]
        if found.chunk_errors:
            errors = ", ".join(f"{error:.1%}" for error in found.chunk_errors)
            figures.append(("error of each chunk on its own", errors))
        console.table(f"Evaluation over {counted(found.positions, 'position')}", ("what", "value"), figures)


def _planned(console: Console, folder: Path, work: PlannedWork) -> None:
    rows = [
        (
            program.file,
            f"{program.layers[0]}-{program.layers[1]}",
            " ".join(name.split("_")[-2] for name in program.methods),  # NAME_<T>t<C>c_CHUNK
            bytes_text(program.bytes),
            bytes_text(program.memory_bytes) if program.memory_bytes else "-",
            program.state,
        )
        for program in work.programs
    ]
    console.table(f"Plan for {folder}", ("file", "layers", "shapes", "size", "memory", "how"), rows)
    tables = "there" if work.tables_there else "to be written"
    console.print(f"embedding and rope table: {bytes_text(work.tables_bytes)}, {tables}")
    console.print(
        f"{counted(work.jobs, 'worker')} at once, up to {bytes_text(work.memory_bytes)} of memory together; "
        f"up to {bytes_text(work.disk_bytes)} on the disk"
    )


def built(console: Console, result: BuildResult) -> None:
    """What is staged, as the audit saw it, or the plan."""
    if result.manifest is None:
        for line in result.plan:
            console.print(line)
        console.print(str(result.folder))
        return
    staged = [
        (file.path, bytes_text(file.size), file.elf.machine if file.elf else "", file.reason.split(" by ")[0])
        for file in result.manifest.stage
    ]
    console.table(f"Stage {result.folder / 'stage'}", ("file", "size", "machine", "reason"), staged)
    console.print(
        f"{result.folder} is current" if result.current else f"{result.manifest.target}: built and audited",
        style="green",
    )


def inspected(console: Console, result: Inspection) -> None:
    """A program, a bundle, a build, a binary or a checkpoint."""
    if result.program is not None:
        _program(console, result.program)
    elif result.bundle is not None:
        _bundle(console, result.bundle)
    elif result.build is not None:
        _build(console, result.build)
    elif result.elf is not None:
        elf = result.elf
        rows = [
            ("machine", elf.machine),
            ("interpreter", elf.interpreter or "-"),
            ("soname", elf.soname or "-"),
            ("needed", ", ".join(elf.needed)),
            ("run path", elf.run_path or "-"),
            ("smallest load alignment", elf.load_alignment),
        ]
        console.table(f"ELF {result.path}", ("what", "value"), rows)
    elif result.checkpoint is not None:
        facts = result.checkpoint
        rows = [(key, value_text(value)) for key, value in facts.config.model_dump().items() if key != "rope"]
        rope = facts.config.rope
        scaled = "" if rope.kind == "default" else f", {rope.kind} scaling by {rope.factor:g}"
        rows += [
            ("rope", f"theta {rope.theta:g}{scaled}"),
            (
                "tensors",
                f"{facts.tensors} ({', '.join(f'{count} {dtype}' for dtype, count in sorted(facts.dtypes.items()))})",
            ),
            ("parameters", f"{facts.parameters / 1e6:.1f} M"),
            ("stored", bytes_text(facts.stored_bytes)),
            ("unused tensors", ", ".join(facts.unused) or "none"),
        ]
        console.table(f"Checkpoint {result.path} ({facts.format})", ("what", "value"), rows)
        for remark in facts.remarks:
            console.warn(remark, code="checkpoint.remark")


def _program(console: Console, program: ProgramFacts) -> None:
    console.print(
        f"{program.path}: {program.identifier}, schema version {program.version}, {bytes_text(program.size)} "
        f"({bytes_text(program.program_size)} program, {counted(len(program.segments), 'segment')}, {len(program.named_data)} named data)"
    )
    for method in program.methods:
        rows = [
            (
                f"{direction} {index}",
                value.dtype or value.kind,
                " x ".join(map(str, value.shape)),
                "planned" if value.planned else "by the caller",
            )
            for direction, values in (("input", method.inputs), ("output", method.outputs))
            for index, value in enumerate(values)
        ]
        console.table(f"Method {method.name}", ("tensor", "type", "shape", "memory"), rows)
        for delegate in method.delegates:
            console.print(
                f"  {delegate.backend}: {bytes_text(delegate.processed_size)}, called {counted(delegate.calls, 'time')}"
            )
        operators = ", ".join(f"{operator.name} x{operator.calls}" for operator in method.operators) or "none"
        console.print(f"  operators outside delegates: {operators}")
        planned = ", ".join(bytes_text(size) for size in method.planned_buffers) or "none"
        console.print(f"  planned memory: {planned}; {counted(method.instructions, 'instruction')}")


def _precisions(bundle: BundleManifest) -> str:
    group = "" if bundle.group_size is None else f" in groups of {bundle.group_size}"
    head = "" if bundle.head in (None, bundle.precision) else f", head {bundle.head}"
    return f"{bundle.precision}{group}{head}"


def _bundle(console: Console, bundle: BundleManifest) -> None:
    model = bundle.model
    shapes = ", ".join(str(shape) for shape in bundle.shapes)
    versions = bundle.versions
    rows = [
        ("name", bundle.name),
        (
            "model",
            f"{model.architecture}, {counted(model.num_layers, 'layer')}, hidden {model.hidden_size}, vocabulary {model.vocab_size}",
        ),
        ("backend", f"{bundle.backend}, {_precisions(bundle)}, {bundle.layout}, cache {bundle.cache}"),
        ("shapes", shapes),
        ("stop ids", ", ".join(map(str, model.stop_ids))),
        (
            "versions",
            f"etcli {versions.etcli}, executorch {versions.executorch}, torch {versions.torch}, program {versions.program}",
        ),
        ("compared with eager", "yes" if bundle.verified else "no"),
    ]
    console.table("Bundle", ("what", "value"), rows)
    console.table("Files", ("file", "size", "sha256"), _files(bundle.files()))
    for chunk in bundle.chunks:
        for file in chunk.files:
            for method in file.methods:
                needs = ", ".join((*method.backends, *method.operators)) or "nothing"
                last = chunk.first_layer + chunk.layers - 1
                console.print(f"  chunk {chunk.index} (layers {chunk.first_layer}-{last}) {method.name}: needs {needs}")


def _build(console: Console, build: BuildManifest) -> None:
    rows = [
        ("name", build.name),
        ("target", f"{build.target} ({build.machine}, {build.build_type})"),
        ("executorch", f"{build.executorch_version}, {build.executorch_provider}"),
        ("reads programs", build.program),
        ("compiler", build.compiler),
        ("cmake", build.cmake),
        ("backends", ", ".join(build.backends) or "none"),
        ("operators", f"{len(build.operators):,}"),
        ("custom operators", ", ".join(build.custom_ops) or "none"),
    ]
    console.table("Build", ("what", "value"), rows)
    console.table("Stage", ("file", "size", "sha256"), _files(build.stage))


def deployed(console: Console, result: DeployResult) -> None:
    """What was sent, kept and removed."""
    if result.dry_run:
        # why a file belongs to the deployment at all is in the JSON document: its text is longer than a terminal
        rows = [(file.path, bytes_text(file.size), file.action, file.why) for file in result.files]
        console.table(f"Plan for {result.serial}:{result.folder}", ("file", "size", "action", "why"), rows)
        for path in result.removed:
            console.print(f"would remove {path}")
        return
    if result.current:
        console.print(f"{result.serial}:{result.folder} is current: nothing sent")
        return
    console.print(
        f"{result.serial}:{result.folder}  sent {counted(result.sent_files, 'file')}, {bytes_text(result.sent_bytes)} "
        f"in {seconds_text(result.seconds)}; {bytes_text(result.skipped_bytes)} were there already"
    )


def ran(console: Console, record: RunRecord) -> None:
    """The figures under a streamed answer."""
    console.print()
    console.print(_figures(record), style="dim")


def smoked(console: Console, result: SmokeResult) -> None:
    """The closing tables: files, stages, and the run."""
    from etcli.verbs.comparison import agreement

    console.print()
    console.table(f"Bundle {result.bundle}", ("file", "size", "sha256"), _files(result.bundle_files))
    rows = [
        (stage.name, "current" if stage.current else stage.outcome, seconds_text(stage.seconds))
        for stage in result.stages
    ]
    console.table("Stages", ("stage", "outcome", "time"), rows)
    device = result.device
    console.table(
        f"Run on {device.serial}{' (emulated: rates say nothing of a phone)' if device.emulated else ''}",
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
        ],
    )
    console.print(f"smoke passed in {seconds_text(sum(stage.seconds for stage in result.stages))}", style="bold green")


def measured(console: Console, result: BenchResult) -> None:
    """Median and spread of each figure."""
    emulated = " (emulated: rates say nothing of a phone)" if result.device.emulated else ""
    rows = [
        (
            figure.name,
            *(figure_text(value) for value in (figure.median, figure.low, figure.high)),
            figure.unit,
        )
        for figure in result.figures
    ]
    title = (
        f"{result.name} on {result.device.serial}{emulated}: {counted(result.prompt_tokens, 'prompt token')}, "
        f"{result.new_tokens} new, {counted(result.runs, 'run')}"
    )
    console.table(title, ("figure", "median", "min", "max", "unit"), rows)


def needs(console: Console, result: Diagnosis) -> None:
    """Each need, what was found, and how to get what is missing."""
    console.print(f"{result.recipe} for {result.target}", style="italic")
    width = max(len(need.status) for need in result.needs)
    for need in result.needs:
        # a list and not a table: paths and messages are long, and people copy them
        console.print(f"{need.status:<{width}}  {need.name}{f': {need.version}' if need.version else ''}  ({need.why})")
        if need.where:
            console.print(f"{'':<{width}}  {need.where}", style="dim")
    for need in result.needs:
        if need.hint and need.status == "fetched later":
            console.print(f"{need.name}: {need.hint}")
    if not result.missing:
        console.print("nothing is missing", style="green")


def recipes(console: Console, listed: Sequence[ListedRecipe]) -> None:
    """The built-in recipes, those that this version refuses marked with the reason."""
    console.table(
        "Built-in recipes",
        ("name", "summary", "supported"),
        [
            (item.name, item.summary, "yes" if item.supported else f"not yet: {', '.join(item.refused)}")
            for item in listed
        ],
    )
    for item in listed:
        for need in item.needs:
            console.print(f"{item.name} needs: {need}")


def devices(console: Console, listed: Sequence[ListedDevice]) -> None:
    """Every device and its state."""
    if not listed:
        console.print("no device; connect a phone, or: etcli device start")
        return
    # the ABI is left to `device info`, so that names stay whole in 80 columns
    rows = [(item.serial or "-", item.name or "-", item.state, item.model, item.soc) for item in listed]
    console.table("Devices", ("serial", "name", "state", "model", "SoC"), rows, names=2)


def device(console: Console, info: DeviceInfo) -> None:
    """One device in detail."""
    facts = info.facts
    console.table(
        facts.serial,
        ("what", "value"),
        [
            ("model", facts.model),
            ("SoC", facts.soc),
            ("ABIs", ", ".join(info.abis)),
            ("system", facts.os),
            ("emulated", "yes" if facts.emulated else "no"),
            ("memory", f"{bytes_text(info.memory_available_bytes)} available of {bytes_text(info.memory_total_bytes)}"),
            ("free in /data/local/tmp", bytes_text(info.free_bytes)),
            ("targets", ", ".join(info.targets) or "none"),
        ],
    )


def _files(files: Sequence[FileEntry]) -> list[tuple[str, str, str]]:
    return [(file.path, bytes_text(file.size), file.sha256[:12]) for file in files]


def _figures(record: RunRecord) -> str:
    emulated = ", emulated" if record.device.emulated else ""
    return (
        f"{counted(len(record.tokens), 'token')}, ended by {record.stop_reason}; prefill {rate_text(record.prefill_tokens_per_s)}, "
        f"decode {rate_text(record.decode_tokens_per_s)}, first token after {seconds_text(record.time_to_first_token_s)}, "
        f"load {seconds_text(record.load_s)}, peak {bytes_text(record.peak_memory_bytes)} on {record.device.serial} "
        f"({record.device.model}{emulated})"
    )
