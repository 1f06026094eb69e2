"""Whether the programs of a stage start, where this machine can run them: what no file tells, their own start does."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from etcli.build.audit.operators import registered_by
from etcli.common.errors import BuildError, Problem
from etcli.common.process import describe_exit, run
from etcli.tables.operators import OperatorLibrary
from etcli.tables.targets import Target
from etcli.toolchain import qemu
from etcli.toolchain.programs import on_path
from etcli.toolchain.registering_calls import repetitions

_SECONDS = 120.0
_AGAIN = re.compile(r"Re-registering (\w+::\w+(?:\.\w+)?)")
"""How ExecuTorch's registry says why it ends the process."""


def start_problems(
    stage: Path,
    target: Target,
    programs: Sequence[str],
    libraries: Sequence[OperatorLibrary],
    archives: Mapping[str, Path],
) -> list[Problem]:
    """Programs of `stage` that a signal ends when they are asked for their version, or that never answer.

    Programs of another processor run in the target's emulator; where that is not installed, or a target has none, nothing is tried.
    `archives`, the static library of each of `libraries` by its name, tell who registers an operator a second time.
    """
    runner = _runner(target)
    if runner is None:
        return []
    found = []
    for program in programs:
        try:
            done = run([*runner, stage / program, "--version"], timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            found.append(_problem(program, f"it says nothing within {_SECONDS:.0f} seconds"))
            continue
        if done.code >= 0:
            continue
        if (again := _AGAIN.search(done.stderr)) is not None:
            by = registered_by(again[1], libraries, archives)
            found.append(
                BuildError.problem(
                    f"{program} ends at its start: {again[1]} is registered twice{f' by {by[0]}' if len(by) == 1 else ''}",
                    code="audit.registered_twice",
                    hint="A process can have an operator once: remove one of the registrations from the source.",
                )
            )
            continue
        said = [line.strip() for line in done.stderr.splitlines() if line.strip() and not line.startswith("qemu: ")]
        found.append(_problem(program, ": ".join((describe_exit(done.code), *said[-1:]))))
    return found


def repetition_warnings(
    target: Target, libraries: Sequence[OperatorLibrary], archives: Mapping[str, Path]
) -> Iterator[Problem]:
    """Of the user's own libraries those that seem to register an operator twice, where no program of `target` can be started to see it."""
    if _runner(target) is not None:
        return
    for library in libraries:
        if not library.own or library.name not in archives:
            continue
        for found in repetitions(archives[library.name], error=BuildError):
            yield BuildError.problem(
                f"{library.name} ({library.root}) calls register_kernels {found.calls} times in a source that names {', '.join(found.operators)}: "
                "an operator that is registered twice ends the program at its start",
                code="audit.registered_twice",
                hint="Remove one of the registrations, unless they are for different types or one is never reached. A build for host starts the program.",
            )


def _problem(program: str, why: str) -> Problem:
    return BuildError.problem(
        f"{program} does not start: {why}",
        code="audit.start",
        hint="Look at what runs before main(): static objects of the operator libraries in build.custom_ops.",
    )


def _runner(target: Target) -> list[str | Path] | None:
    """What goes before a program of `target` to run it here, or None where that cannot be."""
    if not target.cmake.cross:
        return []
    if target.emulator is None or on_path(target.emulator.program) is None:
        return None
    root = ["-L", target.sysroot] if target.sysroot else []
    return [qemu.find(target), "-cpu", target.emulator.cpu, *root]
