"""Whether what files of the stage ask of one another by name and version is there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from etcli.build.audit.closure import loaded_by
from etcli.common.errors import BuildError, EtcliError, Problem
from etcli.manifests.build import ElfFacts
from etcli.toolchain.elf import DynamicSymbols, read_symbol_versions

# Every C++ library puts its names into an inline namespace of its own, which mangled names show: the NDK's libc++, other libc++ (Debian's,
# Android's own), libstdc++.
_CXX_LIBRARIES = {"St6__ndk1": "the NDK's libc++", "St3__1": "a libc++ other than the NDK's", "St7__cxx11": "libstdc++"}
_CXX = re.compile("|".join(_CXX_LIBRARIES))
# operator new and delete: Android's own small libstdc++.so has them, and nothing else that begins with _Z.
_ALLOCATION = re.compile(r"_Z(n|d)[wal]")
_SHOWN = 3


def version_problems(stage: Path, facts: Mapping[str, ElfFacts]) -> list[Problem]:
    """Symbol versions (`GLIBCXX_3.4.30`) that a staged file needs of another and that one does not define."""
    versions = {}
    for name in facts:
        try:
            versions[name] = read_symbol_versions(stage / name, error=BuildError)
        except EtcliError as error:
            return list(error.problems)
    found = []
    for name, has in versions.items():
        for library, needed in has.needed.items():
            absent = sorted(needed - versions[library].defined) if library in versions else []
            if absent:
                found.append(
                    BuildError.problem(
                        f"stage/{name} needs {', '.join(absent)} of {library}, which is too old for it",
                        code="audit.symbol_version",
                        hint="Use a newer compiler: its C++ runtime is what is staged.",
                    )
                )
    return found


def symbol_problems(
    name: str,
    symbols: Mapping[str, DynamicSymbols],
    facts: Mapping[str, ElfFacts],
    roots: Sequence[str],
    missing: Set[str] = frozenset(),
) -> list[Problem]:
    """C++ symbols that `name` leaves to others and that no file of a process with it defines.

    Systems offer no C++ interfaces, so all of them have to be in the stage: those of a C++ library too, which two releases of the NDK
    do not both have (`_ZTVNSt6__ndk1...` not located, ExecuTorch #4384).

    Args:
        roots: programs, and libraries that are opened while one runs; a process with `name` has what leads to it, and itself.
        missing: libraries that are needed and nowhere. A process that lacks one is told of that, and not of every symbol in it.
    """
    beside = [root for root in roots if root in facts and name in loaded_by([root], facts)] or [name]
    process = loaded_by(beside, facts)
    if any(not missing.isdisjoint(facts[file].needed) for file in process):
        return []
    there = {symbol for file in process for symbol in symbols[file].defined}
    absent = sorted(
        symbol
        for symbol in symbols[name].undefined - there
        if symbol.startswith("_Z") and not _ALLOCATION.match(symbol)
    )
    found = []
    by_library: dict[str | None, list[str]] = {}
    for symbol in absent:
        match = _CXX.search(symbol)
        by_library.setdefault(_CXX_LIBRARIES[match[0]] if match is not None else None, []).append(symbol)
    for library, names in sorted(by_library.items(), key=lambda item: item[0] or ""):
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        if library is not None:
            found.append(
                BuildError.problem(
                    f"stage/{name} asks for parts of {library} that nothing in the stage has: {shown}",
                    code="audit.libcxx",
                    hint="It was built with another C++ library than the one that is staged: build all of it, ExecuTorch too, with one NDK and "
                    "one build.stl; add --clean.",
                )
            )
        else:
            found.append(
                BuildError.problem(
                    f"stage/{name} asks for C++ functions or data that nothing in the stage has: {shown}",
                    code="audit.undefined_symbol",
                    hint="Libraries of different releases are mixed, or one hides what another needs: build from nothing, with --clean.",
                )
            )
    return found
