"""The export stage: a checkpoint and a recipe become a bundle. Never imports torch; workers do."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

import etcli
from etcli.checkpoint.base import Checkpoint
from etcli.checkpoint.source import fetch
from etcli.common.errors import CheckpointError, EtcliError, ExportError, InterruptedByUser
from etcli.common.files import is_no_space
from etcli.common.hashing import value_sha256
from etcli.common.locks import exclusive, holder
from etcli.common.workspace import Workspace
from etcli.export.assembly import Assembly, remove_leftovers, stop_sources
from etcli.export.backends.base import Backend
from etcli.export.backends.registry import backend_for
from etcli.export.cluster import cluster_address
from etcli.export.currency import bundle_stamp, current_bundle
from etcli.export.dry_run import dry_run
from etcli.export.evaluation import evaluated, evaluation_ids, evaluation_text
from etcli.export.inputs import (
    TABLES,
    all_versions,
    inputs_sha256,
    piece_keys,
    recipe_inputs_sha256,
    remade_pieces,
    tensor_hashes,
)
from etcli.export.job import Outcome
from etcli.export.needs import check_needs
from etcli.export.pieces import Pieces
from etcli.export.plan import ExportPlan, ProgramPlan, check_chosen, chosen_chunks
from etcli.export.planned import planned, planned_from_source
from etcli.export.remarks import say_quality, say_remarks
from etcli.export.result import ExportedFile, ExportOptions, ExportResult, exported_files
from etcli.export.source import (
    checkpoint_source,
    warn_of_quality,
)
from etcli.export.store import Store
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.export_report import ChunkReport, ExportReport, LoweringReport
from etcli.manifests.model import ModelConfig
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import REPORT
from etcli.recipe.resolved import write_resolved
from etcli.recipe.sources import source_stamp
from etcli.tokenizer.base import Tokenizer
from etcli.tokenizer.opening import open_tokenizer

__all__ = ["ExportOptions", "ExportResult", "ExportedFile", "export"]


def export(loaded: LoadedRecipe, workspace: Workspace, options: ExportOptions, console: Console) -> ExportResult:
    """Write the bundle of `loaded` into `workspace.bundle`, or find that it is current.

    Raises:
        RecipeError: a backend, precision or number of chunks that cannot be had, or as `check_needs`.
        ToolError: as `check_needs`: before anything is fetched.
        UsageError: a chunk in `options.only_chunks` that there is none of.
        CheckpointError: the source, its headers or its tokenizer are wrong.
        ExportError: a worker failed or was killed, its result differs from eager, or the workspace is full or not writable.
        InterruptedByUser: Ctrl-C. Workers have ended and finished chunks are kept, as after every failure; the old bundle stays as it was.
    """
    backend = backend_for(loaded)
    check_chosen(loaded.recipe.export.chunks, options.only_chunks)
    cluster_address(options.executor)
    text = evaluation_text(options.evaluate_text) if options.evaluate else None
    warn_of_quality(loaded, console)
    check_needs(loaded, console)
    if options.dry_run:
        return dry_run(loaded, workspace, options, console)
    source = fetch(loaded, console)

    def wait() -> None:
        console.note(f"waiting for another process that uses {workspace.home}: {holder(workspace.export_lock)}")

    try:
        if not workspace.export_work.exists():
            planned_from_source(loaded, source)  # what is refused here leaves no folder
        with exclusive(workspace.export_lock, on_wait=wait, what=f"export of {loaded.recipe.name}"):
            # what is wrong with the text is said before the long work
            ids = None if text is None else evaluation_ids(open_tokenizer(source), text, options.evaluate_text)
            result = _Export(loaded, workspace, options, console, backend, source).run()
            return result if ids is None else evaluated(loaded, result, ids, console)
    except KeyboardInterrupt:
        raise InterruptedByUser(
            "export was interrupted",
            code="export.interrupted",
            hint="Finished chunks are kept: run the same command to go on.",
        ) from None
    except OSError as error:
        raise _refused(error, workspace, source) from error


def _refused(error: OSError, workspace: Workspace, source: Path) -> EtcliError:
    """What the system refused, as a problem of the checkpoint or of the workspace."""
    place = Path(error.filename) if isinstance(error.filename, str) else None
    if place is not None and place.is_relative_to(source):
        return CheckpointError(
            f"the checkpoint cannot be read: {error.strerror or error}",
            code="checkpoint.unreadable",
            hint="Check that it is still there and that you may read it.",
            file=place,
        )
    return ExportError(
        f"cannot write the export in {workspace.home}: {error.strerror or error}",
        code="export.no_space" if is_no_space(error) else "export.files",
        hint="Free some space there, or make it writable, or name another place with --workspace. Finished chunks are kept.",
        file=place,
    )


class _Export:
    """One export, its steps in order in `run`."""

    def __init__(
        self,
        loaded: LoadedRecipe,
        workspace: Workspace,
        options: ExportOptions,
        console: Console,
        backend: Backend,
        source: Path,
    ) -> None:
        self.loaded, self.workspace, self.options, self.console = loaded, workspace, options, console
        self.source = source
        self.start, self.started = time.monotonic(), datetime.datetime.now(datetime.timezone.utc)
        self.store = Store(workspace.export_work)
        self.backend = backend
        self.lowerings: list[LoweringReport] = []
        self.stages: dict[str, float] = {}

    def run(self) -> ExportResult:
        remove_leftovers(self.workspace)
        self.store.clear_running()
        if not self.options.force:
            found = current_bundle(self.loaded, self.source, self.workspace.bundle, verified=self.options.verify)
            if found is not None:
                write_resolved(self.loaded, self.workspace.home / "bundle.recipe.yaml")
                say_quality(self.loaded, found[0].quality, self.console)
                return self._result(found[0], found[1].chunks, None, current=True)
        path = self._checkpoint()
        checkpoint, tokenizer, model, plan = planned(self.loaded, path)
        chosen = chosen_chunks(plan, self.options.only_chunks)
        say_remarks(self.loaded, checkpoint, tokenizer, model, self.console)
        with self._stage("hashing"):
            tensors = tensor_hashes(checkpoint, self.console)
        remade = remade_pieces(plan, self.options.only_chunks) if self.options.force else set[str]()
        keys = piece_keys(plan, model, tensors, self.store, verify=self.options.verify, remade=remade)
        for place in remade:
            self.store.drop(keys[place])
        with self._stage("programs"):
            pieces = Pieces(self.loaded, self.workspace, self.options, self.console, self.backend, path)
            self.lowerings = pieces.lowerings
            fresh = pieces.make(plan, model, chosen, keys)
        outcomes = {place: self.store.find(key) for place, key in keys.items()}
        whole = {place: outcome for place, outcome in outcomes.items() if outcome is not None}
        reports = tuple(
            _program_report(program, whole[program.file], program.file not in fresh)
            for program in plan.programs
            if program.file in whole
        )
        if len(whole) < len(keys):
            missing = {program.chunk for program in plan.programs if program.file not in whole}
            return ExportResult(
                None,
                self.workspace.bundle,
                plan=plan,
                chunks=reports,
                lowerings=tuple(self.lowerings),
                missing_chunks=tuple(sorted(missing)),
                seconds=time.monotonic() - self.start,
            )
        manifest = self._assemble(plan, model, tokenizer, keys, whole, reports, tensors, checkpoint)
        self.store.keep_only(set(keys.values()))
        return self._result(manifest, reports, plan, current=False)

    def _checkpoint(self) -> Path:
        """What the chunks are made from: the source, or what `model.quantize` makes of it."""
        if self.loaded.recipe.model.quantize is None:
            return self.source
        with self._stage("quantising"):
            return checkpoint_source(self.loaded, self.console)

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.stages[name] = round(time.monotonic() - start, 3)

    def _assemble(
        self,
        plan: ExportPlan,
        model: ModelConfig,
        tokenizer: Tokenizer,
        keys: Mapping[str, str],
        outcomes: Mapping[str, Outcome],
        chunks: tuple[ChunkReport, ...],
        tensors: Mapping[str, str],
        checkpoint: Checkpoint,
    ) -> BundleManifest:
        tensors_sha256 = value_sha256(dict(tensors))
        assembly = Assembly(self.workspace)
        try:
            for program in plan.programs:
                piece = self.store.piece(keys[program.file])
                assembly.place(piece, outcomes[program.file].files[0].path, program.file)
            embedding, rope = outcomes[TABLES].files
            for entry in (embedding, rope):
                assembly.place(self.store.piece(keys[TABLES]), entry.path, entry.path)
            reference = []
            for chunk in plan.chunks if plan.npu is not None else ():
                file = outcomes[chunk.reference].files[0]
                assembly.place(self.store.piece(keys[chunk.reference]), file.path, chunk.reference)
                reference.append(file.model_copy(update={"path": chunk.reference}))
            manifest = assembly.manifest(
                self.loaded,
                plan,
                model,
                assembly.tokenizer(tokenizer),
                {program.file: outcomes[program.file] for program in plan.programs},
                (embedding, rope),
                tuple(reference),
                inputs_sha256(recipe_inputs_sha256(self.loaded), tensors_sha256),
                checkpoint.quality,
            )
            ExportReport(
                etcli=etcli.__version__,
                versions=all_versions(),
                host=_host(),
                source=self.loaded.recipe.model.source,
                source_path=str(self.source),
                source_stamp=source_stamp(self.loaded, self.source),
                started=self.started.isoformat(timespec="seconds"),
                seconds=round(time.monotonic() - self.start, 3),
                stages=self.stages,
                lowerings=tuple(self.lowerings),
                chunks=chunks,
                unused_tensors=checkpoint.unused,
                stop_ids=stop_sources(model, tokenizer),
                tensors_sha256=tensors_sha256,
                bundle_stamp=bundle_stamp(manifest, assembly.folder),
            ).write(assembly.folder / REPORT)
            assembly.replace()
        finally:
            assembly.discard()
        write_resolved(self.loaded, self.workspace.home / "bundle.recipe.yaml")
        return manifest

    def _result(
        self, manifest: BundleManifest, chunks: tuple[ChunkReport, ...], plan: ExportPlan | None, *, current: bool
    ) -> ExportResult:
        return ExportResult(
            manifest,
            self.workspace.bundle,
            current=current,
            plan=plan,
            files=exported_files(manifest),
            chunks=chunks,
            lowerings=tuple(self.lowerings),
            seconds=time.monotonic() - self.start,
        )


def _program_report(program: ProgramPlan, outcome: Outcome, reused: bool) -> ChunkReport:
    return ChunkReport(
        index=program.chunk,
        file=program.file,
        made=outcome.made,
        note=outcome.note,
        seconds=outcome.seconds,
        peak_memory_bytes=outcome.peak_memory_bytes,
        weights_bytes=outcome.weights_bytes,
        max_abs_error=max(outcome.errors.values(), default=None),
        errors=outcome.errors,
        reused=reused,
        delegate_calls=outcome.delegate_calls,
        float_errors=outcome.float_errors,
    )


def _host() -> dict[str, object]:
    return {
        "system": platform.platform(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
    }
