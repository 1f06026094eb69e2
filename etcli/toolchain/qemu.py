"""The user-mode emulator that runs a target's programs on another kind of machine."""

from __future__ import annotations

from pathlib import Path

from etcli.common.errors import ToolError
from etcli.tables.targets import Target
from etcli.toolchain.programs import NO_ANSWER, Program, answer, apt_hint, on_path, version_in


def find(target: Target) -> Path:
    """The emulator of `target`.

    Raises:
        ToolError: code `qemu.missing`; the hint is the apt line.
        ValueError: programs of this target need none.
    """
    if target.emulator is None:
        raise ValueError(f"target {target.name} has no emulator")
    path = on_path(target.emulator.program)
    if path is None:
        raise ToolError(
            f"{target.emulator.program} was not found; it runs {target.name} programs on this machine",
            code="qemu.missing",
            hint=apt_hint(target.emulator.apt),
        )
    return path


def verify(target: Target) -> Program:
    """The emulator of `target` and its version.

    Raises:
        ToolError: it is missing or does not start.
    """
    path = find(target)
    text = answer(path, "--version")
    version = version_in(text) if text else None
    if version is None:
        raise ToolError(
            f"{path} {NO_ANSWER}", code="qemu.broken", hint=apt_hint(target.emulator.apt if target.emulator else "")
        )
    return Program(path, version)
