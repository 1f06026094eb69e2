"""Runs workers, a few at once, watches them, and ends them all when one fails or the user stops."""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from etcli.common.errors import ExportError
from etcli.common.memory import available_bytes, oom_kills
from etcli.common.process import end, start
from etcli.export.environment import torch_environment
from etcli.export.failures import Ended, failure
from etcli.export.job import DONE_MARK, LAST_MARK, STEP_MARK, STEPS, Job, Work, step_words
from etcli.export.worker import command
from etcli.output.console import Console
from etcli.output.units import bytes_text, counted

_POLL_SECONDS = 0.2
_LAST_LINES = 12


@dataclass(frozen=True)
class Task:
    """A piece to make.

    Attributes:
        key: names it, and its worker's folder.
        title: what to call it.
        memory_bytes: what it is expected to use at most.
        log: where its worker's output goes.
        after: keys of tasks that must be finished before.
    """

    key: str
    title: str
    work: Work
    memory_bytes: int
    log: Path
    after: tuple[str, ...] = ()


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    reader: threading.Thread
    task: Task | None = None
    folder: Path = Path()
    leaving: bool = False
    peak: int = 0
    step: str | None = None
    done: float = 0.0
    last: collections.deque[str] = field(default_factory=lambda: collections.deque(maxlen=_LAST_LINES))


class Pool:
    """Workers of one export.

    Args:
        jobs: workers at once.
        checkpoint: what they read.
        python: the interpreter that they run in, this one's if None.
        memory_bytes: what they may use together; a task that needs more runs alone.
        begin: gives a worker's empty folder for a task's key.
        finished: called with each task as soon as it is done, before those that come after it are begun.
        advance: called with the part of a task that was done since.
        doing: called with what is under way, whenever that changes.
    """

    def __init__(
        self,
        jobs: int,
        checkpoint: Path,
        *,
        adapter: Path | None = None,
        python: Path | None = None,
        memory_bytes: int | None = None,
        begin: Callable[[str], Path],
        finished: Callable[[Task], None],
        advance: Callable[[float], None],
        doing: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._jobs, self._checkpoint, self._adapter = jobs, checkpoint, adapter
        self._memory = memory_bytes
        self._command = command(python)
        self._begin, self._finished, self._advance, self._doing = begin, finished, advance, doing
        self._lines: queue.SimpleQueue[tuple[_Worker, str]] = queue.SimpleQueue()
        self._threads = max(1, usable_cores() // jobs)
        self._workers: list[_Worker] = []
        self._waiting: list[Task] = []
        self._ended: set[str] = set()
        self._killed_before = oom_kills()

    def run(self, tasks: Sequence[Task]) -> None:
        """Do all tasks, in their order as far as `Task.after` and memory allow.

        Raises:
            EtcliError: what the first worker to fail reported.
            ExportError: `export.worker_killed` or `export.worker_failed`, where it could not report anything. All workers have ended then,
                as they have after any other exception (Ctrl-C); finished tasks stay finished.
        """
        self._waiting = list(tasks)
        try:
            while self._waiting or any(worker.task for worker in self._workers):
                while (task := self._next()) is not None:
                    self._give(task)
                self._listen()
                self._advance(0)  # a sign of life
                for worker in list(self._workers):
                    if worker.process.poll() is None:
                        worker.peak = max(worker.peak, _resident(worker.process.pid))
                        continue
                    self._collect(worker)
        finally:
            for worker in self._workers:
                end(worker.process, grace=0 if worker.task is None else 3)

    def _next(self) -> Task | None:
        """A task that can be begun now."""
        busy = [worker.task for worker in self._workers if worker.task]
        if len(busy) >= self._jobs:
            return None
        used = sum(task.memory_bytes for task in busy)
        for task in self._waiting:
            fits = not busy or self._memory is None or used + task.memory_bytes <= self._memory
            if fits and self._ended.issuperset(task.after):
                self._waiting.remove(task)
                return task
        return None

    def _give(self, task: Task) -> None:
        """Begin a task: on a worker that waits, or on a new one."""
        folder = self._begin(task.key)
        Job(
            parent=os.getpid(),
            checkpoint=str(self._checkpoint),
            adapter=None if self._adapter is None else str(self._adapter),
            threads=self._threads,
            work=task.work,
        ).write(folder / Job.FILE)
        worker = next((worker for worker in self._workers if worker.task is None and not worker.leaving), None)
        worker = worker or self._start()
        assert worker.process.stdin is not None  # noqa: S101 - a pipe was asked for
        worker.task, worker.folder, worker.step, worker.done, worker.peak = task, folder, None, 0.0, 0
        worker.last.clear()
        with contextlib.suppress(OSError):  # it has died: `_collect` finds that, and says how
            worker.process.stdin.write(f"{folder}\n".encode())
            worker.process.stdin.flush()
        self._tell()

    def _start(self) -> _Worker:
        process = start(self._command, env=torch_environment(self._threads), merge=True, feed=True)
        worker = _Worker(process, threading.Thread(daemon=True))
        worker.reader = threading.Thread(target=self._read, args=(worker,), daemon=True)
        self._workers.append(worker)
        worker.reader.start()
        return worker

    def _read(self, worker: _Worker) -> None:
        """Keep a worker's output in its tasks' logs, pass its lines on. Runs in a thread until the output ends."""
        pipe = worker.process.stdout
        assert pipe is not None  # noqa: S101 - a pipe was asked for
        log, path = None, None
        try:
            for raw in pipe:
                # A full disk costs the log, never a line: whoever stopped reading here would stop the worker too.
                with contextlib.suppress(OSError):
                    if worker.task is not None and worker.task.log != path:
                        path = worker.task.log
                        if log is not None:
                            log.close()
                        log = None
                        path.parent.mkdir(parents=True, exist_ok=True)
                        log = path.open("wb", buffering=0)
                    if log is not None:
                        log.write(raw)
                self._lines.put((worker, raw.decode(errors="replace").rstrip()))
        finally:
            if log is not None:
                log.close()

    def _listen(self) -> None:
        """Take in what workers printed, for at most one poll interval, and no longer than until one is done."""
        deadline = time.monotonic() + _POLL_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            try:
                worker, line = self._lines.get(timeout=left)
            except queue.Empty:
                return
            if line in (DONE_MARK, LAST_MARK):
                worker.leaving = line == LAST_MARK
                self._done(worker)
                return
            if line.startswith(STEP_MARK):
                self._count(worker, self._share(worker))
                worker.step = line.removeprefix(STEP_MARK)
                self._tell()
            elif line:
                worker.last.append(line)

    def _tell(self) -> None:
        """Say what is under way: the task of the worker that was started first, and how many more."""
        busy = [worker for worker in self._workers if worker.task is not None]
        if not busy:
            return
        first, others = busy[0], len(busy) - 1
        title = first.task.title if first.task is not None else ""
        step = "starting" if first.step is None else step_words(first.step)
        self._doing(f"{title}: {step}" + (f", and {others} more" if others else ""))

    def _share(self, worker: _Worker) -> float:
        """The part of its task that the worker's last step was."""
        if worker.task is None or worker.step is None:
            return 0.0
        return min(STEPS[worker.task.work.kind].get(worker.step, 0.0), 1 - worker.done)

    def _count(self, worker: _Worker, more: float) -> None:
        worker.done += more
        self._advance(more)

    def _done(self, worker: _Worker) -> None:
        task = worker.task
        assert task is not None  # noqa: S101 - it says so once a task
        self._count(worker, 1 - worker.done)
        worker.task = None
        self._tell()
        self._ended.add(task.key)
        self._finished(task)

    def _collect(self, worker: _Worker) -> None:
        """Take leave of a worker that has ended: after its last task, or in the middle of one."""
        worker.reader.join(timeout=5)
        while not self._lines.empty():
            self._listen()
        end(worker.process)
        self._workers.remove(worker)
        if worker.task is not None:
            ended = Ended(
                code=worker.process.returncode,
                folder=worker.folder,
                log=worker.task.log,
                step=worker.step,
                last=tuple(worker.last),
                peak_bytes=worker.peak,
                oom_killed=oom_kills() > self._killed_before,
                available_bytes=available_bytes(),
            )
            raise failure(worker.task.title, ended)


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def fitting(sizes: Iterable[int]) -> int:
    """How many workers that need so many bytes each cores and available memory allow, at least one: the largest are taken to run together."""
    available = available_bytes()
    jobs, needed = 0, 0
    for size in sorted(sizes, reverse=True)[: usable_cores()]:
        needed += size
        if needed > available:
            break
        jobs += 1
    return max(1, jobs)


def check_memory(tasks: Sequence[Task], jobs: int, available: int, console: Console, *, chosen: bool) -> None:
    """Refuse, or where the user chose the number of workers warn of, an export that memory does not suffice for.

    Raises:
        ExportError: `export.no_memory`, a single task needs more than there is.
    """
    largest = max(tasks, key=lambda task: task.memory_bytes)
    needed = sum(sorted((task.memory_bytes for task in tasks), reverse=True)[:jobs])
    if needed <= available:
        return
    if largest.memory_bytes > available and not chosen:
        raise ExportError(
            f"{largest.title} needs about {bytes_text(largest.memory_bytes)} of memory, {bytes_text(available)} are available",
            code="export.no_memory",
            hint="Divide the network into more chunks (export.chunks), use shapes of fewer tokens or a shorter cache (export.shapes), close "
            "other programs, or try all the same with --jobs 1.",
        )
    console.warn(
        f"{counted(jobs, 'worker')} may need {bytes_text(needed)}, {bytes_text(available)} of memory are available",
        code="export.memory",
    )


def _resident(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
