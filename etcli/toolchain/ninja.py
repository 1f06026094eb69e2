"""Ninja: the wheel's program in this Python's environment, else the one on PATH."""

from __future__ import annotations

from etcli.toolchain.programs import WheelProgram

MINIMUM = "1.10"
"""CMake's oldest Ninja with dyndep and restat as its generator expects them."""

_NINJA = WheelProgram("ninja", MINIMUM, "ninja")

find = _NINJA.find
verify = _NINJA.verify
