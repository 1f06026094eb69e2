"""The C++ compiler of a target: found on PATH or in the NDK, asked what it builds for, or explained with the apt line."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from etcli.common.errors import ToolError
from etcli.tables.targets import Target
from etcli.toolchain.programs import NO_ANSWER, answer, apt_hint, older, on_path, version_in

_MINIMUM = {"gcc": "9.0", "clang": "9.0"}
"""Oldest releases whose C++17 library is complete, `std::filesystem` included, without an extra link library."""


@dataclass(frozen=True)
class Compiler:
    """A usable C++ compiler.

    `description` is the first line of its `--version`; `triple` what it builds for; `stamp` changes when the program is replaced.
    """

    path: Path
    kind: Literal["gcc", "clang"]
    version: str
    triple: str
    description: str
    stamp: str


def verify(target: Target, program: Path | None = None) -> Compiler:
    """The C++ compiler for `target`. For a native target `$CXX` goes before the table's names, as CMake itself has it.

    Args:
        program: the compiler to take instead: the NDK's, which builds for several targets and is told by CMake's toolchain file for which.

    Raises:
        ToolError: `compiler.missing`, `compiler.broken`, `compiler.wrong_target` or `compiler.too_old`; the hint is the apt line.
    """
    hint = apt_hint(target.compiler.apt) if target.compiler.apt else "Install a compiler for this target."
    chosen = "" if target.cmake.cross else os.environ.get("CXX", "")
    names = (chosen,) if chosen else target.compiler.cxx
    path = program or next((found for name in names if (found := on_path(name))), None)
    if path is None:
        where = "$CXX" if chosen else f"target {target.name}"
        raise ToolError(
            f"no C++ compiler for {where}: {' or '.join(names)} is not on PATH", code="compiler.missing", hint=hint
        )
    banner = answer(path, "--version")
    triple = None if banner is None else answer(path, "-dumpmachine")  # one that hangs is not asked twice
    first = banner.splitlines()[0] if banner else ""
    # Debian's GCC puts its package version in brackets before its own.
    version = version_in(first.rpartition(")")[2]) or version_in(first)
    if not triple or not version:
        if program is not None:
            hint = f"Install the NDK again, or name another: its programs have to run on this machine ({platform.system()} {platform.machine()})."
        raise ToolError(f"{path} {NO_ANSWER}, or is no compiler", code="compiler.broken", hint=hint)
    kind: Literal["gcc", "clang"] = "clang" if "clang" in first else "gcc"
    if program is not None:
        triple = target.triple
    elif triple.split("-")[0] != target.triple.split("-")[0]:
        raise ToolError(
            f"{path} builds for {triple}, target {target.name} needs {target.triple}",
            code="compiler.wrong_target",
            hint=hint,
        )
    if older(version, _MINIMUM[kind]):
        raise ToolError(
            f"{path} is {kind} {version}, {_MINIMUM[kind]} is the oldest usable", code="compiler.too_old", hint=hint
        )
    real = path.resolve().stat()
    return Compiler(path, kind, version, triple, first, f"{path.resolve()}:{real.st_size}:{real.st_mtime_ns}")
