"""One file of the stage for itself: machine, loader, name, run path, page size, and what Android's loader asks besides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from etcli.common.errors import BuildError, Problem
from etcli.manifests.build import ElfFacts
from etcli.tables.targets import Target

LENIENT = frozenset({"audit.alignment", "audit.run_path", "audit.libcxx", "audit.soname", "audit.text_relocations"})
"""What in a vendor's file, which nobody here can build again, is a warning. The alignment of the compiler's own C++ runtime is one too."""


def file_problems(
    name: str, elf: ElfFacts, target: Target, *, program: bool, api_level: int | None = None, where: str = "stage/"
) -> list[Problem]:
    """What is wrong with the staged file `name` for devices of `target`.

    Args:
        program: whether it is to be started, and not only loaded.
        api_level: of Android, that the build is for.
        where: what goes before the name in messages.
    """
    shown = f"{where}{name}"
    return [
        *_start_problems(shown, elf, target, program=program),
        *_name_problems(name, shown, elf, program=program),
        *_load_problems(name, shown, elf, target, api_level),
    ]


def _start_problems(shown: str, elf: ElfFacts, target: Target, *, program: bool) -> Iterator[Problem]:
    """For what machine it is, and whether a program can be started."""
    if elf.machine != target.machine:
        yield _problem(
            "audit.machine",
            f"{shown} is for {elf.machine}, {target.name} needs {target.machine}",
            "Build from nothing: add --clean. If it stays so, the compiler or the ExecuTorch package is of another target.",
        )
    if program and elf.interpreter != target.interpreter:
        yield _problem(
            "audit.interpreter",
            f"{shown} asks for the loader {elf.interpreter}, devices of {target.name} have {target.interpreter}",
            "Use the compiler that toolchains/targets.yaml names.",
        )
    if program and elf.kind != "ET_DYN":
        yield _problem(
            "audit.position",
            f"{shown} is no position-independent program ({elf.kind}); Android starts no other",
            "Remove -no-pie and -static from LDFLAGS and the project.",
        )


def _name_problems(name: str, shown: str, elf: ElfFacts, *, program: bool) -> Iterator[Problem]:
    """Whether loaders find it, and it what it needs."""
    if not program and elf.soname is not None and elf.soname != name:
        yield _problem("audit.soname", f"{shown} calls itself {elf.soname}", "Loaders look for that name.")
    for entry in elf.run_path.split(":") if elf.run_path is not None else ():
        if not (entry == "$ORIGIN" or entry.startswith("$ORIGIN/")):
            yield _problem(
                "audit.run_path",
                f"{shown} looks for libraries in {entry or 'the current folder'}, which is no folder of the device's",
                "Run paths must start with $ORIGIN; remove -rpath options from LDFLAGS and the project.",
            )
    for library in elf.needed:
        if "/" in library:
            yield _problem(
                "audit.host_path",
                f"{shown} needs {library}, by a path of this machine",
                f"{Path(library).name} was linked without a soname: link it with -Wl,-soname,{Path(library).name}.",
            )


def _load_problems(name: str, shown: str, elf: ElfFacts, target: Target, api_level: int | None) -> Iterator[Problem]:
    """What Android's loader refuses, and what an older Android has not."""
    if elf.load_alignment < target.min_load_alignment:
        yield _problem(
            "audit.alignment",
            f"{shown} has a segment aligned to {elf.load_alignment} bytes, {target.name} needs {target.min_load_alignment}",
            f"{name} comes with the compiler, as it is: take a newer NDK, or build.stl: c++_static."
            if name in target.runtime_libraries
            else f"Link it with -Wl,-z,max-page-size={target.min_load_alignment}.",
        )
    if elf.text_relocations:
        yield _problem(
            "audit.text_relocations",
            f"{shown} has text relocations, with which Android loads nothing",
            "Compile everything in it with -fPIC.",
        )
    if elf.android_api is not None and api_level is not None and elf.android_api > api_level:
        yield _problem(
            "audit.api_level",
            f"{shown} is built for Android API level {elf.android_api}, the build for {api_level}: older devices lack what it may call",
            f"Set build.api_level: {elf.android_api}, or build it for {api_level}.",
        )


def ndk_problems(facts: Mapping[str, ElfFacts]) -> list[Problem]:
    """Files that two releases of the NDK linked: their C++ libraries differ in what they offer (ExecuTorch #4384, #7491).

    The C++ runtime is none of `facts`: it comes with an NDK, linked by the one that its makers had.
    """
    by_ndk: dict[str, list[str]] = {}
    for name, elf in facts.items():
        if elf.ndk is not None:
            by_ndk.setdefault(elf.ndk, []).append(name)
    if len(by_ndk) < 2:
        return []
    mixed = "; ".join(f"{ndk}: {', '.join(sorted(names))}" for ndk, names in sorted(by_ndk.items()))
    return [
        _problem(
            "audit.ndk_mixed",
            f"the stage mixes releases of the NDK ({mixed})",
            "Build all of it, ExecuTorch too, with one NDK: add --clean, and make the prefix again.",
        )
    ]


def embedded_path_problems(name: str, path: Path, folders: Mapping[str, Path]) -> list[Problem]:
    """Folders of this machine, by what each is, that stand as text in what was compiled here: they tell of its user, and change with the place."""
    content = path.read_bytes()
    return [
        _problem(
            "audit.host_path",
            f"stage/{name} holds the path of {what} on this machine ({folder})",
            "A source uses __FILE__ or a definition with a path; the project's -ffile-prefix-map has to cover its folder.",
        )
        for what, folder in folders.items()
        if f"{folder}/".encode() in content
    ]


def _problem(code: str, message: str, hint: str) -> Problem:
    return BuildError.problem(message, code=code, hint=hint)
