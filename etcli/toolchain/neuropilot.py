"""MediaTek's NeuroPilot Express SDK: found and verified part by part, or said where it comes from.

Nothing of it can be downloaded by a program or handed on, so each part that is missing is named with the portal's address. With
`neuron.sdk: simulator` none of it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import EtcliError, Problem, ToolError
from etcli.common.needs import Need, missing_need, needed
from etcli.common.paths import written_path
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe
from etcli.tables.neuropilot import Header, Library, Needed, neuropilot
from etcli.toolchain.elf import defined_symbols, read_elf

KEY = "neuron.sdk"
ENVIRONMENT = "MEDIATEK_SDK_ROOT"

_AARCH64 = "EM_AARCH64"
_SIMULATED_MARK = b"ETCLINPU"
"""Magic of the simulator's compiled networks, which its adapter library therefore holds."""

_MOST_ENTRIES = 50_000
"""Files and folders of a SDK that are looked through. It has some hundreds; a recipe that names / or a home folder must not take minutes."""


@dataclass(frozen=True)
class Sdk:
    """The SDK's folder and what named it, `neuron.sdk` or `$MEDIATEK_SDK_ROOT`; `overruled` is the variable's folder where that is another."""

    root: Path
    said_by: str
    overruled: Path | None = None


def find_sdk(loaded: LoadedRecipe) -> Sdk:
    """The SDK of a recipe whose `neuron.sdk` is not `simulator`: the recipe's (`--set` included), else `$MEDIATEK_SDK_ROOT`.

    A file stands for the folder that it is in.

    Raises:
        ToolError: code `neuropilot.unnamed` or `neuropilot.missing`.
    """
    neuron = loaded.recipe.neuron
    named = neuron.sdk if neuron is not None else None
    configured = os.environ.get(ENVIRONMENT)
    variable = written_path(configured) if configured else None
    if named is not None:
        path, said_by = loaded.resolve_path(named), KEY
    elif variable is not None:
        path, said_by = variable, f"${ENVIRONMENT}"
    else:
        raise ToolError(
            f"no NeuroPilot SDK is named: neither {KEY} nor ${ENVIRONMENT} is set",
            code="neuropilot.unnamed",
            hint=f"Download the NeuroPilot Express SDK from {neuropilot().portal}, unpack it, and set {KEY} to its folder; "
            "simulator takes a simulated NPU instead.",
        )
    root = path.parent if path.is_file() else path
    if not root.is_dir():
        place = loaded.location(KEY) if said_by == KEY else None
        raise ToolError(
            f"{said_by}: there is no folder {path}",
            code="neuropilot.missing",
            hint="The simulated NPU is written neuron.sdk: simulator."
            if named is not None and named.strip().lower() in ("simulator", "simulated", "sim", "simulation")
            else f"Download the NeuroPilot Express SDK from {neuropilot().portal} and unpack it there, or name the folder where it is.",
            file=place.file if place is not None else None,
            line=place.line if place is not None else None,
            column=place.column if place is not None else None,
        )
    other = variable is not None and named is not None and variable not in (path, root)
    return Sdk(root, said_by, variable if other else None)


def sdk_need(loaded: LoadedRecipe) -> Need:
    """The SDK's folder."""
    name, why = "NeuroPilot Express SDK", "MediaTek's converter, compiler and libraries"
    if _simulated(loaded.recipe):
        return Need(
            "NPU",
            "compiles and runs the network",
            "ok",
            "simulated: nothing of MediaTek's is used, nothing runs on a phone's NPU",
        )
    try:
        sdk = find_sdk(loaded)
    except EtcliError as error:
        return missing_need(name, why, error)
    if sdk.overruled is not None:
        return Need(
            name,
            why,
            "warning",
            f"named by {sdk.said_by}",
            str(sdk.root),
            f"{KEY} wins over ${ENVIRONMENT}, {sdk.overruled}",
        )
    return Need(name, why, "ok", f"named by {sdk.said_by}", str(sdk.root))


def device_needs(loaded: LoadedRecipe) -> Iterator[Need]:
    """The SDK's libraries for the phone, and its header, each found and verified, or missing with where it comes from."""
    if _simulated(loaded.recipe):
        return
    try:
        root: Path | None = find_sdk(loaded).root
    except EtcliError:
        root = None
    facts = neuropilot()
    for library in facts.libraries:
        yield _library_need(library, root, loaded.recipe)
    for header in facts.headers:
        yield _header_need(header, root, loaded.recipe)


def find_library(library: Library, root: Path | None) -> Path:
    """The file of a library: what its variable names (a file, or a folder that holds it), else the one below the SDK's folder `root`.

    Of several in the SDK the first for aarch64 is taken, those of shorter paths first.

    Raises:
        ToolError: code `neuropilot.library`: there is none, or the variable names what is none.
    """
    configured = os.environ.get(library.environment)
    if configured:
        path = written_path(configured)
        found = path / library.name if path.is_dir() else path
        if found.is_file() and found.name != library.name:
            raise ToolError(
                f"${library.environment}: {found.name} would not be found, since programs open {library.name}",
                code="neuropilot.library",
                hint="Name a file of that name, or a folder that holds it, or unset the variable.",
                file=found,
            )
        if found.is_file():
            return found
        raise ToolError(
            f"${library.environment}: there is no {found}",
            code="neuropilot.library",
            hint=f"Name {library.name} or the folder that holds it, or unset the variable.",
        )
    candidates = _found(root, library.name)
    for path in candidates:
        try:
            if read_elf(path, error=ToolError).machine == _AARCH64:
                return path
        except EtcliError:
            continue
    if candidates:
        return candidates[0]
    where = f"below {root}" if root is not None else "without the SDK"
    raise ToolError(
        f"{library.name} was not found {where}",
        code="neuropilot.library",
        hint=f"It comes with the NeuroPilot Express SDK ({neuropilot().portal}); ${library.environment} names it where it stands elsewhere.",
    )


def device_libraries(loaded: LoadedRecipe) -> list[Path]:
    """The SDK's libraries for the phone that there are. None where the recipe's NPU is not MediaTek's, or no SDK is named: a phone may have its own.

    Raises:
        ToolError: `neuropilot.missing`: the SDK that is named is not there; `neuropilot.library`: a variable that names a library is wrong.
    """
    neuron = loaded.recipe.neuron
    if loaded.recipe.export.backend != "neuron" or neuron is None or neuron.simulated:
        return []
    root, found = None, []
    if neuron.sdk is not None or os.environ.get(ENVIRONMENT):
        root = find_sdk(loaded).root
    for library in neuropilot().libraries:
        try:
            found.append(find_library(library, root))
        except EtcliError:
            if os.environ.get(library.environment):
                raise
    return found


def check_library(library: Library, path: Path) -> None:
    """Whether `path` is that library for a phone, of a release that this ExecuTorch can use.

    Raises:
        ToolError: code `neuropilot.library_machine`, `neuropilot.library_simulated`, `neuropilot.library_old` or `neuropilot.library_symbols`;
            `elf.*` for a file that is none.
    """
    portal = neuropilot().portal
    machine = read_elf(path, error=ToolError).machine
    if _SIMULATED_MARK in path.read_bytes():
        raise ToolError(
            f"{library.name} is the simulated NPU's of etcli, not MediaTek's",
            code="neuropilot.library_simulated",
            hint=f"Take MediaTek's from the NeuroPilot Express SDK ({portal}), or set {KEY}: simulator.",
            file=path,
        )
    if machine != _AARCH64:
        raise ToolError(
            f"{library.name} is for {machine}, phones need {_AARCH64}",
            code="neuropilot.library_machine",
            hint="Take the file of the SDK's folder for arm64-v8a.",
            file=path,
        )
    defined = defined_symbols(path, error=ToolError)
    absent = [name for name in library.symbols if name not in defined]
    old = [mark for mark in library.old_symbols if any(mark in name for name in defined)]
    if absent and old:
        raise ToolError(
            f"{library.name} is of an old SDK, which offers C++ classes ({', '.join(old)}) where C functions are needed",
            code="neuropilot.library_old",
            hint=f"It was for ExecuTorch before 0.7, which linked it. Take that of the current SDK ({portal}).",
            file=path,
        )
    if absent:
        more = f" and {len(absent) - 4} more" if len(absent) > 4 else ""
        raise ToolError(
            f"{library.name} lacks {', '.join(absent[:4])}{more}",
            code="neuropilot.library_symbols",
            hint=f"Take that of the current SDK ({portal}).",
            file=path,
        )


def find_wheels(root: Path | None, name: str) -> list[Path]:
    """The files of the wheel `name` below the SDK's folder, the shortest path first."""
    return _found(root, f"{name}-", ".whl")


def _library_need(library: Library, root: Path | None, recipe: Recipe) -> Need:
    try:
        path = find_library(library, root)
    except EtcliError as error:
        return _unless_needed(library.name, library.why, library.needed, error.problems[0], recipe)
    try:
        check_library(library, path)
    except EtcliError as error:  # wrong is wrong, needed or not: it would be pushed
        return needed(library.name, library.why, error.problems[0], str(path))
    return Need(library.name, library.why, "ok", "aarch64, C interface", str(path))


def _header_need(header: Header, root: Path | None, recipe: Recipe) -> Need:
    found = _found(root, header.name)
    if found:
        return Need(header.name, header.why, "ok", "", str(found[0]))
    problem = ToolError.problem(
        f"{header.name} was not found {f'below {root}' if root is not None else 'without the SDK'}",
        code="neuropilot.header",
        hint=f"It comes with the NeuroPilot Express SDK: {neuropilot().portal}",
    )
    return _unless_needed(header.name, header.why, header.needed, problem, recipe)


def _unless_needed(name: str, why: str, when: Needed, problem: Problem, recipe: Recipe) -> Need:
    if when == "always" or recipe.run.runner == "mtk":
        return needed(name, why, problem)
    return Need(name, why, "not needed", problem.message, "", problem.hint)


def _found(root: Path | None, start: str, end: str = "") -> list[Path]:
    """Files below `root` called `start` (with `end`: that start and end so), those of shorter paths first."""
    if root is None:
        return []
    found, seen = [], 0
    for folder, folders, names in os.walk(root):
        folders.sort()
        seen += len(folders) + len(names)
        found += [
            Path(folder, name)
            for name in names
            if (name == start if not end else name.startswith(start) and name.endswith(end))
        ]
        if seen > _MOST_ENTRIES:
            break
    return sorted(found, key=lambda path: (len(path.parts), str(path)))


def _simulated(recipe: Recipe) -> bool:
    return recipe.neuron is not None and recipe.neuron.simulated
