"""The pieces of a bundle that are not there yet, made on this machine or on a cluster, and kept in the store."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from etcli.common.errors import ExportError, UsageError
from etcli.common.files import remove_tree
from etcli.common.memory import available_bytes
from etcli.common.workspace import Workspace
from etcli.export.backends.base import Backend
from etcli.export.cluster import Cluster, cluster_address
from etcli.export.estimates import disk_bytes
from etcli.export.inputs import CALIBRATION, TABLES
from etcli.export.job import ChunkWork, Outcome
from etcli.export.neuron.tasks import npu_tasks
from etcli.export.operators import custom_operators, fewest_calls
from etcli.export.plan import ChunkPlan, ExportPlan
from etcli.export.pool import Pool, Task, check_memory, fitting
from etcli.export.result import ExportOptions
from etcli.export.source import remaining_adapter
from etcli.export.store import Store
from etcli.export.tasks import Tasks, make_tasks
from etcli.export.templates.cache import TemplateCache
from etcli.manifests.export_report import LoweringReport
from etcli.manifests.model import ModelConfig
from etcli.ops.needed import built_libraries
from etcli.output.console import Console
from etcli.output.units import bytes_text, counted
from etcli.recipe.loaded import LoadedRecipe
from etcli.toolchain.interpreter import worker_python


class Pieces:
    """Makes pieces for one export, which holds the workspace's lock. `lowerings` tells of those that made templates."""

    def __init__(
        self,
        loaded: LoadedRecipe,
        workspace: Workspace,
        options: ExportOptions,
        console: Console,
        backend: Backend,
        source: Path,
    ) -> None:
        self._loaded, self._workspace, self._options, self._console = loaded, workspace, options, console
        self._backend, self._source = backend, source
        self._store = Store(workspace.export_work)
        self.lowerings: list[LoweringReport] = []

    def make(
        self, plan: ExportPlan, model: ModelConfig, chosen: tuple[ChunkPlan, ...], keys: Mapping[str, str]
    ) -> set[str]:
        """Make what is not there yet; returns the files of programs made now."""
        asked = [program.file for chunk in chosen for program in chunk.programs]
        wanted = [*asked, TABLES]
        if plan.npu is not None:
            wanted += [CALIBRATION, *(chunk.reference for chunk in chosen)]
        missing = {place: keys[place] for place in wanted if self._store.find(keys[place]) is None}
        if missing:
            cache = TemplateCache()
            work = self._workspace.export_work
            self._check_operators(custom_operators(model, plan.cache), missing)
            verify = self._options.verify
            others = missing if plan.npu is None else {key: missing[key] for key in missing if key == TABLES}
            tasks = make_tasks(plan, model, self._backend, others, self._store, cache, work, verify=verify)
            if plan.npu is not None:
                tasks.tasks += npu_tasks(plan, model, self._backend, keys, missing, self._store, work, verify=verify)
            self._check_space(plan, missing, tasks.lowered)
            self._run(tasks, model, cache, kept=len(asked) - len(missing.keys() & set(asked)))
            remove_tree(tasks.folder)
            self._store.clear_running()
        return set(missing) & set(asked)

    def _run(self, tasks: Tasks, model: ModelConfig, cache: TemplateCache, *, kept: int) -> None:
        made = sum(isinstance(task.work, ChunkWork) for task in tasks.tasks)
        address = cluster_address(self._options.executor)
        if address is not None and self._loaded.recipe.export.python is not None:
            raise UsageError(
                "a cluster's workers run in the interpreter of their own machine, not in that of export.python",
                code="export.executor",
                hint="Start the Dask workers in the environment with MediaTek's packages and leave export.python out, or export on this machine.",
            )
        jobs = None if address else self._jobs(tasks.tasks)
        where = f"on the cluster {address}" if jobs is None else f"{jobs} at once"
        title = f"Exporting {counted(made, 'program')} for {self._backend.name}, {where}"
        title += f" ({kept} are finished)" if kept else ""
        with (
            self._console.step(title),
            self._console.progress("lowerings, programs and tables", len(tasks.tasks)) as advance,
        ):
            calls: dict[str, Any] = {
                "adapter": remaining_adapter(self._loaded),
                "begin": self._store.begin,
                "finished": functools.partial(self._finish, tasks, model, cache),
                "advance": advance,
            }
            if address is not None:
                advance.doing("the cluster's workers")
                Cluster(address, self._source, workspace=self._workspace.export_work, **calls).run(tasks.tasks)
            else:
                memory = None if self._options.jobs else available_bytes()
                python = worker_python(self._loaded)
                pool = Pool(jobs or 1, self._source, memory_bytes=memory, python=python, doing=advance.doing, **calls)
                pool.run(tasks.tasks)

    def _jobs(self, tasks: list[Task]) -> int:
        jobs = min(self._options.jobs or fitting(task.memory_bytes for task in tasks), len(tasks))
        check_memory(tasks, jobs, available_bytes(), self._console, chosen=self._options.jobs is not None)
        return jobs

    def _finish(self, tasks: Tasks, model: ModelConfig, cache: TemplateCache, task: Task) -> None:
        if task.key in tasks.lowerings:
            folder = self._store.running(task.key)
            self.lowerings.append(_lowering_report(task, Outcome.read(folder / Outcome.FILE)))
            tasks.installed(task, folder, cache)
            return
        outcome = self._store.finish(task.key)
        wanted = None
        if isinstance(task.work, ChunkWork) and self._backend.delegate:
            wanted = fewest_calls(task.work, model)
        for method, calls in outcome.delegate_calls.items():
            if wanted is not None and calls > wanted:
                self._console.warn(
                    f"{method} is {calls} delegate calls instead of {wanted}: it works, but slower",
                    code="export.partitions",
                )

    def _check_operators(self, operators: Collection[str], missing: Collection[str]) -> None:
        """Compile what verification runs now, rather than learn after minutes of lowering that it cannot be."""
        verified = self._options.verify and set(missing) - {TABLES, CALIBRATION}
        if verified and cluster_address(self._options.executor) is None:
            built_libraries(operators, self._console)

    def _check_space(self, plan: ExportPlan, missing: Collection[str], lowered: Collection[str]) -> None:
        needed = disk_bytes(plan, missing, lowered)
        free = shutil.disk_usage(self._workspace.export_work).free
        if needed > free:
            raise ExportError(
                f"the export needs about {bytes_text(needed)} in {self._workspace.home}, {bytes_text(free)} are free",
                code="export.no_space",
                hint="Free some space, or put the workspace on another disk (--workspace).",
            )


def _lowering_report(task: Task, outcome: Outcome) -> LoweringReport:
    return LoweringReport(
        title=task.title,
        seconds=outcome.seconds,
        peak_memory_bytes=outcome.peak_memory_bytes,
        weights_bytes=outcome.weights_bytes,
        note=outcome.note,
    )
