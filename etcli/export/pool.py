"""Runs workers, a few at once, watches them, and ends them all when one fails or the user stops."""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from etcli.common.errors import EtcliError, ExportError
from etcli.common.files import is_no_space
from etcli.common.memory import available_bytes
from etcli.common.process import describe_exit, end, start
from etcli.export.job import STEP_MARK, STEPS, ChunkWork, Job, TablesWork, Troubles
from etcli.export.worker import command

_POLL_SECONDS = 0.2
_LAST_LINES = 12


@dataclass(frozen=True)
class Task:
    """A piece to make: its key, what to call it, the work, the size of its weights in bytes, and where its worker's output goes."""

    key: str
    title: str
    work: ChunkWork | TablesWork
    memory_bytes: int
    log: Path


@dataclass
class _Running:
    task: Task
    folder: Path
    process: subprocess.Popen[bytes]
    reader: threading.Thread
    peak: int = 0
    step: str | None = None
    done: float = 0.0
    last: collections.deque[str] = field(default_factory=lambda: collections.deque(maxlen=_LAST_LINES))


class Pool:
    """Workers of one export.

    Args:
        jobs: workers at once.
        checkpoint: what they read.
        adapter: LoRA adapter merged into it.
        begin: gives a worker's empty folder for a task's key.
        finished: called with each task as soon as it is done.
        advance: called with the part of a task that was done since.
    """

    def __init__(
        self,
        jobs: int,
        checkpoint: Path,
        *,
        adapter: Path | None = None,
        begin: Callable[[str], Path],
        finished: Callable[[Task], None],
        advance: Callable[[float], None],
    ) -> None:
        self._jobs, self._checkpoint, self._adapter = jobs, checkpoint, adapter
        self._begin, self._finished, self._advance = begin, finished, advance
        self._lines: queue.SimpleQueue[tuple[_Running, str]] = queue.SimpleQueue()
        self._threads = max(1, usable_cores() // jobs)

    def run(self, tasks: Sequence[Task]) -> None:
        """Do all tasks.

        Raises:
            EtcliError: what the first worker to fail reported.
            ExportError: `export.worker_killed` or `export.worker_failed`, where it could not report anything. All workers have ended then,
                as they have after any other exception (Ctrl-C); finished tasks stay finished.
        """
        waiting = collections.deque(tasks)
        running: list[_Running] = []
        try:
            while waiting or running:
                while waiting and len(running) < self._jobs:
                    running.append(self._start(waiting.popleft()))
                self._listen()
                self._advance(0)  # a sign of life
                for worker in list(running):
                    if worker.process.poll() is None:
                        worker.peak = max(worker.peak, _resident(worker.process.pid))
                        continue
                    running.remove(worker)
                    self._collect(worker)
        finally:
            for worker in running:
                end(worker.process)

    def _start(self, task: Task) -> _Running:
        folder = self._begin(task.key)
        job = Job(
            parent=os.getpid(),
            checkpoint=str(self._checkpoint),
            adapter=None if self._adapter is None else str(self._adapter),
            threads=self._threads,
            work=task.work,
        )
        job.write(folder / Job.FILE)
        # hash seeds differ from process to process, and with them the order of sets: no byte of a bundle may depend on one
        environment = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": str(self._threads), "PYTHONUNBUFFERED": "1"}
        process = start(command(folder), env=environment, merge=True)
        worker = _Running(task, folder, process, threading.Thread(daemon=True))
        worker.reader = threading.Thread(target=self._read, args=(worker,), daemon=True)
        worker.reader.start()
        return worker

    def _read(self, worker: _Running) -> None:
        """Keep a worker's output in its log, pass its lines on. Runs in a thread until the output ends."""
        pipe = worker.process.stdout
        assert pipe is not None  # noqa: S101 - a pipe was asked for
        with contextlib.ExitStack() as stack:
            log = None
            with contextlib.suppress(OSError):
                worker.task.log.parent.mkdir(parents=True, exist_ok=True)
                log = stack.enter_context(worker.task.log.open("wb", buffering=0))
            for raw in pipe:
                # A full disk costs the log, never a line: whoever stopped reading here would stop the worker too.
                with contextlib.suppress(OSError):
                    if log is not None:
                        log.write(raw)
                self._lines.put((worker, raw.decode(errors="replace").rstrip()))

    def _listen(self) -> None:
        """Take in what workers printed, for at most one poll interval."""
        deadline = time.monotonic() + _POLL_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            try:
                worker, line = self._lines.get(timeout=left)
            except queue.Empty:
                return
            if line.startswith(STEP_MARK):
                self._count(worker, STEPS.get(worker.step, 0.0) if worker.step else 0.0)
                worker.step = line.removeprefix(STEP_MARK)
            elif line:
                worker.last.append(line)

    def _count(self, worker: _Running, more: float) -> None:
        worker.done += more
        self._advance(more)

    def _collect(self, worker: _Running) -> None:
        worker.reader.join(timeout=5)
        self._listen()
        end(worker.process)
        code = worker.process.returncode
        if code != 0:
            raise _failure(worker, code)
        self._count(worker, 1 - worker.done)
        self._finished(worker.task)


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def fitting_jobs(tasks: Sequence[Task]) -> int:
    """How many workers cores and available memory allow, at least one: the largest tasks are taken to run together."""
    available = available_bytes()
    jobs, needed = 0, 0
    for size in sorted((task.memory_bytes for task in tasks), reverse=True)[: usable_cores()]:
        needed += size
        if needed > available:
            break
        jobs += 1
    return max(1, jobs)


def _resident(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _failure(worker: _Running, code: int) -> EtcliError:
    task, log = worker.task, worker.task.log
    try:
        return EtcliError.many(trouble.problem() for trouble in Troubles.read(worker.folder / Troubles.FILE).problems)
    except (FileNotFoundError, EtcliError):
        pass
    step = f" at step {worker.step}" if worker.step else ""
    if code < 0:
        why = describe_exit(code)
        hint = f"Its output is in {log}. Finished chunks are kept."
        if code == -signal.SIGKILL:
            why += (
                f", out of memory (likely): it held at least {worker.peak / 1e9:.2f} GB, "
                f"{available_bytes() / 1e9:.2f} GB are available now"
            )
            hint = f"Export fewer chunks at once (--jobs 1), or divide the network into more chunks (export.chunks). {hint}"
        return ExportError(
            f"the worker of {task.title} was {why}{step}", code="export.worker_killed", hint=hint, file=log
        )
    reason = next((line for line in reversed(worker.last) if not line.startswith(" ")), "it printed nothing")
    if is_no_space(RuntimeError(reason)):
        return ExportError(
            f"no space left while the worker of {task.title} wrote into {worker.folder.parent}",
            code="export.no_space",
            hint="Free some space, or put the workspace on another disk (--workspace). Finished chunks are kept.",
        )
    return ExportError(
        f"the worker of {task.title} failed{step} ({describe_exit(code)}): {reason}",
        code="export.worker_failed",
        hint=f"Its whole output is in {log}. Finished chunks are kept.",
        file=log,
    )
