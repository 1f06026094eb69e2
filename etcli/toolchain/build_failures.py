"""What a failed CMake or compiler run said, cut down to the first real errors, with the remedy where it is a known one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from etcli.tables.known_errors import explain_text

_SHOWN = 6
_CMAKE_ERROR = re.compile(r"CMake Error\b")
_CMAKE_END = re.compile(r"-- |Call Stack|CMake (?:Error|Warning|Deprecation)")
_COMPILER = re.compile(
    r"(?::\s(?:fatal )?error:\s)|undefined reference to|cannot find -l|\bld(?:\.\w+)?: |multiple definition of"
    r"|No space left on device|Killed|internal compiler error|^ninja: error:|virtual memory exhausted"
)
_NOISE = re.compile(r": warning: |collect2: error: ld returned|^ninja: build stopped|In function `")


def configure_errors(log: Sequence[str]) -> list[str]:
    """The first CMake error of a configure log: its place and its message, joined and without blank lines."""
    for index, line in enumerate(log):
        if _CMAKE_ERROR.search(line):
            block = [line.strip()]
            for more in log[index + 1 :]:
                if _CMAKE_END.match(more):
                    break
                if more.strip():
                    block.append(more.strip())
            return block[:_SHOWN]
    return [line.strip() for line in log if line.strip()][-3:]


def compile_errors(log: Sequence[str]) -> list[str]:
    """The first lines of a build log that name an error, each once, in order; its last lines where none does."""
    found = dict.fromkeys(line.strip() for line in log if _COMPILER.search(line) and not _NOISE.search(line))
    return list(found)[:_SHOWN] or [line.strip() for line in log if line.strip()][-3:]


def remedy(errors: Sequence[str]) -> str | None:
    """What the first known message among the lines means and what to do about it, or None."""
    return next(iter(explain_text("\n".join(errors))), None)
