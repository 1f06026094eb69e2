"""CMake: the wheel's program in this Python's environment, else the one on PATH."""

from __future__ import annotations

from etcli.toolchain.programs import WheelProgram

MINIMUM = "3.28"
"""ExecuTorch's package defines no targets below this: older versions write `$ORIGIN` wrong (executorch-config.cmake)."""

_CMAKE = WheelProgram("cmake", MINIMUM, f"cmake>={MINIMUM}")

find = _CMAKE.find
verify = _CMAKE.verify
