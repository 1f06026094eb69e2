"""Which line of the recipe or of the generated project decides about a fault, so that a message can point at it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import Problem
from etcli.recipe.loaded import LoadedRecipe

_PROJECT = "CMakeLists.txt"
_PRESETS = "CMakePresets.json"


@dataclass(frozen=True)
class Governed:
    """`keys` of the recipe, of which the first that is written decides; `texts` of the project's files, as (file, what its line holds)."""

    keys: tuple[str, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()


GOVERNED: Mapping[str, Governed] = {
    "audit.machine": Governed(
        ("build.target", "build.executorch"), ((_PRESETS, '"toolchainFile"'), ("machine.cmake", "CMAKE_CXX_COMPILER"))
    ),
    "audit.interpreter": Governed(
        ("build.target",), ((_PRESETS, '"toolchainFile"'), ("machine.cmake", "CMAKE_CXX_COMPILER"))
    ),
    "audit.position": Governed((), ((_PROJECT, "check_pie_supported"),)),
    "audit.text_relocations": Governed((), ((_PROJECT, "CMAKE_POSITION_INDEPENDENT_CODE"),)),
    "audit.missing_library": Governed(("build.stl",), ((_PROJECT, "install(FILES"), (_PROJECT, "install(TARGETS"))),
    "audit.missing_program": Governed((), ((_PROJECT, "install(TARGETS"),)),
    "audit.never_loaded": Governed((), ((_PROJECT, "target_link_libraries(etcli_runner"),)),
    "audit.run_path": Governed((), ((_PROJECT, "$ORIGIN"),)),
    "audit.host_path": Governed((), ((_PROJECT, "-ffile-prefix-map"),)),
    "audit.alignment": Governed(
        ("build.ndk",), ((_PROJECT, "max-page-size"), (_PRESETS, "ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES"))
    ),
    "audit.symbol_version": Governed((), ((_PROJECT, "-print-file-name"),)),
    "audit.libcxx": Governed(("build.stl", "build.ndk", "build.executorch"), ((_PRESETS, "ANDROID_STL"),)),
    "audit.undefined_symbol": Governed(("build.executorch",), ((_PROJECT, "find_package("),)),
    "audit.ndk_mixed": Governed(("build.ndk", "build.executorch"), ((_PRESETS, '"toolchainFile"'),)),
    "audit.cxx_runtime": Governed(("build.stl",), ((_PRESETS, "ANDROID_STL"),)),
    "audit.cxx_exported": Governed(("build.stl",), ((_PRESETS, "ANDROID_STL"),)),
    "audit.api_level": Governed(("build.api_level",), ((_PRESETS, "ANDROID_PLATFORM"),)),
    "audit.exports": Governed((), ((_PROJECT, "--version-script"),)),
    "audit.openmp": Governed(("build.openmp",), ((_PROJECT, "add_library(etcli_openmp"),)),
    "audit.not_registered": Governed(
        ("build.custom_ops", "export.backend"), ((_PROJECT, "WHOLE_ARCHIVE"), (_PROJECT, "set(executorch_components"))
    ),
    "audit.registered_twice": Governed(
        ("build.custom_ops",), ((_PROJECT, "WHOLE_ARCHIVE"), (_PROJECT, "set(executorch_components"))
    ),
    "audit.registry_twice": Governed(("build.executorch",), ((_PROJECT, "find_package("),)),
    "audit.cpu_features": Governed(("neuron.platform",), ((_PROJECT, "add_compile_options("),)),
}
"""By code. What no line decides about (a damaged file, one that does not belong) is not here."""


def placed(problem: Problem, loaded: LoadedRecipe, folder: Path, files: Mapping[str, str]) -> Problem:
    """`problem` with the line that governs it, where it has no line of its own.

    Args:
        folder: where the generated project stands.
        files: its texts by name.
    """
    governed = GOVERNED.get(problem.code)
    if governed is None or problem.line is not None:
        return problem
    for key in governed.keys:
        origin = loaded.origins.get(key)
        if origin is not None and origin.file is not None:
            return dataclasses.replace(problem, file=origin.file, line=origin.line, column=origin.column)
    for name, text in governed.texts:
        for number, line in enumerate(files.get(name, "").splitlines(), 1):
            if text in line:
                return dataclasses.replace(problem, file=folder / name, line=number)
    return problem
