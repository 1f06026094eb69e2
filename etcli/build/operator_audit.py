"""The audit of operators: each one that was asked for is in what a program starts with, exactly once; and OpenMP's runtime once at most."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from etcli.common.errors import BuildError, Problem
from etcli.tables.op_yaml import DESCRIPTION
from etcli.tables.operators import OperatorLibrary

OPENMP_LIBRARY = re.compile(r"lib(g|i)?omp[0-9]*\.so")
"""Names of shared OpenMP runtimes: GNU's, LLVM's, Intel's."""

_OPENMP_MARKS = (b"GOMP_SPINCOUNT\0", b"KMP_AFFINITY\0")
"""Variables that GNU's and LLVM's runtimes read when they start, so that they are in every program that has one inside."""

_SHOWN = 5


def operator_problems(
    program: str,
    loaded: Mapping[str, Sequence[str]],
    libraries: Sequence[OperatorLibrary],
    archives: Mapping[str, Path],
) -> list[Problem]:
    """Operators that `program` lacks, starts with twice, or has of a library that does not speak of them.

    Args:
        loaded: each file of the process to what it registers, repeated where it does so twice.
        libraries: what the program was linked with, whole.
        archives: the static library of each of them, by its name.
    """
    providers: dict[str, list[str]] = {}
    for file, operators in loaded.items():
        for operator in operators:
            providers.setdefault(operator, []).append(file)
    found = [
        problem
        for library in libraries
        if (problem := _absent(program, library, list(providers), archives.get(library.name)))
    ]
    twice: dict[tuple[str, ...], list[str]] = {}
    for operator, files in sorted(providers.items()):
        if len(files) > 1:
            twice.setdefault(_named(program, operator, files, libraries, archives), []).append(operator)
    for by, operators in twice.items():
        shown = ", ".join(operators[:_SHOWN]) + (
            f" and {len(operators) - _SHOWN} more" if len(operators) > _SHOWN else ""
        )
        found.append(
            BuildError.problem(
                f"{program} would end at its start: {shown} registered by {' and by '.join(by)}",
                code="audit.registered_twice",
                hint="A process can have one of them: take one library out of build.custom_ops, or give its operators a namespace of their own.",
            )
        )
    return found


def _absent(program: str, library: OperatorLibrary, provided: Sequence[str], archive: Path | None) -> Problem | None:
    """The problem of operators that the library speaks of and the program lacks, with what it has in their place."""
    absent = [operator for operator in library.operators if operator not in provided]
    if not absent:
        return None
    others = [name for name in provided if name.startswith(f"{library.namespace}::") and name not in library.operators]
    message = f"neither {program} nor what it loads registers {', '.join(absent)} of {library.name} ({library.root})"
    described = library.root / DESCRIPTION
    if others:
        close = [match for name in absent for match in difflib.get_close_matches(name, others, n=1, cutoff=0.5)]
        hint = f"Its sources register {', '.join(dict.fromkeys(close or others[:_SHOWN]))}: make them and {described} agree."
    elif archive is not None and not any(name.encode() in _content(archive) for name in absent):
        hint = (
            f"None of its sources names {'it' if len(absent) == 1 else 'them'}: list the source that does under sources: of {described}, "
            f'or register it there, as EXECUTORCH_LIBRARY({library.namespace}, "{absent[0].partition("::")[2]}", function).'
        )
    else:
        hint = (
            "Its sources name it, and the object that registers it is not in the program: it has to be a static object of namespace scope "
            "(EXECUTORCH_LIBRARY makes one), in a library that is linked whole."
        )
    return BuildError.problem(message, code="audit.not_registered", hint=hint)


def _named(
    program: str,
    operator: str,
    files: Sequence[str],
    libraries: Sequence[OperatorLibrary],
    archives: Mapping[str, Path],
) -> tuple[str, ...]:
    """Who registers the operator: shared libraries by their files, what is inside the program by the operator library it came from."""
    inside = files.count(program)
    named = registered_by(operator, libraries, archives)
    if inside and named:
        # one library may register it twice itself
        named += named[:1] * (inside - len(named))
        return (*named[:inside], *(file for file in files if file != program))
    return tuple(files)


def registered_by(operator: str, libraries: Sequence[OperatorLibrary], archives: Mapping[str, Path]) -> list[str]:
    """The libraries whose objects have the operator's name, each with its folder."""
    return [
        f"{library.name} ({library.root})"
        for library in libraries
        if library.name in archives and operator.encode() + b"\0" in _content(archives[library.name])
    ]


def _content(archive: Path) -> bytes:
    try:
        return archive.read_bytes()
    except OSError:
        return b""


def openmp_problems(program: str, loaded: Mapping[str, Path]) -> list[Problem]:
    """OpenMP runtimes inside more than one file of a process: each would start threads of its own."""
    having = [name for name, path in loaded.items() if any(mark in path.read_bytes() for mark in _OPENMP_MARKS)]
    if len(having) < 2:
        return []
    return [
        BuildError.problem(
            f"{program} would start with {len(having)} OpenMP runtimes: inside {', '.join(having)}",
            code="audit.openmp",
            hint="One process takes one: set build.openmp: off, or use an ExecuTorch without OpenMP.",
        )
    ]
