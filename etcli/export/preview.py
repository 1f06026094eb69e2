"""What an export would do now, for `--dry-run`."""

from __future__ import annotations

from collections.abc import Collection

from etcli.export.estimates import calibration_bytes, disk_bytes, lowering_bytes, program_bytes, tables_bytes
from etcli.export.inputs import CALIBRATION, TABLES
from etcli.export.plan import ExportPlan, chosen_chunks
from etcli.export.pool import fitting
from etcli.export.result import ExportOptions, PlannedProgram, PlannedWork
from etcli.export.tasks import program_memory, to_be_lowered, wanted_programs
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
    wanted = wanted_programs(plan, config, missing)
    # programs for the NPU are compiled each by itself
    groups = [] if plan.npu is not None else to_be_lowered(wanted, cache.has)
    lowered = {group[0].program.file for group in groups}
    awaited = {item.template for group in groups for item in group}
    if plan.npu is not None:
        lowered, awaited = {item.program.file for item in wanted}, {item.template for item in wanted}
    memory = {item.program.file: program_memory(plan, config, item, waits=item.template in awaited) for item in wanted}
    programs = [
        PlannedProgram(
            chunk=chunk.index,
            layers=(chunk.first_layer, chunk.first_layer + chunk.layers - 1),
            file=program.file,
            methods=tuple(method.name for method in program.methods),
            bytes=program_bytes(chunk, program),
            memory_bytes=memory.get(program.file, 0),
            state=_state(program.file, memory, lowered, there),
        )
        for chunk in plan.chunks
        for program in chunk.programs
    ]
    # as many tasks, with as much memory each, as `tasks.make_tasks` makes
    needs = [*memory.values()]
    needs += [lowering_bytes(plan, group[0].chunk, group[0].program, config) for group in groups]
    if plan.npu is not None and CALIBRATION not in there:
        needs.append(calibration_bytes(plan, config))
    if TABLES in missing:
        needs.append(tables_bytes(plan, config))
    needs.sort(reverse=True)
    jobs = min(options.jobs or fitting(needs), len(needs))
    return PlannedWork(
        programs=tuple(programs),
        tables_there=TABLES not in missing,
        tables_bytes=plan.embedding_bytes + plan.rope_bytes,
        jobs=jobs,
        memory_bytes=sum(needs[:jobs]),
        disk_bytes=disk_bytes(plan, missing, lowered),
    )


def _state(file: str, made: Collection[str], lowered: Collection[str], there: Collection[str]) -> str:
    if file in made:
        return "lowered" if file in lowered else "template"
    return "there" if file in there else "not asked for"
