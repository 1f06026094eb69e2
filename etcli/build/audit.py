"""The audit of `stage/`: whether what came out of a build can start on its target, every fault reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.build.components import Component
from etcli.build.operator_audit import OPENMP_LIBRARY, openmp_problems, operator_problems
from etcli.common.errors import BuildError, EtcliError, Problem, Problems
from etcli.manifests.build import ElfFacts
from etcli.tables.operators import OperatorLibrary
from etcli.tables.targets import Target
from etcli.toolchain.elf import is_elf, read_elf, read_symbol_versions
from etcli.toolchain.registrations import read_registrations


@dataclass(frozen=True)
class Audit:
    """What the audit saw. `reasons` says why each file is in the stage; `problems` is empty for a good build."""

    facts: Mapping[str, ElfFacts]
    reasons: Mapping[str, str]
    operators: tuple[str, ...]
    backends: tuple[str, ...]
    problems: tuple[Problem, ...]


def audit(
    stage: Path,
    target: Target,
    programs: Sequence[str],
    parts: Sequence[Component],
    libraries: Sequence[OperatorLibrary] = (),
    archives: Mapping[str, Path] | None = None,
    simulated: Sequence[str] = (),
) -> Audit:
    """Read every file of `stage` and compare it with what `target` needs. Raises nothing for a bad file; see `Audit.problems`.

    Each program must come with all operators and delegates of `libraries`, and with no operator twice, whoever registers it; and with one
    OpenMP runtime at most, inside itself. `archives`, the static library of each of `libraries` by its name, tell which of them a program has an operator from.
    `simulated` are the simulated NPU's libraries, which programs open while they run.
    """
    problems = Problems()
    facts: dict[str, ElfFacts] = {}
    names = sorted(path.name for path in stage.iterdir())
    for name in names:
        if not is_elf(stage / name):
            problems.add(_problem("audit.not_elf", f"stage/{name} is not an ELF file", "Nothing else belongs there."))
            continue
        try:
            facts[name] = read_elf(stage / name, error=BuildError)
        except EtcliError as error:
            problems.absorb(error)
    for program in programs:
        if program not in names:
            problems.add(
                _problem("audit.missing_program", f"the build left no {program}", "See native/runner/CMakeLists.txt.")
            )
    for name in simulated:
        if name not in names:
            problems.add(
                _problem("audit.missing_library", f"the build left no {name} of the simulated NPU", "Add --clean.")
            )
    for name, elf in facts.items():
        for problem in _file_problems(name, elf, target, program=name in programs):
            problems.add(problem)
    users = _users(facts)
    for problem in _closure_problems(facts, users, target, (*programs, *simulated)):
        problems.add(problem)
    for problem in _version_problems(stage, facts):
        problems.add(problem)
    operators: set[str] = set()
    backends: set[str] = set()
    by_file = {name: read_registrations(stage / name, error=BuildError) for name in facts}
    for registered in by_file.values():
        operators.update(registered.operators)
        backends.update(registered.backends)
    for part in parts:
        found = by_file.get(part.library)
        absent = [backend for backend in part.backends if backend not in backends]
        if part.operators and (found is None or not found.operators):
            absent.append("any operator")
        for what in absent:
            problems.add(
                _problem(
                    "audit.not_registered",
                    f"{part.library} does not register {what}, which the runner needs",
                    "The ExecuTorch package is not the one expected; install its wheel again.",
                )
            )
    for program in (name for name in programs if name in facts):
        loaded = {name: by_file[name].operators for name in sorted(_loaded_by(program, facts))}
        for problem in operator_problems(program, loaded, libraries, archives or {}):
            problems.add(problem)
        delegates = {backend for name in loaded for backend in by_file[name].backends}
        for problem in _delegate_problems(program, delegates, libraries):
            problems.add(problem)
        for problem in openmp_problems(program, {name: stage / name for name in loaded}):
            problems.add(problem)
    for problem in _openmp_libraries(facts):
        problems.add(problem)
    reasons = {
        **{name: "program" if name in programs else _needed_by(users.get(name, ())) for name in names},
        **dict.fromkeys(simulated, "simulated NPU, opened while a program runs"),
    }
    return Audit(facts, reasons, tuple(sorted(operators)), tuple(sorted(backends)), tuple(problems.found))


def _delegate_problems(program: str, found: set[str], libraries: Sequence[OperatorLibrary]) -> list[Problem]:
    return [
        _problem(
            "audit.not_registered",
            f"{program} does not register {backend}, the delegate in {library.root}",
            "Its object has to be in the program: the library is to be linked whole. Build from nothing: add --clean.",
        )
        for library in libraries
        for backend in library.backends
        if backend not in found
    ]


def _file_problems(name: str, elf: ElfFacts, target: Target, *, program: bool) -> list[Problem]:
    found = []
    if elf.machine != target.machine:
        found.append(
            _problem(
                "audit.machine",
                f"stage/{name} is for {elf.machine}, {target.name} needs {target.machine}",
                "Build from nothing: add --clean. If it stays so, the compiler or the ExecuTorch package is of another target.",
            )
        )
    if program and elf.interpreter != target.interpreter:
        found.append(
            _problem(
                "audit.interpreter",
                f"stage/{name} asks for the loader {elf.interpreter}, devices of {target.name} have {target.interpreter}",
                "Use the compiler that toolchains/targets.yaml names.",
            )
        )
    if not program and elf.soname is not None and elf.soname != name:
        found.append(_problem("audit.soname", f"stage/{name} calls itself {elf.soname}", "Loaders look for that name."))
    for entry in (elf.run_path or "").split(":") if elf.run_path is not None else ():
        if not (entry == "$ORIGIN" or entry.startswith("$ORIGIN/")):
            found.append(
                _problem(
                    "audit.run_path",
                    f"stage/{name} looks for libraries in {entry or 'the current folder'}, which is no folder of the device's",
                    "Run paths must start with $ORIGIN; remove -rpath options from LDFLAGS and the project.",
                )
            )
    if elf.load_alignment < target.min_load_alignment:
        found.append(
            _problem(
                "audit.alignment",
                f"stage/{name} has a segment aligned to {elf.load_alignment} bytes, {target.name} needs {target.min_load_alignment}",
                f"Link it with -Wl,-z,max-page-size={target.min_load_alignment}.",
            )
        )
    return found


def _users(facts: Mapping[str, ElfFacts]) -> dict[str, list[str]]:
    users: dict[str, list[str]] = {}
    for name, elf in facts.items():
        for library in elf.needed:
            users.setdefault(library, []).append(name)
    return users


def _closure_problems(
    facts: Mapping[str, ElfFacts], users: Mapping[str, Sequence[str]], target: Target, roots: Sequence[str]
) -> list[Problem]:
    """Libraries that are needed and not there, and those that none of `roots` (programs, and what they open themselves) leads to."""
    found = []
    for library, by in sorted(users.items()):
        if library not in facts and not target.is_system_library(library) and not OPENMP_LIBRARY.match(library):
            found.append(
                _problem(
                    "audit.missing_library",
                    f"{library} is neither in stage/ nor on every {target.name} device; {_needed_by(by)}",
                    "It has to be staged: an install() rule in native/runner/CMakeLists.txt, or a static library instead.",
                )
            )
    loaded = [_loaded_by(name, facts) for name in roots if name in facts]
    for name in sorted(set(facts).difference(*loaded)):
        found.append(
            _problem(
                "audit.never_loaded",
                f"no program loads stage/{name}, so nothing in it is registered",
                "The linker dropped it; check the link options of its target (--no-as-needed).",
            )
        )
    return found


def _openmp_libraries(facts: Mapping[str, ElfFacts]) -> list[Problem]:
    """Files that need a shared OpenMP runtime, which no device has."""
    return [
        _problem(
            "audit.openmp",
            f"stage/{name} needs {library}, which devices lack",
            "Set build.openmp: static, and openmp: true in the op.yaml of what uses it; remove -fopenmp from everything else.",
        )
        for name, elf in facts.items()
        for library in elf.needed
        if OPENMP_LIBRARY.match(library)
    ]


def _loaded_by(program: str, facts: Mapping[str, ElfFacts]) -> set[str]:
    """The program and every staged library that it loads, through others too."""
    loaded: set[str] = set()
    open_ends = [program]
    while open_ends:
        name = open_ends.pop()
        if name not in loaded:
            loaded.add(name)
            open_ends += [library for library in facts[name].needed if library in facts]
    return loaded


def _version_problems(stage: Path, facts: Mapping[str, ElfFacts]) -> list[Problem]:
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
                    _problem(
                        "audit.symbol_version",
                        f"stage/{name} needs {', '.join(absent)} of {library}, which is too old for it",
                        "Use a newer compiler: its C++ runtime is what is staged.",
                    )
                )
    return found


def _needed_by(names: Sequence[str]) -> str:
    return f"needed by {', '.join(sorted(names))}" if names else "needed by none"


def _problem(code: str, message: str, hint: str) -> Problem:
    return BuildError.problem(message, code=code, hint=hint)
