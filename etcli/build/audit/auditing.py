"""The whole audit of a stage: each file for itself, then what they are to one another and to the processes that they make up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from etcli.toolchain.registrations import read_registrations


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
    facts: dict[str, ElfFacts] = {}
    symbols: dict[str, DynamicSymbols] = {}
    names = sorted(path.name for path in stage.iterdir())
    for name in names:
        if not is_elf(stage / name):
            problems.add(_problem("audit.not_elf", f"stage/{name} is not an ELF file", "Nothing else belongs there."))
            continue
        try:
            elf, has = read_elf(stage / name, error=BuildError), read_dynamic_symbols(stage / name, error=BuildError)
        except EtcliError as error:
            problems.absorb(error)
        else:
            facts[name], symbols[name] = elf, has
    for program in (*programs, *apps):
        if program not in names:
            problems.add(
                _problem("audit.missing_program", f"the build left no {program}", "See native/runner/CMakeLists.txt.")
            )
    for name, why in opened.items():
        if name not in names:
            problems.add(_problem("audit.missing_library", f"the build left no {name} ({why})", "Add --clean."))
    roots = (*programs, *apps, *opened)
    missing = {name for name in users_of(facts) if name not in facts and not target.is_system_library(name)}
    for name, elf in facts.items():
        found = file_problems(name, elf, target, program=name in programs, api_level=api_level)
        found += symbol_problems(name, symbols, facts, roots, missing)
        for problem in found:
            lenient = name in vendor or (name in target.runtime_libraries and problem.code == "audit.alignment")
            (warnings if lenient and problem.code in LENIENT else problems).add(problem)
    for name in (name for name in (*programs, *apps) if name in facts):
        for problem in embedded_path_problems(name, stage / name, folders or {}):
            problems.add(problem)
    ours = {name: elf for name, elf in facts.items() if name not in vendor}
    by_file = {name: read_registrations(stage / name, error=BuildError) for name in facts}
    found = [
        *ndk_problems({name: elf for name, elf in ours.items() if name not in target.runtime_libraries}),
        *closure_problems(facts, target, roots, api_level),
        *version_problems(stage, facts),
        *component_problems(parts, programs, by_file),
        *openmp_library_problems(facts),
        *exported_runtime_problems({name: symbols[name] for name in ours}, target.runtime_libraries),
    ]
    for program in (name for name in (*programs, *apps) if name in facts):
        loaded = sorted(loaded_by([program], facts))
        delegates = {backend for name in loaded for backend in by_file[name].backends}
        found += operator_problems(
            program, {name: by_file[name].operators for name in loaded}, libraries, archives or {}
        )
        found += delegate_problems(program, delegates, libraries)
        found += openmp_problems(program, {name: stage / name for name in loaded})
        found += registry_problems(program, {name: stage / name for name in loaded}, symbols)
        found += cxx_runtime_problems(program, {name: stage / name for name in loaded if name not in vendor})
    for problem in found:
        problems.add(problem)
    users = users_of(facts)
    reasons = {
        **{name: "program" if name in programs else needed_by(users.get(name, ())) for name in names},
        **dict.fromkeys(apps, "library for apps"),
        **opened,
    }
    return Audit(
        facts,
        reasons,
        tuple(sorted({operator for registered in by_file.values() for operator in registered.operators})),
        tuple(sorted({backend for registered in by_file.values() for backend in registered.backends})),
        tuple(problems.found),
        tuple(warnings.found),
        tuple(name for name in opened if name in facts),
    )


def _problem(code: str, message: str, hint: str) -> Problem:
    return BuildError.problem(message, code=code, hint=hint)
