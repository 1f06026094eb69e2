"""Which CPU features what was compiled may use: those of the floor alone, but in files that are chosen from while a program runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import BuildError, Problem
from etcli.tables.cpu import dispatched_options, instructions
from etcli.tables.op_yaml import DESCRIPTION
from etcli.tables.operators import OperatorLibrary
from etcli.tables.targets import Target

COMPILE_COMMANDS = "compile_commands.json"


@dataclass(frozen=True)
class CpuUse:
    """What the commands of a build make use of.

    `needed` are the words that /proc/cpuinfo of a device has to list, beyond what every device of the ABI has; `dispatched` are files, with their
    features, whose functions are called only where the CPU has them.
    """

    needed: tuple[str, ...]
    dispatched: Mapping[str, tuple[str, ...]]
    problems: tuple[Problem, ...]


def cpu_use(tree: Path, target: Target, libraries: Sequence[OperatorLibrary], floor: Sequence[str]) -> CpuUse:
    """Compare every command in `tree`'s compile_commands.json with what a build for `target` may use.

    Args:
        libraries: their `architectures` are the files that are chosen from at run time, each with the flags that it may have.
        floor: compiler options whose features every device of the recipe has, as `-march=armv8.2-a+dotprod`.

    Raises:
        BuildError: code `audit.compile_commands`: the file is not there, or not what CMake writes.
    """
    path = tree / COMPILE_COMMANDS
    known = instructions(target.abi)
    allowed = known.used(floor)
    chosen = {
        library.root / name: (library, flags)
        for library in libraries
        for name, flags in library.special(target.triple).items()
    }
    needed: frozenset[str] = frozenset()
    dispatched: dict[str, tuple[str, ...]] = {}
    above: dict[tuple[str, ...], list[Path]] = {}
    problems = []
    for file, arguments in _commands(path):
        used = known.used(arguments)
        if file in chosen:
            library, flags = chosen[file]
            shown = f"{library.root.name}/{file.relative_to(library.root)}"
        else:
            flags, shown = dispatched_options(file), "/".join(file.parts[-4:])
        if flags:
            beyond = used - allowed - known.used(flags)
            if used - allowed:
                dispatched[shown] = tuple(sorted(used - allowed))
        else:
            beyond = used - allowed
            needed |= used & allowed
        if beyond:
            above.setdefault(tuple(sorted(beyond)), []).append(file)
    for features, files in above.items():
        problems.append(_problem(features, files, target, floor, path))
    return CpuUse(known.in_cpuinfo(needed), dispatched, tuple(problems))


def _problem(
    features: tuple[str, ...], files: Sequence[Path], target: Target, floor: Sequence[str], path: Path
) -> Problem:
    more = f" and {len(files) - 1} more files" if len(files) > 1 else ""
    what = ", ".join(features)
    least = (
        f"{', '.join(floor)} (the recipe's chip)"
        if floor
        else f"{instructions(target.abi).baseline}, all that every device has"
    )
    return BuildError.problem(
        f"{files[0]}{more} may use {what} of the CPU, and the floor for {target.name} is {least}",
        code="audit.cpu_features",
        hint="A device without it ends the program with an illegal instruction. Take the -march or -mcpu out, or put the source under architectures "
        f"of its {DESCRIPTION}, where the version to run is chosen on the device.",
        file=path,
    )


def _commands(path: Path) -> list[tuple[Path, list[str]]]:
    try:
        entries = json.loads(path.read_bytes())
        return [
            (
                Path(entry["directory"], entry["file"]),
                entry["arguments"] if "arguments" in entry else shlex.split(entry["command"]),
            )
            for entry in entries
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BuildError(
            f"the compiler's commands cannot be read: {error}",
            code="audit.compile_commands",
            hint="CMAKE_EXPORT_COMPILE_COMMANDS has to stay ON. Build from nothing: add --clean.",
            file=path,
        ) from None
