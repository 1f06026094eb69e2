"""The generated CMake project of a build, as texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli import __version__
from etcli.build.components import Component
from etcli.build.sources import RunnerSources
from etcli.common.templating import render
from etcli.tables.operators import OperatorLibrary
from etcli.tables.targets import Target
from etcli.toolchain import cmake
from etcli.toolchain.compilers import Compiler
from etcli.toolchain.executorch import ExecutorchPackage

BINARY_DIR = "cmake-build"
"""CMake's build tree inside the build folder."""

BUILD_TYPE = "Release"
MACHINE_FILE = "machine.cmake"

_DEFINITIONS = {"ETCLI_VERSION": __version__, "ETCLI_EXECUTORCH_VERSION": "${EXECUTORCH_BUILD_VERSION}"}
"""Macros that the sources may ask for, each a C string; a CMake variable is expanded when the project is configured."""


@dataclass(frozen=True)
class Toolset:
    """What a build of one target uses."""

    compiler: Compiler
    executorch: ExecutorchPackage
    ninja: Path


def render_project(
    target: Target,
    tools: Toolset,
    parts: Sequence[Component],
    sources: RunnerSources,
    libraries: Sequence[OperatorLibrary] = (),
) -> Mapping[str, str]:
    """File name to text of every file of the project. Only `machine.cmake` holds paths of this machine.

    Raises:
        ValueError: the sources want a macro that no value is known for.
    """
    unknown = sorted(set(sources.definitions) - set(_DEFINITIONS))
    if unknown:
        raise ValueError(f"{sources.root}: no value for the macros {', '.join(unknown)}")
    values = {
        "target": target,
        "components": parts,
        "sources": sources,
        "operator_libraries": libraries,
        "definitions": {name: _DEFINITIONS[name] for name in sources.definitions},
        "build_type": BUILD_TYPE,
        "binary_dir": BINARY_DIR,
        "cmake_minimum": cmake.MINIMUM,
        "executorch_release": tools.executorch.release,
        "executorch_dir": tools.executorch.cmake_dir,
        "native_dir": sources.root.parent,
        "ninja": tools.ninja,
        "compiler": tools.compiler.path,
        "compiler_name": tools.compiler.path.name,
    }
    names = ["CMakeLists.txt", "CMakePresets.json", MACHINE_FILE]
    if target.cmake.cross:
        names.append("toolchain.cmake")
    return {name: render(f"{name}.j2", **values) for name in names}
