"""The generated CMake project of a build, as texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli import __version__
from etcli.build.android import AndroidSettings
from etcli.build.apps import JNI_VARIABLE, AppParts
from etcli.build.components import Component
from etcli.build.sources import RunnerSources
from etcli.build.upstream import DELEGATE, PROGRAM, VARIABLE, Upstream
from etcli.common.templating import render
from etcli.tables import simulated_npu
from etcli.tables.executorch import load_executorch
from etcli.tables.ndk import ndk_facts
from etcli.tables.operators import OperatorLibrary
from etcli.tables.simulated_npu import SimulatedNpu
from etcli.tables.targets import Target
from etcli.toolchain import cmake
from etcli.toolchain.compilers import Compiler
from etcli.toolchain.executorch import ExecutorchPackage
from etcli.toolchain.ndk import Ndk

BINARY_DIR = "cmake-build"
"""CMake's build tree inside the build folder."""

BUILD_TYPE = "Release"
MACHINE_FILE = "machine.cmake"

_DEFINITIONS = {"ETCLI_VERSION": __version__, "ETCLI_EXECUTORCH_VERSION": "${EXECUTORCH_BUILD_VERSION}"}
"""Macros that the sources may ask for, each a C string; a CMake variable is expanded when the project is configured."""


ARCHIVES = "operators"
"""Folder inside the build tree that holds `lib<name>.a` of every operator library."""


OWN_FOLDER = "ETCLI_OPERATORS_"
"""What the variables begin with that say where operator libraries of the user's own are."""


@dataclass(frozen=True)
class Linked:
    """An operator library in the project: `folder` is a CMake expression for its sources, `variable` the cache variable in it.

    `openmp` is whether it is compiled with OpenMP.
    """

    library: OperatorLibrary
    folder: str
    variable: str
    openmp: bool


@dataclass(frozen=True)
class Toolset:
    """What a build of one target uses; `ndk` for Android alone."""

    compiler: Compiler
    executorch: ExecutorchPackage
    ninja: Path
    ndk: Ndk | None = None


def render_project(
    target: Target,
    tools: Toolset,
    parts: Sequence[Component],
    sources: RunnerSources,
    libraries: Sequence[OperatorLibrary] = (),
    *,
    openmp: bool = False,
    simulated: SimulatedNpu | None = None,
    android: AndroidSettings | None = None,
    cpu_flags: Sequence[str] = (),
    apps: AppParts | None = None,
    upstream: Upstream | None = None,
) -> Mapping[str, str]:
    """File name to text of every file of the project. Only `machine.cmake` holds paths of this machine.

    `android` goes with `tools.ndk`, for a target that is Android; `cpu_flags` go to every compilation.

    With `simulated` the project compiles the simulated NPU's libraries too, with `apps` the runner as a library for apps,
    with `upstream` MediaTek's runner of ExecuTorch's repository.

    With `openmp` the libraries that can are compiled with OpenMP, and its runtime is linked statically.

    Raises:
        ValueError: the sources want a macro that no value is known for.
    """
    unknown = sorted(set(sources.definitions) - set(_DEFINITIONS))
    if unknown:
        raise ValueError(f"{sources.root}: no value for the macros {', '.join(unknown)}")
    names = [part.cmake_target for part in (*parts, *([DELEGATE] if upstream is not None else []))]
    together = tuple(linked(library, openmp=openmp) for library in libraries)
    values = {
        "target": target,
        "components": parts,
        "sources": sources,
        "operator_libraries": together,
        "own_operators": tuple(one for one in together if one.library.own),
        "openmp": target.openmp[tools.compiler.kind] if uses_openmp(libraries, openmp=openmp) else None,
        "archives": ARCHIVES,
        "simulated": simulated,
        "android": android,
        "ndk": tools.ndk,
        "ndk_facts": ndk_facts(),
        "compile_flags": (*target.compile_flags, *cpu_flags),
        "page_size_option": tools.ndk is None or tools.ndk.page_size_means == "linker_option",
        "app": apps.libraries if apps is not None else None,
        "jni_headers": apps.jni if apps is not None else (),
        "jni_variable": JNI_VARIABLE,
        "simulated_folder": simulated_npu.FOLDER,
        "simulated_includes": simulated_npu.INCLUDES,
        "definitions": {name: _DEFINITIONS[name] for name in sources.definitions},
        "build_type": BUILD_TYPE,
        "binary_dir": BINARY_DIR,
        "cmake_minimum": cmake.MINIMUM,
        "executorch": tools.executorch,
        "installed": load_executorch().chosen(names) if tools.executorch.static else {},
        "upstream": upstream,
        "upstream_program": PROGRAM,
        "upstream_variable": VARIABLE,
        "executorch_dir": tools.executorch.cmake_dir,
        "native_dir": sources.root.parent,
        "ninja": tools.ninja,
        "compiler": tools.compiler.path,
        "compiler_name": tools.compiler.path.name,
    }
    files = ["CMakeLists.txt", "CMakePresets.json", MACHINE_FILE]
    if target.cmake.cross and android is None:
        files.append("toolchain.cmake")
    return {name: render(f"{name}.j2", **values) for name in files}


def uses_openmp(libraries: Sequence[OperatorLibrary], *, openmp: bool) -> bool:
    """Whether a build of these libraries has OpenMP in it; `openmp` is whether the recipe wants it."""
    return openmp and any(library.openmp for library in libraries)


def linked(library: OperatorLibrary, *, openmp: bool) -> Linked:
    """The library as the project names it; those of the user's own have a variable each, since they stand anywhere."""
    variable = f"{OWN_FOLDER}{library.name}" if library.own else "ETCLI_NATIVE_DIR"
    folder = f"${{{variable}}}" if library.own else f"${{{variable}}}/{library.root.name}"
    return Linked(library, folder, variable, openmp and library.openmp)
