"""bubblewrap, which gives a virtual device's programs a file tree of their own without root."""

from __future__ import annotations

from pathlib import Path

from etcli.common.errors import ToolError
from etcli.toolchain.programs import NO_ANSWER, Program, answer, apt_hint, on_path, version_in

_HINT_PACKAGE = "bubblewrap"


def find() -> Path:
    """The path of `bwrap`.

    Raises:
        ToolError: code `bubblewrap.missing`; the hint is the apt line.
    """
    path = on_path("bwrap")
    if path is None:
        raise ToolError(
            "bwrap (bubblewrap) was not found; virtual devices run their programs in it",
            code="bubblewrap.missing",
            hint=apt_hint(_HINT_PACKAGE),
        )
    return path


def verify() -> Program:
    """`bwrap` and its version.

    Raises:
        ToolError: it is missing or does not start.
    """
    path = find()
    text = answer(path, "--version")
    version = version_in(text) if text else None
    if version is None:
        raise ToolError(f"{path} {NO_ANSWER}", code="bubblewrap.broken", hint=apt_hint(_HINT_PACKAGE))
    return Program(path, version)
