"""Operators and delegates: each one that was asked for is in what a program starts with, exactly once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from etcli.build.components import Component
from etcli.common.errors import BuildError, Problem
from etcli.tables.op_yaml import DESCRIPTION
from etcli.tables.operators import OperatorLibrary
from etcli.toolchain.registrations import Registrations

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


def delegate_problems(program: str, found: Set[str], libraries: Sequence[OperatorLibrary]) -> list[Problem]:
    """Delegates of `libraries` that are not among those which `program` registers with all that it loads."""
    return [
        BuildError.problem(
            f"{program} does not register {backend}, the delegate in {library.root}",
            code="audit.not_registered",
            hint="Its object has to be in the program: the library is to be linked whole. Build from nothing: add --clean.",
        )
        for library in libraries
        for backend in library.backends
        if backend not in found
    ]


def component_problems(
    parts: Sequence[Component], programs: Sequence[str], by_file: Mapping[str, Registrations]
) -> list[Problem]:
    """Parts of ExecuTorch that do not register what they were linked for.

    A part that is staged as a library has to have it itself; one that was linked statically leaves it in every program.
    """
    inside = [by_file[program] for program in programs if program in by_file]
    everywhere = {backend for registered in by_file.values() for backend in registered.backends}
    found = []
    for part in parts:
        own = by_file.get(part.library)
        absent = [backend for backend in part.backends if backend not in everywhere]
        if part.operators and not (
            own.operators if own is not None else inside and all(one.operators for one in inside)
        ):
            absent.append("any operator")
        found += [
            BuildError.problem(
                f"{part.library} does not register {what}, which the runner needs",
                code="audit.not_registered",
                hint="The ExecuTorch package is not the one expected; install it again.",
            )
            for what in absent
        ]
    return found
