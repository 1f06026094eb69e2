"""Outside programs: found in this Python's environment or on PATH, asked for their version, or explained."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import Problem, ToolError
from etcli.common.process import run

_VERSION = re.compile(r"\d+(?:\.\d+)+")
_ANSWER_SECONDS = 20.0

NO_ANSWER = f"does not start, or does not tell its version within {_ANSWER_SECONDS:g} s"
"""What is said of a program that `answer` gives nothing of."""


@dataclass(frozen=True)
class Program:
    """A usable program: its absolute path and the version it gave, as numbers separated by dots."""

    path: Path
    version: str


def apt_hint(*packages: str) -> str:
    """The Debian and Ubuntu command that installs `packages`, with sudo where this user needs it."""
    prefix = "" if os.geteuid() == 0 else "sudo "
    return f"Install it: {prefix}apt-get install -y {' '.join(packages)}"


def in_environment(name: str) -> Path | None:
    """The program `name` that a wheel installed beside this Python, else the one on PATH, else None."""
    folders = os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)))
    return on_path(name, folders)


def on_path(name: str, folders: str | None = None) -> Path | None:
    """The program `name` on PATH (or in `folders`, separated like PATH), as an absolute path whose links are not resolved."""
    found = shutil.which(name, path=folders)
    return Path(found).absolute() if found else None


def answer(path: Path, *arguments: str) -> str | None:
    """What the program prints for `arguments`, stripped; None when it cannot be started, fails or hangs."""
    try:
        done = run([path, *arguments], timeout=_ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.ok else None


def version_in(text: str) -> str | None:
    """The first dotted version number in `text`."""
    match = _VERSION.search(text)
    return match[0] if match else None


def older(version: str, minimum: str) -> bool:
    """Whether `version` is below `minimum`, compared number by number."""

    def numbers(text: str) -> list[int]:
        return [int(word) for word in text.split(".")]

    return numbers(version) < numbers(minimum)


def checked_version(path: Path, minimum: str, *, code: str, hint: str) -> Program:
    """The program at `path`, provided that it starts and is not older than `minimum`.

    Raises:
        ToolError: `<code>.broken` or `<code>.too_old`, with `hint` as the remedy.
    """
    text = answer(path, "--version")
    version = version_in(text) if text is not None else None
    if version is None:
        raise ToolError(f"{path} {NO_ANSWER}", code=f"{code}.broken", hint=hint)
    if older(version, minimum):
        raise ToolError(
            f"{path} is version {version}, {minimum} is the oldest usable", code=f"{code}.too_old", hint=hint
        )
    return Program(path, version)


def missing(what: str, *, code: str, hint: str) -> Problem:
    """The problem of an absent program."""
    return ToolError.problem(f"{what} was not found", code=f"{code}.missing", hint=hint)


@dataclass(frozen=True)
class WheelProgram:
    """A program that a wheel brings: the one beside this Python, else the one on PATH, no older than `minimum`."""

    name: str
    minimum: str
    requirement: str

    @property
    def hint(self) -> str:
        """The pip line."""
        return f"Install it beside etcli: python -m pip install {shlex.quote(self.requirement)}"

    def find(self) -> Path:
        """Its path, unverified, so that nothing is started.

        Raises:
            ToolError: code `<name>.missing`.
        """
        path = in_environment(self.name)
        if path is None:
            raise ToolError.many([missing(self.name, code=self.name, hint=self.hint)])
        return path

    def verify(self) -> Program:
        """Its path and version.

        Raises:
            ToolError: it is missing, does not start, or is older than `minimum`.
        """
        return checked_version(self.find(), self.minimum, code=self.name, hint=self.hint)
