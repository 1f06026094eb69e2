"""A program, a bundle, a build, a binary or a checkpoint, as people read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from etcli.cli.show.programs import program, provided
from etcli.output.console import Console
from etcli.output.units import bytes_text, counted, value_text

QUALITIES = {"demonstration": "of demonstration quality (model.quantize): an answer may well be wrong"}
"""What is said of a bundle's weights, by its `quality`."""

KINDS = {"ET_DYN": "library, or position-independent program", "ET_EXEC": "program for a fixed address"}
"""ELF's types of file in words."""

if TYPE_CHECKING:
    from pathlib import Path

    from etcli.build.audit.one_file import FileAudit
    from etcli.manifests.base import FileEntry
    from etcli.manifests.build import BuildManifest
    from etcli.manifests.bundle import BundleManifest
    from etcli.manifests.model import ModelConfig
    from etcli.verbs.inspect import AqlmFacts, Inspection
    from etcli.verbs.packed import PackedFacts


def inspected(console: Console, result: Inspection) -> None:
    """A program, a bundle, a build, a binary or a checkpoint."""
    for what in result.damaged:
        console.warn(f"damaged: {what}", code=f"{result.kind}.damaged")
    if result.program is not None:
        program(console, result.program, result.provision)
    elif result.bundle is not None:
        _bundle(console, result.bundle, result.packed)
        provided(console, result.provision)
    elif result.build is not None:
        _build(console, result.build)
    elif result.audit is not None:
        _elf(console, result.path, result.audit)
    elif result.checkpoint is not None:
        facts = result.checkpoint
        numbers = facts.config.model_dump(exclude={"rope", "aqlm"})
        rows = [(key, value_text(value)) for key, value in numbers.items()]
        rope = facts.config.rope
        scaled = "" if rope.kind == "default" else f", {rope.kind} scaling by {rope.factor:g}"
        rows += [
            ("rope", f"theta {rope.theta:g}{scaled}"),
            (
                "tensors",
                f"{facts.tensors} ({', '.join(f'{count} {dtype}' for dtype, count in sorted(facts.dtypes.items()))})",
            ),
            ("parameters", f"{facts.parameters / 1e6:.1f} M"),
            *([] if facts.aqlm is None else _aqlm(facts.aqlm, facts.config)),
            ("stored", bytes_text(facts.stored_bytes)),
            ("unused tensors", ", ".join(facts.unused) or "none"),
        ]
        console.table(f"Checkpoint {result.path} ({facts.format})", ("what", "value"), rows)
        for remark in facts.remarks:
            console.warn(remark, code="checkpoint.remark")


def _elf(console: Console, path: Path, audit: FileAudit) -> None:
    """The audit's table of one file, and what of it would fail the audit of a build."""
    elf = audit.elf
    rows = [
        ("target", audit.target or "none of etcli's"),
        ("machine", elf.machine),
        ("kind", KINDS.get(elf.kind, elf.kind)),
        ("interpreter", elf.interpreter or "-"),
        ("soname", elf.soname or "-"),
        ("needed", ", ".join(elf.needed) or "-"),
        ("of these not the system's", ", ".join(audit.staged) or "none"),
        ("run path", elf.run_path or "-"),
        ("smallest load alignment", f"{elf.load_alignment} bytes"),
        ("text relocations", "yes" if elf.text_relocations else "no"),
        ("runtimes inside", ", ".join(audit.runtimes) or "none"),
    ]
    if elf.android_api is not None:
        rows.append(("Android API level, NDK", f"{elf.android_api}, {elf.ndk or 'not told'}"))
    rows.append(("registers operators", operator_names(audit.registered.operators)))
    rows.append(("registers backends", ", ".join(audit.registered.backends) or "none"))
    console.table(f"ELF {path}", ("what", "value"), rows)
    for problem in audit.problems:
        console.warn(f"would not pass the audit of a build for {audit.target}: {problem.message}", code=problem.code)


def _aqlm(facts: AqlmFacts, config: ModelConfig) -> list[tuple[str, str]]:
    plain = config.aqlm.kept if config.aqlm else ()
    kept = [f"{name} ({counted(len(names), 'layer')})" for name, names in _by_linear(plain).items()]
    bits = f"{facts.code_bits:g} bits a weight, {facts.stored_bits:.2f} with codebooks and scales"
    return [
        ("quantised", f"{counted(facts.linears, 'linear')} by AQLM {facts.scheme}: {bits}"),
        ("linears left plain", ", ".join(kept) or "none"),
    ]


def _by_linear(names: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.split(".", 3)[3], []).append(name)
    return found


def _precisions(bundle: BundleManifest) -> str:
    group = "" if bundle.group_size is None else f" in groups of {bundle.group_size}"
    head = "" if bundle.head in (None, bundle.precision) else f", head {bundle.head}"
    scheme = "" if bundle.model.aqlm is None else f" {bundle.model.aqlm.scheme}"
    return f"{bundle.precision}{scheme}{group}{head}"


def _npu(bundle: BundleManifest) -> str:
    return f"{bundle.platform}, simulated: for no phone's NPU" if bundle.simulated else str(bundle.platform)


def _bundle(console: Console, bundle: BundleManifest, packed: PackedFacts | None) -> None:
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
        *((("NPU platform", _npu(bundle)),) if bundle.platform is not None else ()),
        ("shapes", shapes),
        ("stop ids", ", ".join(map(str, model.stop_ids))),
        (
            "versions",
            f"etcli {versions.etcli}, executorch {versions.executorch}, torch {versions.torch}, program {versions.program}",
        ),
        *((("weights", QUALITIES[bundle.quality]),) if bundle.quality is not None else ()),
        ("compared with eager", "yes" if bundle.verified else "no"),
        *((("packed", bytes_text(packed.size)),) if packed is not None else ()),
    ]
    console.table("Bundle", ("what", "value"), rows)
    if packed is None:
        console.table("Files", ("file", "size", "sha256"), file_rows(bundle.files()))
    else:
        hashes = {file.path: file.sha256[:12] for file in bundle.files()}
        console.table(
            "Files",
            ("file", "size", "packed", "sha256"),
            [
                (
                    member.path,
                    bytes_text(member.size),
                    bytes_text(member.stored),
                    hashes.get(member.path, "" if member.named else "travels along"),
                )
                for member in packed.members
            ],
        )
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
        *((("NPU", "simulated: for no phone's"),) if build.simulated else ()),
        ("operators", f"{len(build.operators):,}"),
        *((f"operators of {custom.name}", ", ".join(custom.operators)) for custom in build.custom_ops),
    ]
    console.table("Build", ("what", "value"), rows)
    console.table("Stage", ("file", "size", "sha256"), file_rows(build.stage))


def operator_names(names: Sequence[str], most: int = 12) -> str:
    """The names, or how many there are of each namespace where they are more than `most`."""
    if len(names) <= most:
        return ", ".join(names) or "none"
    spaces = Counter(name.partition("::")[0] for name in names)
    return ", ".join(f"{count} of {space}" for space, count in sorted(spaces.items()))


def file_rows(files: Sequence[FileEntry]) -> list[tuple[str, str, str]]:
    """Name, size and the start of the hash of each."""
    return [(file.path, bytes_text(file.size), file.sha256[:12]) for file in files]
