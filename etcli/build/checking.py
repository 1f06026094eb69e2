"""What a build is checked for between its steps: the commands before anything is compiled, the stage before it becomes the build's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.build.apps import AppParts, export_problems
from etcli.build.audit import Audit, audit
from etcli.build.audit.cpu import CpuUse, cpu_use
from etcli.build.audit.governing import placed
from etcli.build.components import Component
from etcli.build.starting import repetition_warnings, start_problems
from etcli.build.vendor import REASON, copy_vendor_libraries
from etcli.common.errors import EtcliError
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.operators import OperatorLibrary
from etcli.tables.simulated_npu import SimulatedNpu
from etcli.tables.targets import Target


@dataclass(frozen=True)
class Checked:
    """What is known of a build before it is made: whom it is for, what it is made of, and its project in `folder` (`files`, by name)."""

    loaded: LoadedRecipe
    target: Target
    folder: Path
    files: Mapping[str, str]
    programs: tuple[str, ...]
    parts: tuple[Component, ...]
    libraries: tuple[OperatorLibrary, ...]
    native: Path
    simulated: SimulatedNpu | None = None
    vendor: tuple[Path, ...] = ()
    apps: AppParts | None = None
    api_level: int | None = None


def check_commands(build: Checked, tree: Path, floor: Sequence[str]) -> CpuUse:
    """What the configured tree will compile, for which CPUs.

    Raises:
        BuildError: `audit.cpu_features`, each with the line that governs it; `audit.compile_commands`.
    """
    use = cpu_use(tree, build.target, build.libraries, floor)
    if use.problems:
        raise EtcliError.many(placed(problem, build.loaded, build.folder, build.files) for problem in use.problems)
    return use


def check_stage(build: Checked, stage: Path, archives: Mapping[str, Path], console: Console) -> Audit:
    """Put the vendor's libraries into `stage`, audit all of it, and start its programs where this machine can.

    Args:
        archives: the static library of each operator library, by its name.

    Raises:
        BuildError: everything that would keep a program from starting or answering, each with the line that governs it. What is wrong with a
            vendor's file and may do no harm is a warning.
    """
    copy_vendor_libraries(build.vendor, stage)
    simulated = build.simulated.libraries if build.simulated is not None else ()
    opened = {library.name: "simulated NPU, opened while a program runs" for library in simulated}
    seen = audit(
        stage,
        build.target,
        build.programs,
        build.parts,
        build.libraries,
        archives,
        opened | {path.name: REASON for path in build.vendor},
        vendor=[path.name for path in build.vendor],
        apps=build.apps.files if build.apps is not None else (),
        api_level=build.api_level,
        folders={
            "the native sources": build.native,
            "the build": build.folder,
            **{f"the operator library {library.name}": library.root for library in build.libraries if library.own},
        },
    )
    for warning in (*seen.warnings, *repetition_warnings(build.target, build.libraries, archives)):
        console.warn(f"{warning.message}. {warning.hint or ''}".rstrip(), code=warning.code)
    problems = seen.problems
    if build.apps is not None:
        problems = (*problems, *export_problems(stage, build.apps.libraries))
    problems = problems or tuple(start_problems(stage, build.target, build.programs, build.libraries, archives))
    if problems:
        raise EtcliError.many(placed(problem, build.loaded, build.folder, build.files) for problem in problems)
    return seen
