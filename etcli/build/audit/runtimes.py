"""Runtimes of which a process has one at most: OpenMP's, C++'s, and ExecuTorch's registry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from etcli.common.errors import BuildError, Problem
from etcli.manifests.build import ElfFacts
from etcli.toolchain.elf import DynamicSymbols

OPENMP_LIBRARY = re.compile(r"lib(g|i)?omp[0-9]*\.so")
"""Names of shared OpenMP runtimes: GNU's, LLVM's, Intel's."""

_OPENMP_MARKS = (b"GOMP_SPINCOUNT\0", b"KMP_AFFINITY\0")
"""Variables that GNU's and LLVM's runtimes read when they start, so that they are in every program that has one inside."""

_CXX_MARKS = (b"terminate called after throwing an instance of '\0", b" exception of type %s: %s")
"""What libstdc++'s and libc++abi's handlers of uncaught exceptions say, so that whatever has such a runtime inside holds the text."""

_CXX_THROW = "__cxa_throw"

_REGISTRY_MARKS = (b"Re-registering %s, from %s\0",)
"""What ExecuTorch's registry says of an operator that comes twice (runtime/kernel/operator_registry.cpp); only where logging is compiled in."""

_REGISTRY_EXPORTED = "16register_backend"


def openmp_problems(program: str, loaded: Mapping[str, Path]) -> list[Problem]:
    """OpenMP runtimes inside more than one file of a process: each would start threads of its own."""
    having = _having(loaded, _OPENMP_MARKS)
    if len(having) < 2:
        return []
    return [
        BuildError.problem(
            f"{program} would start with {len(having)} OpenMP runtimes: inside {', '.join(having)}",
            code="audit.openmp",
            hint="One process takes one: set build.openmp: off, or use an ExecuTorch without OpenMP.",
        )
    ]


def openmp_library_problems(facts: Mapping[str, ElfFacts]) -> list[Problem]:
    """Files that need a shared OpenMP runtime, which no device has."""
    return [
        BuildError.problem(
            f"stage/{name} needs {library}, which devices lack",
            code="audit.openmp",
            hint="Set build.openmp: static, and openmp: true in the op.yaml of what uses it; remove -fopenmp from everything else.",
        )
        for name, elf in facts.items()
        for library in elf.needed
        if OPENMP_LIBRARY.match(library)
    ]


def cxx_runtime_problems(program: str, loaded: Mapping[str, Path]) -> list[Problem]:
    """C++ runtimes inside more than one file of a process: exceptions and streams of one are nothing to the other."""
    having = _having(loaded, _CXX_MARKS)
    if len(having) < 2:
        return []
    return [
        BuildError.problem(
            f"{program} would start with {len(having)} C++ runtimes: inside {', '.join(having)}",
            code="audit.cxx_runtime",
            hint="With more than one C++ library in a process all of them share one: set build.stl: c++_shared, and build everything "
            "that is linked in with it.",
        )
    ]


def exported_runtime_problems(symbols: Mapping[str, DynamicSymbols], shared: Sequence[str]) -> list[Problem]:
    """Libraries other than the C++ runtime's own (`shared`) that offer a C++ runtime to the rest of the process (ExecuTorch PR #22739)."""
    return [
        BuildError.problem(
            f"stage/{name} offers a whole C++ runtime to other libraries, the static one that it was linked with",
            code="audit.cxx_exported",
            hint="Link it with the shared runtime (build.stl: c++_shared), or with -Wl,--exclude-libs,ALL.",
        )
        for name, has in symbols.items()
        if name not in shared and _CXX_THROW in has.defined
    ]


def registry_problems(program: str, loaded: Mapping[str, Path], symbols: Mapping[str, DynamicSymbols]) -> list[Problem]:
    """Registries inside several files of a process, of which one keeps its own: what that file registers nobody else finds (ExecuTorch PR #21945).

    Copies that are all visible are one, since the loader takes the first for all.
    """
    having = _having(loaded, _REGISTRY_MARKS)
    private = [name for name in having if not any(_REGISTRY_EXPORTED in symbol for symbol in symbols[name].defined)]
    if len(having) < 2 or not private:
        return []
    return [
        BuildError.problem(
            f"{program} would start with {len(having)} registries of ExecuTorch: inside {', '.join(having)}; that of {', '.join(private)} is hidden",
            code="audit.registry_twice",
            hint="Link the runtime once: a shared library links none of it and leaves its symbols to the program, or everything is static.",
        )
    ]


def inside(path: Path) -> tuple[str, ...]:
    """The runtimes that a file has inside, by name."""
    content = path.read_bytes()
    marks = {"C++": _CXX_MARKS, "OpenMP": _OPENMP_MARKS, "ExecuTorch's registry": _REGISTRY_MARKS}
    return tuple(name for name, texts in marks.items() if any(text in content for text in texts))


def _having(loaded: Mapping[str, Path], marks: Iterable[bytes]) -> list[str]:
    return [name for name, path in loaded.items() if any(mark in path.read_bytes() for mark in marks)]
