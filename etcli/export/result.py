"""What export is asked for, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from etcli.export.aqlm.estimates import Needs
from etcli.export.plan import ExportPlan
from etcli.manifests.base import FileEntry
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.export_report import ChunkReport, LoweringReport, Quality


@dataclass(frozen=True)
class ExportOptions:
    """How to go about it.

    Attributes:
        jobs: chunks at once, None as cores and memory allow.
        only_chunks: export these alone, None for all.
        force: redo what is current.
        dry_run: plan only.
        executor: `dask://HOST:PORT` of a cluster that makes the chunks, None for processes on this machine.
        verify: run every method of every program and compare it with eager PyTorch.
        evaluate: measure on a text what quantising cost, `evaluate_text` or else the one that ships with etcli.
    """

    jobs: int | None = None
    only_chunks: tuple[int, ...] | None = None
    force: bool = False
    dry_run: bool = False
    executor: str | None = None
    verify: bool = True
    evaluate: bool = False
    evaluate_text: Path | None = None


@dataclass(frozen=True)
class PlannedProgram:
    """What a dry run tells of a program.

    Attributes:
        state: `there`, `template` (weights are put into a template) or `lowered`; one that is lowered makes the template of the others.
        memory_bytes: the most that making it is expected to take.
        bytes: its expected size in the bundle.
    """

    chunk: int
    layers: tuple[int, int]
    file: str
    methods: tuple[str, ...]
    bytes: int
    memory_bytes: int
    state: str


@dataclass(frozen=True)
class PlannedWork:
    """What an export would do now: `jobs` at once, with `disk_bytes` to be written; embedding and rope table are `tables_bytes`."""

    programs: tuple[PlannedProgram, ...]
    tables_there: bool
    tables_bytes: int
    jobs: int
    memory_bytes: int
    disk_bytes: int


@dataclass(frozen=True)
class ExportedFile:
    """A file of the bundle, with what it is for.

    `role` is `chunk 0`, `quantised graph 0`, `embedding`, `rope table`, `tokenizer`, `chat template`, `tokenizer settings` or `runner configuration`.
    """

    path: str
    size: int
    sha256: str
    role: str


@dataclass(frozen=True)
class ExportResult:
    """What came of it.

    Attributes:
        manifest: None after a dry run, or where `only_chunks` left chunks out, so that there is no whole bundle yet.
        folder: the bundle's folder.
        current: nothing had to be done.
        dry_run: nothing was written.
        plan: what the checkpoint and recipe come to; None where that was not looked at, because the bundle is current or the source of a
            dry run is not on this machine.
        work: of a dry run, what would be done.
        files: every file of the bundle but the manifest.
        chunks: how each chunk's programs went, those of this call and those finished earlier.
        lowerings: the lowerings of this call that made templates.
        missing_chunks: chunks without which there is no bundle.
        evaluation: what `ExportOptions.evaluate` found; None where it was not asked for or there is no whole bundle.
        quantising: of a dry run, what `model.quantize` takes before that; None where nothing is to be quantised.
        seconds: of this call.
    """

    manifest: BundleManifest | None
    folder: Path
    current: bool = False
    dry_run: bool = False
    plan: ExportPlan | None = None
    work: PlannedWork | None = None
    files: tuple[ExportedFile, ...] = ()
    chunks: tuple[ChunkReport, ...] = field(default=())
    lowerings: tuple[LoweringReport, ...] = ()
    missing_chunks: tuple[int, ...] = ()
    evaluation: Quality | None = None
    quantising: Needs | None = None
    seconds: float = 0.0


def exported_files(manifest: BundleManifest) -> tuple[ExportedFile, ...]:
    """Every file of a bundle but the manifest, with its role."""
    entries: list[tuple[str, FileEntry]] = [
        (f"chunk {chunk.index}", file) for chunk in manifest.chunks for file in chunk.files
    ]
    entries += [(f"quantised graph {index}", file) for index, file in enumerate(manifest.reference)]
    entries += [
        ("embedding", manifest.embedding),
        ("rope table", manifest.rope),
        ("tokenizer", manifest.tokenizer),
    ]
    if manifest.tokenizer.chat_template is not None:
        entries.append(("chat template", manifest.tokenizer.chat_template))
    if manifest.tokenizer.settings is not None:
        entries.append(("tokenizer settings", manifest.tokenizer.settings))
    entries.append(("runner configuration", manifest.runner_config))
    return tuple(ExportedFile(entry.path, entry.size, entry.sha256, role) for role, entry in entries)
