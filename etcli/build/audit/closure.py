"""What files of the stage load of one another and of the device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from etcli.build.audit.runtimes import OPENMP_LIBRARY
from etcli.common.errors import BuildError, Problem
from etcli.manifests.build import ElfFacts
from etcli.tables.targets import Target


def users_of(facts: Mapping[str, ElfFacts]) -> dict[str, list[str]]:
    """Each needed library with the files that need it."""
    users: dict[str, list[str]] = {}
    for name, elf in facts.items():
        for library in elf.needed:
            users.setdefault(library, []).append(name)
    return users


def needed_by(names: Sequence[str]) -> str:
    """`needed by A, B`, for people."""
    return f"needed by {', '.join(sorted(names))}" if names else "needed by none"


def loaded_by(roots: Iterable[str], facts: Mapping[str, ElfFacts]) -> set[str]:
    """The files `roots` and every staged library that they load, through others too."""
    loaded: set[str] = set()
    open_ends = list(roots)
    while open_ends:
        name = open_ends.pop()
        if name not in loaded:
            loaded.add(name)
            open_ends += [library for library in facts[name].needed if library in facts]
    return loaded


def closure_problems(
    facts: Mapping[str, ElfFacts], target: Target, roots: Iterable[str], api_level: int | None = None
) -> list[Problem]:
    """Libraries that are needed and nowhere, and staged ones that none of `roots` (programs, and what is opened at run time) leads to."""
    found = []
    for library, by in sorted(users_of(facts).items()):
        if library in facts or "/" in library or OPENMP_LIBRARY.match(library):
            continue  # the last two have problems of their own
        since = target.system_library_since(library)
        if since is None:
            found.append(
                BuildError.problem(
                    f"{library} is neither in stage/ nor on every {target.name} device; {needed_by(by)}",
                    code="audit.missing_library",
                    hint="It has to be staged: an install() rule in native/runner/CMakeLists.txt, or a static library instead.",
                )
            )
        elif api_level is not None and since > api_level:
            found.append(
                BuildError.problem(
                    f"{library} is on devices from Android API level {since}, the build is for {api_level}; {needed_by(by)}",
                    code="audit.api_level",
                    hint=f"Set build.api_level: {since}, or open it while the program runs.",
                )
            )
    loaded = loaded_by((name for name in roots if name in facts), facts)
    for name in sorted(set(facts) - loaded):
        found.append(
            BuildError.problem(
                f"no program loads stage/{name}, so nothing in it is registered",
                code="audit.never_loaded",
                hint="The linker dropped it; check the link options of its target (--no-as-needed).",
            )
        )
    return found
