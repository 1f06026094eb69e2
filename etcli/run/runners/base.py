"""What the run stage asks of a kind of runner: whether it can do the job, its command line, and its output as events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from etcli.manifests.bundle import BundleManifest
from etcli.manifests.run_record import Sampling
from etcli.run.events import AnyEvent
from etcli.tokenizer.base import Tokenizer


@dataclass(frozen=True)
class Job:
    """One run of a bundle, which stands in `bundle_folder` here and below `bundle/` of the deployment.

    `prompt_ids` are what `prompt`, `chat` and `system` come to. `sampling` is None for the likeliest token each time. `interactive`: a
    conversation over stdin instead of the one prompt. `ignore_stop_ids`: go on to `max_new_tokens`, for measurements. `forced`: the
    user wants the run although its answer will be wrong.
    """

    bundle: BundleManifest
    bundle_folder: Path
    tokenizer: Tokenizer
    prompt: str
    chat: bool
    system: str | None
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    threads: int | None
    sampling: Sampling | None = None
    ignore_stop_ids: bool = False
    interactive: bool = False
    forced: bool = False


@dataclass(frozen=True)
class Remark:
    """Something that this run will not do as another runner would; `code` as of a warning."""

    code: str
    message: str


@dataclass(frozen=True)
class Launch:
    """How to start a job: arguments after the program, files by name that it finds in its folder, and what to say before.

    `stop_ids` are the ids of which the first ends the answer, none where it goes on to the last token.
    """

    arguments: tuple[str, ...]
    stop_ids: tuple[int, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()


class Reader(Protocol):
    """Turns the output of one run into events."""

    def line(self, line: str) -> AnyEvent:
        """A line of its stdout.

        Raises:
            RunError: the line claims to be an event and is not a valid one.
        """

    def end(self, stderr: str, status: int) -> Iterable[AnyEvent]:
        """What only the end of the program tells: its messages on stderr and its exit status."""


class Runner(Protocol):
    """A kind of runner, as `run.runner` of a recipe names it."""

    @property
    def program(self) -> str:
        """Its file in the deployment's `bin/`."""

    @property
    def activity(self) -> str:
        """What a person is told that it does until it says something itself."""

    @property
    def missing_hint(self) -> str | None:
        """Where the program comes from, for a deployment that lacks it; None where `etcli build` makes it."""

    @property
    def opens(self) -> tuple[str, ...]:
        """Libraries that the program opens by name while it runs, if they are there."""

    def launch(self, job: Job) -> Launch:
        """Check the job and prepare it. Nothing has been sent yet.

        Raises:
            UsageError: the runner cannot run this bundle, or cannot be asked this prompt.
            CheckpointError: the runner cannot read the tokenizer.
        """

    def reader(self, job: Job) -> Reader:
        """A fresh reader of the output of `job`."""

    def explain(self, status: int) -> str | None:
        """What an exit status means for this program, where that is more than it means for any."""
