"""Ninja: the wheel's program in this Python's environment, else the one on PATH."""

from __future__ import annotations

from pathlib import Path

from etcli.common.errors import ToolError
from etcli.toolchain.programs import Program, checked_version, in_environment, missing

MINIMUM = "1.10"
"""CMake's oldest Ninja with dyndep and restat as its generator expects them."""

_HINT = "Install it beside etcli: python -m pip install ninja"


def find() -> Path:
    """The path of `ninja`, unverified.

    Raises:
        ToolError: code `ninja.missing`.
    """
    path = in_environment("ninja")
    if path is None:
        raise ToolError.many([missing("ninja", code="ninja", hint=_HINT)])
    return path


def verify() -> Program:
    """`ninja` and its version.

    Raises:
        ToolError: it is missing, does not start, or is older than `MINIMUM`.
    """
    return checked_version(find(), MINIMUM, code="ninja", hint=_HINT)
