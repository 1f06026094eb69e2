"""The whole audit of a stage: each file for itself, then what they are to one another and to the processes that they make up."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.build.audit.closure import closure_problems, loaded_by, needed_by, users_of
from etcli.build.audit.files import LENIENT, embedded_path_problems, file_problems, ndk_problems
from etcli.build.audit.operators import component_problems, delegate_problems, operator_problems
from etcli.build.audit.runtimes import (
    cxx_runtime_problems,
    exported_runtime_problems,
    openmp_library_problems,
    openmp_problems,
    registry_problems,
)
from etcli.build.audit.symbols import symbol_problems, version_problems
from etcli.build.components import Component
from etcli.common.errors import BuildError, EtcliError, Problem, Problems
from etcli.manifests.build import ElfFacts
from etcli.tables.operators import OperatorLibrary
from etcli.tables.targets import Target
from etcli.toolchain.elf import DynamicSymbols, is_elf, read_dynamic_symbols, read_elf
from etcli.toolchain.registrations import Registrations, read_registrations


@dataclass(frozen=True)
class Audit:
    """What the audit saw. `reasons` says why each file is in the stage; `problems` is empty for a good build.

    `warnings` are faults of a vendor's files that may do no harm, and that nobody but the vendor can mend. `opened` are libraries that are opened
    by name while a program runs.
    """

    facts: Mapping[str, ElfFacts]
    reasons: Mapping[str, str]
    operators: tuple[str, ...]
    backends: tuple[str, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...] = ()
    opened: tuple[str, ...] = ()


def audit(
    stage: Path,
    target: Target,
    programs: Sequence[str],
    parts: Sequence[Component],
    libraries: Sequence[OperatorLibrary] = (),
    archives: Mapping[str, Path] | None = None,
    opened: Mapping[str, str] | None = None,
    *,
    vendor: Collection[str] = (),
    apps: Sequence[str] = (),
    api_level: int | None = None,
    folders: Mapping[str, Path] | None = None,
) -> Audit:
    """Read every file of `stage` and compare it with what `target` needs. Raises nothing for a bad file; see `Audit.problems`.

    Each program must come with all operators and delegates of `libraries`, and with no operator twice, whoever registers it; and with one
    OpenMP and one C++ runtime at most.

    Args:
        archives: the static library of each of `libraries` by its name; they tell which of them a program has an operator from.
        opened: libraries that programs open by name while they run, each with why it is there; nothing is linked with them.
        vendor: those of `opened` that are somebody else's.
        apps: libraries that make up a process by themselves, inside an app: what holds for programs holds for them.
        api_level: of Android, that the build is for.
        folders: of this machine, by what they are, whose paths must not be in what was compiled here (programs and `apps`).
    """
    opened = opened or {}
    problems, warnings = Problems(), Problems()
    names = sorted(path.name for path in stage.iterdir())
    read = _read(stage, names, problems)
    problems.found.extend(_absent(names, (*programs, *apps), opened))
    roots = (*programs, *apps, *opened)
    for name, problem in _of_each_file(read, target, programs, roots, api_level):
        lenient = name in vendor or (name in target.runtime_libraries and problem.code == "audit.alignment")
        (warnings if lenient and problem.code in LENIENT else problems).add(problem)
    processes = [name for name in (*programs, *apps) if name in read.facts]
    for name in processes:
        problems.found.extend(embedded_path_problems(name, stage / name, folders or {}))
    problems.found.extend(_of_all_together(read, target, roots, vendor, api_level))
    problems.found.extend(component_problems(parts, programs, read.registered))
    for name in processes:
        problems.found.extend(_of_process(name, read, libraries, archives or {}, vendor))
    users = users_of(read.facts)
    reasons = {
        **{name: "program" if name in programs else needed_by(users.get(name, ())) for name in names},
        **dict.fromkeys(apps, "library for apps"),
        **opened,
    }
    return Audit(
        read.facts,
        reasons,
        tuple(sorted({operator for found in read.registered.values() for operator in found.operators})),
        tuple(sorted({backend for found in read.registered.values() for backend in found.backends})),
        tuple(problems.found),
        tuple(warnings.found),
        tuple(name for name in opened if name in read.facts),
    )


@dataclass(frozen=True)
class _Read:
    """What the ELF files in `stage` say of themselves, by name."""

    stage: Path
    facts: dict[str, ElfFacts]
    symbols: dict[str, DynamicSymbols]
    registered: dict[str, Registrations]


def _read(stage: Path, names: Sequence[str], problems: Problems) -> _Read:
    """The files called `names`; those that cannot be read are among `problems` and nowhere else."""
    read = _Read(stage, {}, {}, {})
    for name in names:
        path = stage / name
        if not is_elf(path):
            problems.add(_problem("audit.not_elf", f"stage/{name} is not an ELF file", "Nothing else belongs there."))
            continue
        try:
            elf, has = read_elf(path, error=BuildError), read_dynamic_symbols(path, error=BuildError)
        except EtcliError as error:
            problems.absorb(error)
        else:
            read.facts[name], read.symbols[name] = elf, has
            read.registered[name] = read_registrations(path, error=BuildError)
    return read


def _absent(names: Sequence[str], processes: Sequence[str], opened: Mapping[str, str]) -> Iterator[Problem]:
    """What should be in the stage and is not."""
    for name in processes:
        if name not in names:
            yield _problem("audit.missing_program", f"the build left no {name}", "See native/runner/CMakeLists.txt.")
    for name, why in opened.items():
        if name not in names:
            yield _problem("audit.missing_library", f"the build left no {name} ({why})", "Add --clean.")


def _of_each_file(
    read: _Read, target: Target, programs: Sequence[str], roots: Sequence[str], api_level: int | None
) -> Iterator[tuple[str, Problem]]:
    """What is wrong with a file by itself, or with what it takes from the others, with its name."""
    missing = {name for name in users_of(read.facts) if name not in read.facts and not target.is_system_library(name)}
    for name, elf in read.facts.items():
        found = file_problems(name, elf, target, program=name in programs, api_level=api_level)
        found += symbol_problems(name, read.symbols, read.facts, roots, missing)
        for problem in found:
            yield name, problem


def _of_all_together(
    read: _Read, target: Target, roots: Sequence[str], vendor: Collection[str], api_level: int | None
) -> Iterator[Problem]:
    """What is wrong with the stage as a whole."""
    ours = [name for name in read.facts if name not in vendor]
    yield from ndk_problems({name: read.facts[name] for name in ours if name not in target.runtime_libraries})
    yield from closure_problems(read.facts, target, roots, api_level)
    yield from version_problems(read.stage, read.facts)
    yield from openmp_library_problems(read.facts)
    yield from exported_runtime_problems({name: read.symbols[name] for name in ours}, target.runtime_libraries)


def _of_process(
    program: str,
    read: _Read,
    libraries: Sequence[OperatorLibrary],
    archives: Mapping[str, Path],
    vendor: Collection[str],
) -> Iterator[Problem]:
    """What is wrong with the process that `program`, or a library of an app's, makes up with all that it loads."""
    files = {name: read.stage / name for name in sorted(loaded_by([program], read.facts))}
    backends = {backend for name in files for backend in read.registered[name].backends}
    yield from operator_problems(
        program, {name: read.registered[name].operators for name in files}, libraries, archives
    )
    yield from delegate_problems(program, backends, libraries)
    yield from openmp_problems(program, files)
    yield from registry_problems(program, files, read.symbols)
    yield from cxx_runtime_problems(program, {name: path for name, path in files.items() if name not in vendor})


def _problem(code: str, message: str, hint: str) -> Problem:
    return BuildError.problem(message, code=code, hint=hint)
