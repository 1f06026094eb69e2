"""What a build for Android is made with: API level and C++ runtime by rule, and the instructions that the recipe's chip is known to have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from etcli.common.errors import Problem, RecipeError
from etcli.recipe.android import api_level_findings, simulator_findings
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.operators import OperatorLibrary
from etcli.tables.socs import find_soc
from etcli.tables.targets import Target

Stl = Literal["c++_static", "c++_shared"]


@dataclass(frozen=True)
class AndroidSettings:
    """`api_level` is the lowest Android that the result runs on (26 is Android 8), `stl` the C++ runtime as ANDROID_STL takes it."""

    api_level: int
    stl: Stl


def android_settings(
    loaded: LoadedRecipe, target: Target, libraries: Sequence[OperatorLibrary] = (), shared: Sequence[str] = ()
) -> AndroidSettings | None:
    """The settings of a build of `loaded` with these operators and delegates; None for a target that is not Android.

    The API level is the recipe's, else the lowest that everything can do with. The C++ runtime is the recipe's, else inside the programs, each of
    which is alone in its process; or shared, where `shared` (C++ libraries deployed beside them) would have a second copy in one process.

    Raises:
        RecipeError: all that does not go together: `build.api_level`, `build.stl`, `build.simulator`.
    """
    if target.system != "android" or target.api_level is None:
        return None
    recipe = loaded.recipe
    problems = [_problem(loaded, "api_level", *finding) for finding in api_level_findings(recipe)]
    problems += [_problem(loaded, "simulator", *finding) for finding in simulator_findings(recipe, target.name)]
    lowest = max(target.api_level, *(library.api_level or 0 for library in libraries), 0)
    asked = recipe.build.api_level
    if asked is not None and target.api_level <= asked < lowest:
        users = ", ".join(library.name for library in libraries if (library.api_level or 0) > asked)
        message = f"API level {asked} is too low for {users}, which needs {lowest}"
        hint = f"Remove the key, or write {lowest} or more."
        problems.append(_problem(loaded, "api_level", "build.api_level", message, hint))
    stl: Stl = recipe.build.stl or ("c++_shared" if shared else "c++_static")
    if stl == "c++_static" and shared:
        message = (
            f"c++_static would give a process several C++ runtimes: the programs' own and that of {', '.join(shared)}"
        )
        problems.append(_problem(loaded, "stl", "build.stl", message, "Remove the key, or write c++_shared."))
    if problems:
        raise RecipeError.many(problems)
    return AndroidSettings(asked if asked is not None else lowest, stl)


def cpu_flags(loaded: LoadedRecipe, target: Target) -> tuple[str, ...]:
    """Options that let the compiler use what the CPU of the recipe's chip has beyond the target's floor.

    A recipe for one chip's NPU runs on that chip and on no other (`deploy` sees to it). Every other build has to run on any phone of the ABI.
    """
    neuron = loaded.recipe.neuron
    if target.system != "android" or neuron is None or neuron.simulated:
        return ()
    soc = find_soc(neuron.platform)
    return (f"-march={soc.march}",) if soc is not None else ()


def _problem(loaded: LoadedRecipe, code: str, key: str, message: str, hint: str) -> Problem:
    place = loaded.location(key)
    return RecipeError.problem(
        f"{key}: {message}",
        code=f"build.{code}",
        hint=hint,
        file=place.file,
        line=place.line,
        column=place.column,
    )
