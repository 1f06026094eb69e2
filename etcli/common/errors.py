"""Failures a user can meet: each is one or more problems with a stable code, a place and a remedy.

Exit codes are those of the command-line reference in `docs/cli.md`. A stage raises the subclass that carries its exit code;
`Problems` collects several so that all are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import ClassVar, TypeVar

T = TypeVar("T")


class ExitCode(IntEnum):
    """Process exit codes, part of the public command line."""

    OK = 0
    FAULT = 1
    USAGE = 2
    ENVIRONMENT = 3
    DEVICE = 4
    CHECKPOINT = 5
    EXPORT = 6
    BUILD = 7
    DEPLOY = 8
    RUN = 9
    MISMATCH = 10
    WORSE = 11
    INTERRUPTED = 130


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    `code` is a stable dotted word (`recipe.unknown_key`), `message` says what happened, `hint` what to do about it;
    `file`, `line` and `column` (both from 1) say where, when there is such a place.
    """

    code: str
    message: str
    hint: str | None = None
    file: Path | None = None
    line: int | None = None
    column: int | None = None
    exit_code: ExitCode = ExitCode.FAULT

    @property
    def place(self) -> str:
        """`file:line:column` as far as known, or an empty string."""
        if self.file is None:
            return ""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)


class EtcliError(Exception):
    """Base of every expected failure. Carries one or more `Problem`s; the process exits with the lowest code among them."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAULT

    def __init__(
        self,
        message: str,
        *,
        code: str,
        hint: str | None = None,
        file: Path | str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(message)
        self.problems: tuple[Problem, ...] = (
            Problem(
                code=code,
                message=message,
                hint=hint,
                file=Path(file) if file is not None else None,
                line=line,
                column=column,
                exit_code=self.exit_code,
            ),
        )

    @classmethod
    def many(cls, problems: Iterable[Problem]) -> EtcliError:
        """One error out of several problems, which keep their own exit codes."""
        found = tuple(problems)
        if not found:
            raise ValueError("an error needs at least one problem")
        error = cls.__new__(cls)
        Exception.__init__(error, "\n".join(problem.message for problem in found))
        error.problems = found
        return error

    @classmethod
    def problem(
        cls,
        message: str,
        *,
        code: str,
        hint: str | None = None,
        file: Path | str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> Problem:
        """A `Problem` with this class's exit code, to be collected and raised later with `many`."""
        return cls(message, code=code, hint=hint, file=file, line=line, column=column).problems[0]

    @property
    def exit(self) -> ExitCode:
        """The lowest non-zero exit code among the problems."""
        return min(problem.exit_code for problem in self.problems)


class UsageError(EtcliError):
    """A flag or argument is wrong, or an earlier stage's output is missing or outdated (exit 2)."""

    exit_code = ExitCode.USAGE


class RecipeError(UsageError):
    """The recipe is wrong (exit 2)."""


class StaleError(UsageError):
    """An earlier stage's output is missing or outdated (exit 2); the hint is the command to type."""


class ToolError(EtcliError):
    """Something this machine needs is missing or of the wrong version (exit 3)."""

    exit_code = ExitCode.ENVIRONMENT


class DeviceError(EtcliError):
    """No device, several devices, unauthorised, offline, or the wrong kind (exit 4)."""

    exit_code = ExitCode.DEVICE


class CheckpointError(EtcliError):
    """The checkpoint or tokenizer is wrong (exit 5)."""

    exit_code = ExitCode.CHECKPOINT


class ExportError(EtcliError):
    """Export failed (exit 6)."""

    exit_code = ExitCode.EXPORT


class BuildError(EtcliError):
    """Build or its audit failed (exit 7)."""

    exit_code = ExitCode.BUILD


class DeployError(EtcliError):
    """Deploy failed, or was refused because bundle, build and device do not fit (exit 8)."""

    exit_code = ExitCode.DEPLOY


class RunError(EtcliError):
    """The runner failed on the device (exit 9)."""

    exit_code = ExitCode.RUN


class MismatchError(EtcliError):
    """The program ran, but its tokens differ from the reference (exit 10)."""

    exit_code = ExitCode.MISMATCH


class WorseError(EtcliError):
    """A benchmark is worse than it may be (exit 11)."""

    exit_code = ExitCode.WORSE


class InterruptedByUser(EtcliError):
    """Stopped by Ctrl-C or a termination signal (exit 130)."""

    exit_code = ExitCode.INTERRUPTED


class Problems:
    """Collects problems so that a check can go on after the first and report all at once."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, problem: Problem | None) -> None:
        """Keep `problem`, if there is one."""
        if problem is not None:
            self.found.append(problem)

    def absorb(self, error: EtcliError) -> None:
        """Keep everything `error` carries."""
        self.found.extend(error.problems)

    def attempt(self, action: Callable[[], T]) -> T | None:
        """What `action` gives; None where it raises an `EtcliError`, whose problems are kept."""
        try:
            return action()
        except EtcliError as error:
            self.absorb(error)
            return None

    def __bool__(self) -> bool:
        return bool(self.found)

    def raise_if_any(self, kind: type[EtcliError] = EtcliError) -> None:
        """Raise all that was collected as one error of class `kind`; the problems keep their own exit codes.

        Raises:
            EtcliError: when at least one problem was collected.
        """
        if self.found:
            raise kind.many(self.found)
