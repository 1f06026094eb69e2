"""What an export would do now, for `--dry-run`."""

from __future__ import annotations

from collections.abc import Collection

from etcli.export.estimates import disk_bytes, lowering_bytes, making_bytes, tables_bytes
from etcli.export.inputs import TABLES
from etcli.export.plan import ExportPlan, chosen_chunks
from etcli.export.pool import fitting
from etcli.export.result import ExportOptions, PlannedProgram, PlannedWork
from etcli.export.tasks import Wanted, wanted_programs
from etcli.export.templates.cache import TemplateCache
from etcli.manifests.model import ModelConfig


def planned_work(
    plan: ExportPlan, config: ModelConfig, there: Collection[str], cache: TemplateCache, options: ExportOptions
) -> PlannedWork:
    """The plan with what is there already: `there` are the finished pieces, by program file and `TABLES`.

    Raises:
        UsageError: `export.no_such_chunk`.
    """
    asked = {program.file for chunk in chosen_chunks(plan, options.only_chunks) for program in chunk.programs}
    missing = {place: place for place in (*asked, TABLES) if place not in there}
    states = _states(wanted_programs(plan, config, missing), cache)
    programs, needs = [], []
    for chunk in plan.chunks:
        for program in chunk.programs:
            state = states.get(program.file, "there" if program.file in there else "not asked for")
            estimate = {"lowered": lowering_bytes, "template": making_bytes}.get(state)
            memory = 0 if estimate is None else estimate(plan, chunk, program, config)
            needs.append(memory)
            programs.append(
                PlannedProgram(
                    chunk=chunk.index,
                    layers=(chunk.first_layer, chunk.first_layer + chunk.layers - 1),
                    file=program.file,
                    methods=tuple(method.name for method in program.methods),
                    bytes=chunk.weights_bytes,
                    memory_bytes=memory,
                    state=state,
                )
            )
    if TABLES in missing:
        needs.append(tables_bytes(plan, config))
    needs = sorted((need for need in needs if need), reverse=True)
    jobs = min(options.jobs or fitting(needs), max(1, len(needs)))
    return PlannedWork(
        programs=tuple(programs),
        tables_there=TABLES not in missing,
        tables_bytes=plan.embedding_bytes + plan.rope_bytes,
        jobs=jobs,
        memory_bytes=sum(needs[:jobs]),
        disk_bytes=disk_bytes(plan, missing),
    )


def _states(wanted: Collection[Wanted], cache: TemplateCache) -> dict[str, str]:
    states, graphs = {}, set()
    for item in wanted:
        lowered = not cache.has(item.template) and item.graph not in graphs
        if lowered:
            graphs.add(item.graph)
        states[item.program.file] = "lowered" if lowered else "template"
    return states
