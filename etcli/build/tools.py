"""What a build needs of this machine: all of it found, or all that is missing told at once."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.build.android import AndroidSettings
from etcli.build.components import Component
from etcli.build.upstream import DELEGATE, Upstream, wants_upstream
from etcli.common.errors import EtcliError, Problems, ToolError
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.targets import Target
from etcli.toolchain import cmake, compilers, executorch, ndk, ninja
from etcli.toolchain.compilers import Compiler
from etcli.toolchain.executorch import Android, Wanted
from etcli.toolchain.ndk import Ndk


@dataclass(frozen=True)
class HostTools:
    """What compiles, and which ExecuTorch is `wanted`; `ndk` for Android alone; `upstream` where MediaTek's runner can be compiled."""

    compiler: Compiler
    ninja: Path
    ndk: Ndk | None
    wanted: Wanted
    upstream: Upstream | None = None


def find_host_tools(
    loaded: LoadedRecipe,
    target: Target,
    ndk_flag: Path | None,
    android: AndroidSettings | None,
    parts: Sequence[Component],
    *,
    executorch_flag: Path | None = None,
    simulated: bool = False,
    jobs: int | None = None,
) -> HostTools:
    """Compiler, ninja and NDK, after a look at everything else that a build needs of this machine and that costs nothing to look for.

    `ndk_flag` is the folder of `--ndk`, `executorch_flag` of `--executorch`; `android` the settings of a build for Android; `parts` what the
    runner is linked with, `simulated` whether the simulated NPU is to stand beside it; `jobs` compilers at once, where ExecuTorch itself has to be compiled.

    Raises:
        ToolError: all that is missing.
    """
    problems = Problems()
    found: Ndk | None = None
    if target.system == "android":
        found = problems.attempt(lambda: ndk.find_ndk(loaded, target, ndk_flag))
        if found is not None and android is not None:
            problems.attempt(lambda: found.check_api_level(android.api_level))
    compiler = None
    if found is not None or target.system != "android":
        compiler = problems.attempt(lambda: compilers.verify(target, found.compiler if found is not None else None))
    ninja_path = problems.attempt(ninja.find)
    problems.attempt(cmake.find)
    if problems.attempt(executorch.host_package) is not None:
        names = [part.cmake_target for part in parts]
        settings = compiled_with(target, found, android)
        wanted = executorch.wanted_by(
            loaded, names, flag=executorch_flag, compiler=compiler, android=settings, jobs=jobs
        )
        upstream = _upstream(loaded, target, wanted)
        if upstream is not None:
            wanted = dataclasses.replace(wanted, components=(*names, DELEGATE.cmake_target))
        problems.attempt(lambda: executorch.check(target, wanted))
        if simulated:
            problems.attempt(lambda: _check_shared(target, wanted))
    if problems or compiler is None or ninja_path is None:
        raise ToolError.many(problems.found)
    return HostTools(compiler, ninja_path, found, wanted, upstream)


def _upstream(loaded: LoadedRecipe, target: Target, wanted: Wanted) -> Upstream | None:
    """Upstream's runner, which is compiled where ExecuTorch is; an installation has no sources of it."""
    if not wants_upstream(loaded.recipe, target):
        return None
    with contextlib.suppress(EtcliError):  # which executorch.check raises
        provider, root = executorch.chosen_provider(target, wanted)
        return Upstream(root) if provider == "source" and root is not None else None
    return None


def _check_shared(target: Target, wanted: Wanted) -> None:
    """The simulated NPU runs its networks with ExecuTorch's kernels, and a process has one registry of them."""
    provider, root = executorch.chosen_provider(target, wanted)
    if provider != "wheel":
        raise ToolError(
            f"the simulated NPU needs ExecuTorch's shared libraries, and those in {root} are static",
            code="executorch.static",
            hint="Use build.executorch: {from: wheel}, or name the folder of MediaTek's SDK in neuron.sdk.",
        )


def compiled_with(target: Target, ndk: Ndk | None, settings: AndroidSettings | None) -> Android | None:
    """What an ExecuTorch compiled from source has to be compiled with, to go with the runner."""
    if ndk is None or settings is None:
        return None
    pages = {
        "linker_option": {
            f"CMAKE_{kind}_LINKER_FLAGS": f"-Wl,-z,max-page-size={target.min_load_alignment}"
            for kind in ("EXE", "SHARED")
        },
        "flexible": {"ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES": "ON"},
        "default": {},
    }[ndk.page_size_means]
    return Android(
        ndk.root, ndk.revision, ndk.toolchain_file, target.abi, settings.api_level, settings.stl, tuple(pages.items())
    )
