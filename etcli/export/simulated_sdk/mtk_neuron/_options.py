"""The options of the simulated compiler: those that ExecuTorch's MediaTek backend passes, and no others."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PLATFORMS = ("mt6989", "mt6991", "mt6993")
"""What `--platform-config` takes; those that ExecuTorch's backend lets through."""

VALUES: Mapping[str, tuple[str, ...]] = {
    "--opt": ("0", "1", "2", "3"),
    "--platform-config": PLATFORMS,
    "--gno": ("LTS",),
    "--dla-opt": ("0",),
}
"""Options with a value, and the values that are known."""

SWITCHES = ("--relax-fp32", "--gno-exp", "--gno-non-4d-tiling")
"""Options without one."""


class CompileError(RuntimeError):
    """The simulated compiler refuses."""


@dataclass(frozen=True)
class Options:
    """A line of options that was accepted: its words as they were given, and the platform."""

    words: tuple[str, ...]
    platform: str


def read_options(line: str) -> Options:
    """Read a line of options, separated by blanks.

    Raises:
        CompileError: all that is wrong with it: an option that is unknown or given twice, a value that is missing or not one of the
            known, no platform.
    """
    if not isinstance(line, str):
        raise CompileError(f"simulated compiler: options are one text, not {type(line).__name__}")
    words = line.split()
    wrong, platform = wrong_options(words), _platform(words)
    if platform is None:
        wrong.append(f"--platform-config is missing; it takes one of {', '.join(PLATFORMS)}")
    if platform is None or wrong:
        raise CompileError(f"simulated compiler: {'; '.join(wrong)}")
    return Options(tuple(words), platform)


def wrong_options(words: Sequence[str]) -> list[str]:
    """What is wrong with each of `words`, as `--gno=LTS`."""
    wrong: list[str] = []
    found: set[str] = set()
    for word in words:
        name, equals, value = word.partition("=")
        if name in found:
            wrong.append(f"{name} is given twice")
        elif name in SWITCHES:
            if equals:
                wrong.append(f"{name} takes no value, and has {value!r}")
        elif name in VALUES:
            if value not in VALUES[name]:
                given = f"not {value!r}" if equals else "and has none"
                wrong.append(f"{name} takes one of {', '.join(VALUES[name])}, {given}")
        else:
            near = difflib.get_close_matches(name, [*VALUES, *SWITCHES], n=1)
            wrong.append(f"unknown option {word!r}" + (f" (did you mean {near[0]}?)" if near else ""))
        found.add(name)
    return wrong


def _platform(words: Sequence[str]) -> str | None:
    given = [word.partition("=")[2] for word in words if word.partition("=")[0] == "--platform-config"]
    return given[0] if given else None
