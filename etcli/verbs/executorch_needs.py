"""Which ExecuTorch a build will get, or everything that keeps it from one; nothing is fetched or compiled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from etcli.build.android import AndroidSettings, android_settings
from etcli.build.components import components, operator_libraries, simulated_npu
from etcli.build.tools import compiled_with
from etcli.common.assets import asset_dir
from etcli.common.errors import EtcliError, ToolError
from etcli.common.needs import Need, needed
from etcli.common.workspace import offline
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.targets import Target
from etcli.toolchain import compilers, executorch
from etcli.toolchain.executorch import Wanted
from etcli.toolchain.ndk import Ndk

_WHY = "the runtime that the runner links"


def executorch_needs(loaded: LoadedRecipe, target: Target, flag: Path | None, ndk: Ndk | None) -> Iterable[Need]:
    """The ExecuTorch for `target`: one need, or one for each fault. `flag` is the folder of `--executorch`, `ndk` a usable one."""
    name = f"ExecuTorch for {target.name}"
    try:
        wanted = _wanted(loaded, target, flag, ndk)
        provider, root = executorch.chosen_provider(target, wanted)
        executorch.check(target, wanted)
        first = executorch.first_step(target, wanted)
        host = executorch.host_package()
        if provider == "source" and first is not None:
            hint = "etcli build compiles it once, which takes minutes."
            yield Need(name, _WHY, "fetched later", f"checkout, named by {wanted.said_by}", str(root), hint)
        elif provider == "wheel" and first is not None:
            yield _wheel_later(name, target, host.release)
        else:
            package = executorch.find(target, wanted)
            where = f"{package.provider}, named by {wanted.said_by}" if root is not None else package.provider
            yield Need(name, _WHY, "ok", f"{package.version} ({where})", str(package.root))
    except EtcliError as error:
        for problem in error.problems:
            yield needed(name, _WHY, problem, str(problem.file or ""))


def _wheel_later(name: str, target: Target, release: str) -> Need:
    if not offline():
        return Need(name, _WHY, "fetched later", release, "", "etcli build fetches the wheel with pip (18 MB).")
    problem = ToolError.problem(
        f"ExecuTorch {release} for {target.executorch.wheel_platform} is not in the cache, and ETCLI_OFFLINE forbids to fetch it",
        code="executorch.offline",
        hint="Unset ETCLI_OFFLINE for one build.",
    )
    return needed(name, _WHY, problem)


def _wanted(loaded: LoadedRecipe, target: Target, flag: Path | None, ndk: Ndk | None) -> Wanted:
    native = asset_dir("native")
    libraries = operator_libraries(loaded, native)
    names = [part.cmake_target for part in components(loaded.recipe, libraries, simulated_npu(loaded.recipe, native))]
    settings: AndroidSettings | None = None
    compiler = None
    # Their own rows say what is wrong with these.
    with contextlib.suppress(EtcliError):
        settings = android_settings(loaded, target, libraries)
    with contextlib.suppress(EtcliError):
        compiler = compilers.verify(target, ndk.compiler if ndk is not None else None)
    android = compiled_with(target, ndk, settings)
    return executorch.wanted_by(loaded, names, flag=flag, compiler=compiler, android=android)
