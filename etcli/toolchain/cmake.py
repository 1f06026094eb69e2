"""CMake: the wheel's program in this Python's environment, else the one on PATH."""

from __future__ import annotations

from pathlib import Path

from etcli.common.errors import ToolError
from etcli.toolchain.programs import Program, checked_version, in_environment, missing

MINIMUM = "3.28"
"""ExecuTorch's package defines no targets below this: older versions write `$ORIGIN` wrong (executorch-config.cmake)."""

_HINT = "Install it beside etcli: python -m pip install 'cmake>=3.28'"


def find() -> Path:
    """The path of `cmake`, unverified, so that nothing is started.

    Raises:
        ToolError: code `cmake.missing`.
    """
    path = in_environment("cmake")
    if path is None:
        raise ToolError.many([missing("cmake", code="cmake", hint=_HINT)])
    return path


def verify() -> Program:
    """`cmake` and its version.

    Raises:
        ToolError: it is missing, does not start, or is older than `MINIMUM`.
    """
    return checked_version(find(), MINIMUM, code="cmake", hint=_HINT)
