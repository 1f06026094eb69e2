"""What the run stage asks of a kind of runner: its command line, and its output as events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from etcli.run.events import AnyEvent


@dataclass(frozen=True)
class Job:
    """One run. Paths are of the device; `ids_file` is set where the prompt is too long for a command line."""

    program: str
    folder: str
    prompt_ids: tuple[int, ...]
    ids_file: str | None
    max_new_tokens: int
    threads: int | None
    ignore_stop_ids: bool


class Runner(Protocol):
    """A kind of runner, as `run.runner` of a recipe names it."""

    @property
    def program(self) -> str:
        """Its file in the deployment's `bin/`."""

    def argv(self, job: Job) -> list[str]:
        """The program and its arguments, to be started in `job.folder`."""

    def parse(self, line: str) -> AnyEvent:
        """A line of its stdout.

        Raises:
            RunError: the line claims to be an event and is not a valid one.
        """
