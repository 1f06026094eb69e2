"""The one place where argument lists, a folder and variables become text for a device's POSIX shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def command_text(argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None) -> str:
    """Text that makes a shell become the program `argv`, in the folder `cwd`, with the variables `env` on top of its own.

    The shell is replaced (`exec`): the signal with which adb's daemon ends a command that nobody listens to any more reaches the
    program itself. `argv[0]` is therefore a program, never a shell builtin.

    Raises:
        ValueError: there is no program, a word holds a NUL, a variable's name is none, `cwd` is not absolute.
    """
    if not argv or not argv[0] or argv[0].startswith("-"):
        raise ValueError(f"no program to run in {list(argv)!r}")
    steps = []
    if cwd is not None:
        if not cwd.startswith("/"):
            raise ValueError(f"{cwd!r} is not an absolute path")
        steps.append(f"cd {quote(cwd)}")
    for name, value in (env or {}).items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} cannot name a variable")
        steps.append(f"export {name}={quote(value)}")
    steps.append("exec " + " ".join(quote(word) for word in argv))
    return " && ".join(steps)


def script(text: str, *arguments: str) -> list[str]:
    """The argument list that runs the constant shell script `text`, whose `$1`, `$2`... are `arguments`. Values never go into the text."""
    return ["sh", "-c", text, "sh", *arguments]


def quote(word: str) -> str:
    """`word` as one word of a POSIX shell, whatever it holds.

    Raises:
        ValueError: it holds a NUL, which no argument can.
    """
    if "\0" in word:
        raise ValueError(f"{word!r} holds a NUL")
    return shlex.quote(word)
