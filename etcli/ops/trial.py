"""A compiled library loaded on trial in a process of its own: what a library does while it is loaded can end the process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from etcli.common.errors import ToolError
from etcli.common.process import describe_exit, run

_SECONDS = 120.0


def tried_apart(code: str, argument: str, folder: Path, refused: Callable[[str], ToolError]) -> str:
    """What the Python program `code` prints, which loads a library, with `argument` as its only one and in `folder`.

    Args:
        refused: makes an error of the reason why the library cannot be used.

    Raises:
        ToolError: of `refused`: the process takes too long, or ends with another status than 0.
    """
    try:
        done = run([sys.executable, "-c", code, argument], cwd=folder, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise refused(f"loading it takes more than {_SECONDS:.0f} seconds") from None
    if not done.ok:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        # What a C++ exception says is followed by its stack, a Python one ends with it.
        words = next((line for line in said if "what():" in line), said[-1] if said else "")
        raise refused(": ".join(filter(None, ("the process that loads it ends", describe_exit(done.code), words))))
    return done.stdout
