"""Ninja: the wheel's program in this Python's environment, else the one on PATH; and its output as progress."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

from etcli.output.console import Console
from etcli.toolchain.programs import WheelProgram

MINIMUM = "1.10"
"""CMake's oldest Ninja with dyndep and restat as its generator expects them."""

_NINJA = WheelProgram("ninja", MINIMUM, "ninja")

find = _NINJA.find
verify = _NINJA.verify

STATUS = "[%f/%t] "
"""What NINJA_STATUS has to be for `progress`: finished of all steps."""

_STATUS = re.compile(r"\[(\d+)/(\d+)\] ")


@contextlib.contextmanager
def progress(title: str, console: Console | None) -> Iterator[Callable[[str], None]]:
    """Gives a function that takes Ninja's output line by line and shows how much of its work is done; without a console it shows nothing."""
    with contextlib.ExitStack() as stack:
        advance: Callable[[float], None] | None = None
        done = 0

        def on_line(line: str) -> None:
            nonlocal advance, done
            match = _STATUS.match(line)
            if match is None or console is None:
                return
            if advance is None:
                advance = stack.enter_context(console.progress(title, int(match[2])))
            advance(int(match[1]) - done)
            done = int(match[1])

        yield on_line
