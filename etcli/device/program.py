"""The adb program: which one, and how a person types it."""

from __future__ import annotations

import shlex
import shutil

from etcli.common.errors import ToolError


def adb_program() -> str:
    """Path of the adb program: the user's on PATH, else the one that came with adbutils.

    Raises:
        ToolError: there is none that starts.
    """
    import adbutils  # half a second of requests and Pillow, which the daemon of a virtual device never needs

    try:
        return str(adbutils.adb_path())
    except adbutils.AdbError:
        raise ToolError(
            "no adb program was found",
            code="adb.missing",
            hint="Install it (apt-get install adb), or reinstall adbutils.",
        ) from None


def adb_command() -> str:
    """How a person types adb here: `adb` where it is on PATH, else the path, quoted for the shell, of the one that etcli uses."""
    if shutil.which("adb"):
        return "adb"
    try:
        return shlex.quote(adb_program())
    except ToolError:
        return "adb"
