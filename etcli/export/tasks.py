"""What is to be done for the programs of a bundle that are not there yet: as few lowerings as there are graphs, one task a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etcli.common.files import remove_tree
from etcli.common.hashing import value_sha256
from etcli.export.backends.base import Backend, tolerance
from etcli.export.estimates import lowering_bytes, making_bytes, tables_bytes
from etcli.export.inputs import TABLES, graph_key
from etcli.export.job import PROGRAM, ChunkWork, LowerWork, TablesWork, Variant
from etcli.export.plan import ChunkPlan, ExportPlan, ProgramPlan
from etcli.export.pool import Task
from etcli.export.store import Store
from etcli.export.templates.cache import TemplateCache
from etcli.manifests.model import ModelConfig


@dataclass
class Tasks:
    """The tasks of one export, in the order in which they are best begun.

    `lowerings` are those that make templates, with the cache's key of each template by its file's name; they have no piece of their own.
    `lowered` are the files of the programs that come of them.
    """

    tasks: list[Task] = field(default_factory=list)
    lowerings: dict[str, dict[str, str]] = field(default_factory=dict)
    lowered: list[str] = field(default_factory=list)
    folder: Path = Path()

    def installed(self, task: Task, folder: Path, cache: TemplateCache) -> None:
        """Take the templates that a lowering left in `folder` to where this export's workers and later exports find them."""
        for name, key in self.lowerings[task.key].items():
            if (folder / name).exists():
                (folder / name).rename(template_file(self.folder, key))
                cache.keep(key, template_file(self.folder, key))


@dataclass(frozen=True)
class Wanted:
    """A program to be made: the key of its piece, of its graph, and of its template."""

    chunk: ChunkPlan
    program: ProgramPlan
    key: str
    graph: str
    template: str


def make_tasks(
    plan: ExportPlan,
    config: ModelConfig,
    backend: Backend,
    missing: Mapping[str, str],
    store: Store,
    cache: TemplateCache,
    work: Path,
    *,
    verify: bool,
) -> Tasks:
    """Tasks for the pieces `missing` (key by program file, or `TABLES`) of an export with working folder `work`."""
    found = Tasks(folder=work / "templates")
    remove_tree(found.folder)
    found.folder.mkdir(parents=True)
    wanted = wanted_programs(plan, config, missing)
    groups = to_be_lowered(wanted, lambda key: cache.take(key, template_file(found.folder, key)))
    lowered_by = _add_lowerings(found, plan, config, backend, groups, work)
    for item in sorted(wanted, key=lambda item: item.template in lowered_by):  # first those that wait for nothing
        lowering = lowered_by.get(item.template)
        network = _network(plan, backend, item)
        memory = program_memory(plan, config, item, waits=lowering is not None)
        chunk_work = ChunkWork(
            **network,
            tolerance=tolerance(backend, plan.precision),
            verify=verify,
            lowered=None if lowering != _lowering_key(item) else str(store.running(lowering) / PROGRAM),
            template=str(template_file(found.folder, item.template)),
        )
        after = () if lowering is None else (lowering,)
        found.tasks.append(Task(item.key, _title(item), chunk_work, memory, _log(work, item), after))
    if TABLES in missing:
        tables = TablesWork(positions=plan.positions, embedding=plan.embedding)
        log = work / "logs" / "tables.log"
        found.tasks.append(Task(missing[TABLES], "the embedding", tables, tables_bytes(plan, config), log))
    return found


def program_memory(plan: ExportPlan, config: ModelConfig, item: Wanted, *, waits: bool) -> int:
    """What making a program may take. One that waits for a lowering is lowered itself, should that leave no template."""
    memory = making_bytes(plan, item.chunk, item.program, config)
    return max(memory, lowering_bytes(plan, item.chunk, item.program, config)) if waits else memory


def to_be_lowered(wanted: Iterable[Wanted], has_template: Callable[[str], bool]) -> list[list[Wanted]]:
    """The graphs that lack templates: for each, a program of each template, the first of which is to be lowered."""
    groups: dict[str, dict[str, Wanted]] = {}
    for item in wanted:
        group = groups.setdefault(item.graph, {})
        if item.template not in group and not has_template(item.template):
            group[item.template] = item
    return [list(group.values()) for group in groups.values() if group]


def template_file(folder: Path, key: str) -> Path:
    """Where this export's workers find a template."""
    return folder / f"{key}.template"


def _add_lowerings(
    found: Tasks,
    plan: ExportPlan,
    config: ModelConfig,
    backend: Backend,
    groups: Iterable[Sequence[Wanted]],
    work: Path,
) -> dict[str, str]:
    """Add a lowering for each of `groups`; which lowering each template comes from."""
    tasks, lowered_by = [], {}
    for group in groups:
        first = group[0]
        key = _lowering_key(first)
        files = {f"{number}.template": item for number, item in enumerate(group)}
        variants = tuple(
            Variant(file=file, names=tuple(method.name for method in item.program.methods))
            for file, item in files.items()
        )
        lower = LowerWork(**_network(plan, backend, first), variants=variants)
        memory = lowering_bytes(plan, first.chunk, first.program, config)
        log = work / "logs" / f"lower_{_log(work, first).name}"
        tasks.append(Task(key, f"the graph of {_title(first)}", lower, memory, log))
        found.lowerings[key] = {file: item.template for file, item in files.items()}
        lowered_by.update({item.template: key for item in group})
        found.lowered.append(first.program.file)
    found.tasks += sorted(tasks, key=lambda task: task.memory_bytes, reverse=True)
    return lowered_by


def wanted_programs(plan: ExportPlan, config: ModelConfig, missing: Mapping[str, str]) -> list[Wanted]:
    """The programs whose files are in `missing`, which gives the keys of their pieces."""
    found = []
    for chunk in plan.chunks:
        for program in chunk.programs:
            if program.file in missing:
                graph = graph_key(plan, chunk, program, config)
                lengths = [len(method.name) for method in program.methods]
                template = value_sha256({"graph": graph, "names": lengths})
                found.append(Wanted(chunk, program, missing[program.file], graph, template))
    return found


def _lowering_key(item: Wanted) -> str:
    return f"lower-{item.key}"


def _network(plan: ExportPlan, backend: Backend, item: Wanted) -> dict[str, Any]:
    chunk = item.chunk
    return {
        "index": chunk.index,
        "first_layer": chunk.first_layer,
        "layers": chunk.layers,
        "head": chunk.head,
        "methods": item.program.methods,
        "backend": backend.name,
        "cache": plan.cache,
        "precision": plan.precision,
    }


def _title(item: Wanted) -> str:
    if len(item.chunk.programs) == 1:
        return f"chunk {item.chunk.index}"
    return f"chunk {item.chunk.index} ({item.program.methods[0].shape})"


def _log(work: Path, item: Wanted) -> Path:
    shape = "" if len(item.chunk.programs) == 1 else f"_{item.program.methods[0].shape}"
    return work / "logs" / f"chunk_{item.chunk.index}{shape}.log"
