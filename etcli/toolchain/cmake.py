"""CMake: the wheel's program in this Python's environment, else the one on PATH."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from etcli.common.errors import UsageError
from etcli.toolchain.programs import WheelProgram

MINIMUM = "3.28"
"""ExecuTorch's package defines no targets below this: older versions write `$ORIGIN` wrong (executorch-config.cmake)."""

_CMAKE = WheelProgram("cmake", MINIMUM, f"cmake>={MINIMUM}")

find = _CMAKE.find
verify = _CMAKE.verify

# What CMake and compilers take out of the environment would enter a build unseen, and its result with it: none of it is passed on.
# Launchers (ccache) change only how fast it is.
_UNSEEN = re.compile(
    r"(C|CXX|CPP|LD|ASM)FLAGS|CMAKE_\w+(?<!_LAUNCHER)|DESTDIR|NINJAFLAGS"
    r"|CPATH|C(PLUS)?_INCLUDE_PATH|LIBRARY_PATH|COMPILER_PATH|GCC_EXEC_PREFIX|LD_RUN_PATH"
)


# Measured with CMake 4.4 and Ninja 1.13: every other printable character goes through.
_MARKS = ('"', "\\", ";", "|", "${", "$<")


def check_path(folder: Path, hint: str) -> None:
    """Refuse folders whose names CMake or Ninja would take for something of their own, whatever the quoting.

    Raises:
        UsageError: code `build.path`, with `hint`.
    """
    found = [mark for mark in _MARKS if mark in str(folder)]
    if found:
        raise UsageError(
            f"CMake cannot build in {folder}: the path has {' and '.join(found)} in it", code="build.path", hint=hint
        )


def hidden_variables() -> list[str]:
    """Variables of the environment that a build must not depend on, and that CMake is therefore started without."""
    return [name for name in os.environ if _UNSEEN.fullmatch(name)]


def cache_value(cache: Path, name: str) -> str | None:
    """The value of a variable in a CMakeCache.txt, or None."""
    with contextlib.suppress(OSError):
        for line in cache.read_text(encoding="utf-8", errors="replace").splitlines():
            key, separator, value = line.partition("=")
            if separator and key.partition(":")[0] == name:
                return value
    return None
