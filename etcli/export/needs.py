"""What an export needs of this machine, looked at before anything expensive: the vendor's tools, memory, space on the disk.

`doctor` lists it, and the export stage refuses for want of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from etcli.checkpoint.opening import open_checkpoint
from etcli.checkpoint.source import peek
from etcli.common.errors import EtcliError
from etcli.common.memory import available_bytes
from etcli.common.needs import Need, problems_of
from etcli.export.estimates import disk_bytes, lowering_bytes, tables_bytes
from etcli.export.inputs import TABLES
from etcli.export.plan import make_plan
from etcli.export.source import exported_config
from etcli.output.console import Console
from etcli.output.units import bytes_text
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.neuron import neuron_problems, platform_remark
from etcli.recipe.sources import adapter_path
from etcli.tables.socs import find_soc
from etcli.toolchain.neuropilot import sdk_need
from etcli.toolchain.neuropilot_wheels import compiler_needs

_LITTLE_MEMORY = 2 << 30
_LITTLE_DISK = 4 << 30
"""Free bytes below which the default recipe (bundle, build and deployment of a 135M model) does not fit."""


def check_needs(loaded: LoadedRecipe, console: Console) -> None:
    """Refuse an export whose tools are missing; warn of those that nobody has validated, and of the simulated NPU. Nothing is read of the checkpoint.

    Raises:
        RecipeError: a file that the recipe's `neuron` section names cannot be used.
        ToolError: the vendor's tools, an interpreter for them, or connections over 127.0.0.1 are missing: all of them at once.
    """
    needs = list(tool_needs(loaded))
    problems = [*neuron_problems(loaded), *problems_of(needs)]
    if problems:
        raise EtcliError.many(problems)
    neuron = loaded.recipe.neuron
    if neuron is not None and neuron.simulated:
        console.warn("simulated NPU: what is exported is for no phone's", code="neuron.simulated")
    for need in needs:
        if need.status == "warning":
            console.warn(f"{need.name}: {need.hint or need.version}", code="neuropilot.not_validated")


def tool_needs(loaded: LoadedRecipe) -> Iterator[Need]:
    """The tools of the recipe's backend: of MediaTek's NPU the SDK, its packages and what those need; nothing for others."""
    neuron = loaded.recipe.neuron
    if neuron is None:
        return
    remark, soc = platform_remark(loaded.recipe), find_soc(neuron.platform)
    name, why = "NPU platform", "what the network is compiled for"
    yield Need(name, why, "ok" if remark is None else "warning", soc.title if soc is not None else "", "", remark)
    yield sdk_need(loaded)
    if not neuron.simulated:
        yield from compiler_needs(loaded)


def size_needs(loaded: LoadedRecipe, place: Path) -> Iterator[Need]:
    """Memory and space below `place`, held against what an export of everything takes, as far as the checkpoint is here and can be read."""
    memory, disk = _estimates(loaded)
    yield _need(
        "memory",
        "the largest of export's workers" if memory else "each export worker holds a chunk",
        available_bytes(),
        "available",
        memory or _LITTLE_MEMORY,
        "use more chunks or a shorter cache, or close other programs" if memory else "use more chunks, or --jobs 1",
        estimated=memory is not None,
    )
    yield _need(
        "disk",
        "bundle, build and virtual device",
        shutil.disk_usage(place).free,
        "free",
        disk or _LITTLE_DISK,
        "free some, or name another place with --workspace",
        estimated=disk is not None,
        where=str(place),
    )


def _estimates(loaded: LoadedRecipe) -> tuple[int | None, int | None]:
    """Bytes of memory of the largest worker, and of disk; None where they cannot be known yet."""
    try:
        path = peek(loaded)
        if path is None:
            return None, None
        config = exported_config(loaded, open_checkpoint(path, adapter_path(loaded)).config)
        plan = make_plan(loaded, config)
    except EtcliError:
        return None, None  # what is wrong is said of the checkpoint
    workers = [lowering_bytes(plan, chunk, program, config) for chunk in plan.chunks for program in chunk.programs]
    files = {program.file for program in plan.programs}
    return max(*workers, tables_bytes(plan, config)), disk_bytes(plan, {TABLES, *files}, files)


def _need(
    name: str, why: str, there: int, word: str, wanted: int, remedy: str, *, estimated: bool, where: str = ""
) -> Need:
    text = f"{bytes_text(there)} {word}"
    if estimated:
        text += f", about {bytes_text(wanted)} needed"
    if there >= wanted:
        return Need(name, why, "ok", text, where)
    return Need(name, why, "warning", text, where, f"{text}; {remedy}.")
