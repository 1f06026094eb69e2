"""The adb program: which one, and how a person types it."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from etcli.common import process
from etcli.common.errors import ToolError
from etcli.toolchain.programs import answer

_VERSION_SECONDS = 10.0
_VERSION = re.compile(r"Android Debug Bridge version \d+\.\d+\.(\d+)")


def adb_program() -> str:
    """Path of the adb program: `ADBUTILS_ADB_PATH`, the user's on PATH, or else the one that came with adbutils.

    That is the order of adbutils' own `adb_path`, told here without importing it, which takes as long as all the rest of `doctor`'s imports.

    Raises:
        ToolError: there is none that starts.
    """
    if named := os.environ.get("ADBUTILS_ADB_PATH"):
        return named
    for path in _candidates():
        if answer(path, "version"):
            return str(path)
    raise ToolError(
        "no adb program was found",
        code="adb.missing",
        hint="Install it (apt-get install adb), or reinstall adbutils.",
    )


def _candidates() -> Iterator[Path]:
    if found := shutil.which("adb"):
        yield Path(found)
    spec = importlib.util.find_spec("adbutils")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        yield Path(folder) / "binaries" / "adb"


def adb_program_version() -> int | None:
    """The number that the adb program compares with its server's, as 41; None where it does not tell."""
    try:
        done = process.run([adb_program(), "version"], timeout=_VERSION_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stdout)
    return int(found[1]) if found else None


def adb_command() -> str:
    """How a person types adb here: `adb` where it is on PATH, else the path, quoted for the shell, of the one that etcli uses."""
    if shutil.which("adb"):
        return "adb"
    try:
        return shlex.quote(adb_program())
    except ToolError:
        return "adb"
