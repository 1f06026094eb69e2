"""What a build needs of this machine: all of it found, or all that is missing told at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import Problems, ToolError
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.targets import Target
from etcli.toolchain import cmake, compilers, executorch, ndk, ninja
from etcli.toolchain.compilers import Compiler
from etcli.toolchain.ndk import Ndk


@dataclass(frozen=True)
class HostTools:
    """What compiles; `ndk` for Android alone."""

    compiler: Compiler
    ninja: Path
    ndk: Ndk | None


def find_host_tools(loaded: LoadedRecipe, target: Target, ndk_flag: Path | None, api_level: int | None) -> HostTools:
    """Compiler, ninja and NDK, after a look at everything else that a build needs of this machine and that costs nothing to look for.

    `ndk_flag` is the folder of `--ndk`; `api_level` the Android API level that is built for.

    Raises:
        ToolError: all that is missing.
    """
    problems = Problems()
    found: Ndk | None = None
    if target.system == "android":
        found = problems.attempt(lambda: ndk.find_ndk(loaded, target, ndk_flag))
        if found is not None and api_level is not None:
            problems.attempt(lambda: found.check_api_level(api_level))
    compiler = None
    if found is not None or target.system != "android":
        compiler = problems.attempt(lambda: compilers.verify(target, found.compiler if found is not None else None))
    ninja_path = problems.attempt(ninja.find)
    problems.attempt(cmake.find)
    problems.attempt(executorch.host_package)
    if target.executorch.auto == "provided":
        problems.attempt(lambda: executorch.find(target))
    if problems or compiler is None or ninja_path is None:
        raise ToolError.many(problems.found)
    return HostTools(compiler, ninja_path, found)
