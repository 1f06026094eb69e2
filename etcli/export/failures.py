"""Why a worker ended before its task was done, as an error for people."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import EtcliError, ExportError
from etcli.common.files import is_no_space
from etcli.common.process import describe_exit
from etcli.export.job import COMPILE_STEP, COMPILER_FAILED, QUANTISED, ChunkWork, Job, Troubles

SCARCE_BYTES = 512 << 20
"""Where less than this was left beside a worker that was killed, it was killed for memory."""


@dataclass(frozen=True)
class Ended:
    """A worker that ended in the middle of a task.

    Attributes:
        code: its exit status, or minus the signal that ended it.
        folder: the task's.
        log: where its output is.
        step: what it was at.
        last: the last lines that it printed.
        peak_bytes: the most that it was seen to hold.
        oom_killed: whether the system has killed a process for memory meanwhile.
        available_bytes: memory available now, without the worker.
    """

    code: int
    folder: Path
    log: Path
    step: str | None
    last: Sequence[str]
    peak_bytes: int
    oom_killed: bool
    available_bytes: int


def failure(title: str, ended: Ended) -> EtcliError:
    """The worker's own problems, or else what its end looks like."""
    try:
        problems = [trouble.problem() for trouble in Troubles.read(ended.folder / Troubles.FILE).problems]
        return EtcliError.many(
            dataclasses.replace(problem, file=ended.log) if problem.code == COMPILER_FAILED else problem
            for problem in problems
        )
    except (FileNotFoundError, EtcliError):
        pass
    step = f" at step {ended.step}" if ended.step else ""
    if ended.code < 0:
        return _killed(title, ended, step)
    reason = next((line for line in reversed(ended.last) if not line.startswith(" ")), "it printed nothing")
    if is_no_space(RuntimeError(reason)):
        return ExportError(
            f"no space left while the worker of {title} wrote into {ended.folder.parent}",
            code="export.no_space",
            hint="Free some space, or put the workspace on another disk (--workspace). Finished chunks are kept.",
        )
    return ExportError(
        f"the worker of {title} failed{step} ({describe_exit(ended.code)}): {reason}",
        code="export.worker_failed",
        hint=f"Its whole output is in {ended.log}. Finished chunks are kept.",
        file=ended.log,
    )


def _killed(title: str, ended: Ended, step: str) -> ExportError:
    why = describe_exit(ended.code)
    hint = f"Its output is in {ended.log}. Finished chunks are kept."
    scarce = ended.code == -signal.SIGKILL and (
        ended.oom_killed or ended.available_bytes < ended.peak_bytes + SCARCE_BYTES
    )
    if ended.code == -signal.SIGKILL:
        if scarce:
            why += (
                f", out of memory (likely): it held at least {ended.peak_bytes / 1e9:.2f} GB, "
                f"{ended.available_bytes / 1e9:.2f} GB are available now"
            )
            hint = f"Export fewer chunks at once (--jobs 1), or divide the network into more chunks (export.chunks). {hint}"
        else:
            why += f", not for want of memory as it seems: it held {ended.peak_bytes / 1e9:.2f} GB"
    if ended.step is not None and ended.step.startswith(f"{COMPILE_STEP} "):
        method = ended.step.removeprefix(f"{COMPILE_STEP} ")
        return ExportError(
            f"the compiler for the NPU was {why} while it compiled {method} of {title}",
            code="neuron.compiler_killed",
            hint=hint if scarce else f"{hint} {for_a_report(_work(ended.folder))}".rstrip(),
            file=ended.log,
        )
    return ExportError(f"the worker of {title} was {why}{step}", code="export.worker_killed", hint=hint, file=ended.log)


def for_a_report(work: ChunkWork | None) -> str:
    """What to send to whoever maintains the tools that failed at `work`; empty where it is not known."""
    if work is None or work.quantised is None:
        return ""
    return (
        "To report it, keep the log, which has the versions, the compiler's options and all that was printed, and the quantised graph "
        f"{Path(work.quantised) / QUANTISED}, which the next export takes as it is."
    )


def _work(folder: Path) -> ChunkWork | None:
    """What the worker was to make in `folder`."""
    try:
        work = Job.read(folder / Job.FILE).work
    except (FileNotFoundError, EtcliError):
        return None
    return work if isinstance(work, ChunkWork) else None
