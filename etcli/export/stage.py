"""The export stage: a checkpoint and a recipe become a bundle. Never imports torch; workers do."""

from __future__ import annotations

import datetime
import functools
import os
import platform
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

import etcli
from etcli.checkpoint.base import Checkpoint
from etcli.checkpoint.opening import open_checkpoint
from etcli.checkpoint.source import fetch, peek
from etcli.common.errors import CheckpointError, EtcliError, ExportError, InterruptedByUser
from etcli.common.files import is_no_space
from etcli.common.hashing import value_sha256
from etcli.common.locks import exclusive
from etcli.common.memory import available_bytes
from etcli.common.workspace import Workspace
from etcli.export.assembly import Assembly, remove_leftovers, stop_sources, united_config
from etcli.export.backends.base import Backend, tolerance
from etcli.export.backends.registry import backend_for
from etcli.export.currency import bundle_stamp, current_bundle
from etcli.export.evaluation import evaluated, evaluation_ids, evaluation_text
from etcli.export.inputs import chunk_key, inputs_sha256, tables_key, tensor_hashes
from etcli.export.job import ChunkWork, Outcome, TablesWork
from etcli.export.plan import BASE_MEMORY, ChunkPlan, ExportPlan, check_chosen, chosen_chunks, make_plan
from etcli.export.pool import Pool, Task, fitting_jobs
from etcli.export.result import ExportedFile, ExportOptions, ExportResult, exported_files
from etcli.export.store import Store
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.export_report import ChunkReport, ExportReport
from etcli.manifests.model import ModelConfig
from etcli.output.console import Console
from etcli.output.units import bytes_text
from etcli.recipe.fingerprint import export_fingerprint
from etcli.recipe.fit import long_cache_warning, padded_vocabulary_remark
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import REPORT
from etcli.recipe.resolved import write_resolved
from etcli.recipe.sources import adapter_path, source_stamp
from etcli.tokenizer.base import Tokenizer
from etcli.tokenizer.opening import open_tokenizer

__all__ = ["ExportOptions", "ExportResult", "ExportedFile", "export"]

TABLES = -1
"""Where keys go by chunk index: the piece with embedding and rope table."""


def export(loaded: LoadedRecipe, workspace: Workspace, options: ExportOptions, console: Console) -> ExportResult:
    """Write the bundle of `loaded` into `workspace.bundle`, or find that it is current.

    Raises:
        RecipeError: a backend, precision or number of chunks that cannot be had.
        UsageError: a chunk in `options.only_chunks` that there is none of.
        CheckpointError: the source, its headers or its tokenizer are wrong.
        ExportError: a worker failed or was killed, its result differs from eager, or the workspace is full or not writable.
        InterruptedByUser: Ctrl-C. Workers have ended and finished chunks are kept, as after every failure; the old bundle stays as it was.
    """
    backend = backend_for(loaded)
    check_chosen(loaded.recipe.export.chunks, options.only_chunks)
    text = evaluation_text(options.evaluate_text) if options.evaluate else None
    if options.dry_run:
        return _dry_run(loaded, workspace, options)
    source = fetch(loaded, console)
    wait = functools.partial(console.note, f"waiting for another export into {workspace.home}")
    try:
        if not workspace.export_work.exists():
            _planned(loaded, source)  # what is refused here leaves no folder
        with exclusive(workspace.export_work / ".lock", on_wait=wait):
            # what is wrong with the text is said before the long work
            ids = None if text is None else evaluation_ids(open_tokenizer(source), text, options.evaluate_text)
            result = _Export(loaded, workspace, options, console, backend, source).run()
            return result if ids is None else evaluated(loaded, result, source, ids, console)
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


def _planned(loaded: LoadedRecipe, source: Path) -> tuple[Checkpoint, Tokenizer, ModelConfig, ExportPlan]:
    """What can be known and refused before anything is written."""
    checkpoint = open_checkpoint(source, adapter_path(loaded))
    tokenizer = open_tokenizer(source)
    model = united_config(checkpoint.config, tokenizer)
    return checkpoint, tokenizer, model, make_plan(loaded, model)


def _dry_run(loaded: LoadedRecipe, workspace: Workspace, options: ExportOptions) -> ExportResult:
    source = peek(loaded)
    if source is None:
        return ExportResult(None, workspace.bundle, dry_run=True)
    found = None if options.force else current_bundle(loaded, source, workspace.bundle)
    plan = make_plan(loaded, open_checkpoint(source, adapter_path(loaded)).config)
    return ExportResult(
        None if found is None else found[0], workspace.bundle, current=found is not None, dry_run=True, plan=plan
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
        self.backend, self.source = backend, source
        self.start, self.started = time.monotonic(), datetime.datetime.now(datetime.timezone.utc)
        self.store = Store(workspace.export_work)

    def run(self) -> ExportResult:
        remove_leftovers(self.workspace)
        self.store.clear_running()
        if not self.options.force:
            found = current_bundle(self.loaded, self.source, self.workspace.bundle)
            if found is not None:
                write_resolved(self.loaded, self.workspace.home / "bundle.recipe.yaml")
                return self._result(found[0], found[1].chunks, None, current=True)
        checkpoint, tokenizer, model, plan = _planned(self.loaded, self.source)
        chosen = chosen_chunks(plan, self.options.only_chunks)
        self._remarks(checkpoint, tokenizer, model)
        tensors = tensor_hashes(checkpoint, self.console)
        keys = self._keys(plan, model, tensors)
        fresh = self._make_pieces(plan, chosen, keys)
        outcomes = {index: self.store.find(key) for index, key in keys.items()}
        missing = tuple(index for index, outcome in outcomes.items() if outcome is None)
        whole = {index: outcome for index, outcome in outcomes.items() if outcome is not None}
        chunks = tuple(self._chunk_report(chunk, whole, fresh) for chunk in plan.chunks if chunk.index in whole)
        if missing:
            return ExportResult(
                None,
                self.workspace.bundle,
                plan=plan,
                chunks=chunks,
                missing_chunks=tuple(index for index in missing if index != TABLES),
                seconds=time.monotonic() - self.start,
            )
        manifest = self._assemble(plan, model, tokenizer, keys, whole, chunks, tensors, checkpoint.unused)
        self.store.keep_only(set(keys.values()))
        return self._result(manifest, chunks, plan, current=False)

    def _remarks(self, checkpoint: Checkpoint, tokenizer: Tokenizer, model: ModelConfig) -> None:
        if checkpoint.unused:
            names = ", ".join(checkpoint.unused[:3]) + (", ..." if len(checkpoint.unused) > 3 else "")
            self.console.warn(
                f"{len(checkpoint.unused)} tensors of the checkpoint are not used: {names}",
                code="export.unused_tensors",
            )
        long = long_cache_warning(self.loaded, model)
        if long is not None:
            self.console.warn(long, code="export.long_cache")
        for remark in checkpoint.remarks:
            self.console.warn(remark, code="checkpoint.remark")
        for remark in tokenizer.remarks:
            self.console.warn(remark, code="tokenizer.remark")
        padding = padded_vocabulary_remark(model, tokenizer.vocab_size)
        if padding is not None:
            self.console.detail(f"    {padding}")
        for stop, sources in stop_sources(model, tokenizer).items():
            self.console.detail(f"    stop id {stop}: {', '.join(sources)}")

    def _keys(self, plan: ExportPlan, model: ModelConfig, tensors: Mapping[str, str]) -> dict[int, str]:
        numbers = model.model_dump(mode="json", exclude={"bos_id", "stop_ids", "context_length"})
        keys = {chunk.index: chunk_key(plan, chunk, numbers, tensors) for chunk in plan.chunks}
        keys[TABLES] = tables_key(plan, numbers, tensors)
        return keys

    def _make_pieces(self, plan: ExportPlan, chosen: tuple[ChunkPlan, ...], keys: Mapping[int, str]) -> set[int]:
        """Make what is not there yet; returns the indices of chunks made now."""
        logs = self.workspace.export_work / "logs"
        tasks = []
        for chunk in chosen:
            if self.options.force:
                self.store.drop(keys[chunk.index])
            if self.store.find(keys[chunk.index]) is None:
                work = ChunkWork(
                    index=chunk.index,
                    first_layer=chunk.first_layer,
                    layers=chunk.layers,
                    head=chunk.head,
                    methods=chunk.methods,
                    backend=self.backend.name,
                    cache=plan.cache,
                    precision=plan.precision,
                    tolerance=tolerance(self.backend, plan.precision),
                )
                title = f"chunk {chunk.index}"
                log = logs / f"chunk_{chunk.index}.log"
                tasks.append(Task(keys[chunk.index], title, work, chunk.memory_bytes, log))
        fresh = {task.work.index for task in tasks if isinstance(task.work, ChunkWork)}
        if self.options.force and self.options.only_chunks is None:
            self.store.drop(keys[TABLES])
        if self.store.find(keys[TABLES]) is None:
            tables = TablesWork(positions=plan.positions, embedding=plan.embedding)
            memory = BASE_MEMORY + 2 * plan.embedding_bytes
            tasks.append(Task(keys[TABLES], "the embedding", tables, memory, logs / "tables.log"))
        if tasks:
            self._check_space(plan, fresh, tables=len(tasks) > len(fresh))
            self._run(tasks, kept=len(chosen) - len(fresh))
        return fresh

    def _run(self, tasks: list[Task], *, kept: int) -> None:
        fitting = fitting_jobs(tasks)
        jobs = min(self.options.jobs or fitting, len(tasks))
        largest = max(task.memory_bytes for task in tasks)
        available = available_bytes()
        if jobs * largest > available:
            self.console.warn(
                f"{jobs} workers may need {jobs * largest / 1e9:.1f} GB, {available / 1e9:.1f} GB of memory are available",
                code="export.memory",
            )
        made = sum(isinstance(task.work, ChunkWork) for task in tasks)
        title = f"Exporting {made} chunks for {self.backend.name}, {jobs} at once"
        title += f" ({kept} are finished)" if kept else ""
        with self.console.step(title), self.console.progress("chunks and tables", len(tasks)) as advance:
            pool = Pool(
                jobs,
                self.source,
                adapter=adapter_path(self.loaded),
                begin=self.store.begin,
                finished=self._finish,
                advance=advance,
            )
            pool.run(tasks)

    def _finish(self, task: Task) -> None:
        outcome = self.store.finish(task.key)
        for method, calls in outcome.delegate_calls.items():
            if self.backend.delegate is not None and calls != 1:
                self.console.warn(
                    f"{method} is {calls} delegate calls instead of one: it works, but slower", code="export.partitions"
                )

    def _check_space(self, plan: ExportPlan, fresh: set[int], *, tables: bool) -> None:
        # a chunk's weights stand twice on the disk while they are written
        needed = sum(2 * chunk.weights_bytes for chunk in plan.chunks if chunk.index in fresh)
        needed += plan.embedding_bytes + plan.rope_bytes if tables else 0
        free = shutil.disk_usage(self.workspace.export_work).free
        if needed > free:
            raise ExportError(
                f"the export needs about {bytes_text(needed)} in {self.workspace.home}, {bytes_text(free)} are free",
                code="export.no_space",
                hint="Free some space, or put the workspace on another disk (--workspace).",
            )

    def _assemble(
        self,
        plan: ExportPlan,
        model: ModelConfig,
        tokenizer: Tokenizer,
        keys: Mapping[int, str],
        outcomes: Mapping[int, Outcome],
        chunks: tuple[ChunkReport, ...],
        tensors: Mapping[str, str],
        unused: tuple[str, ...],
    ) -> BundleManifest:
        tensors_sha256 = value_sha256(dict(tensors))
        assembly = Assembly(self.workspace)
        try:
            for chunk in plan.chunks:
                piece = self.store.piece(keys[chunk.index])
                assembly.place(piece, outcomes[chunk.index].files[0].path, chunk.file)
            embedding, rope = outcomes[TABLES].files
            for entry in (embedding, rope):
                assembly.place(self.store.piece(keys[TABLES]), entry.path, entry.path)
            manifest = assembly.manifest(
                self.loaded,
                plan,
                model,
                assembly.tokenizer(tokenizer),
                {chunk.index: outcomes[chunk.index] for chunk in plan.chunks},
                (embedding, rope),
                inputs_sha256(export_fingerprint(self.loaded.recipe), tensors_sha256),
            )
            ExportReport(
                etcli=etcli.__version__,
                host=_host(),
                source=self.loaded.recipe.model.source,
                source_path=str(self.source),
                source_stamp=source_stamp(self.loaded, self.source),
                started=self.started.isoformat(timespec="seconds"),
                seconds=round(time.monotonic() - self.start, 3),
                chunks=chunks,
                unused_tensors=unused,
                stop_ids=stop_sources(model, tokenizer),
                tensors_sha256=tensors_sha256,
                bundle_stamp=bundle_stamp(manifest, assembly.folder),
            ).write(assembly.folder / REPORT)
            assembly.replace()
        finally:
            assembly.discard()
        write_resolved(self.loaded, self.workspace.home / "bundle.recipe.yaml")
        return manifest

    def _chunk_report(self, chunk: ChunkPlan, outcomes: Mapping[int, Outcome], fresh: set[int]) -> ChunkReport:
        outcome = outcomes[chunk.index]
        return ChunkReport(
            index=chunk.index,
            seconds=outcome.seconds,
            peak_memory_bytes=outcome.peak_memory_bytes,
            weights_bytes=outcome.weights_bytes,
            max_abs_error=max(outcome.errors.values(), default=None),
            reused=chunk.index not in fresh,
            delegate_calls=outcome.delegate_calls,
            float_errors=outcome.float_errors,
        )

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
            seconds=time.monotonic() - self.start,
        )


def _host() -> dict[str, object]:
    return {
        "system": platform.platform(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
    }
