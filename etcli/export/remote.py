"""What runs on the workers of a Dask cluster: a look at what they see, and a task in a process of its own."""

from __future__ import annotations

import collections
import contextlib
import importlib.metadata
import os
import platform
import threading
import time
from pathlib import Path
from typing import TypedDict

import psutil

from etcli.common.files import remove_tree
from etcli.common.memory import available_bytes, oom_kills
from etcli.common.process import end, start
from etcli.export.environment import torch_environment
from etcli.export.failures import Ended
from etcli.export.inputs import program_code_sha256
from etcli.export.job import STEP_MARK, Job
from etcli.export.worker import command

STOP = "stop"
"""A file of this name in a task's folder ends the task."""

_POLL_SECONDS = 0.2
_LAST_LINES = 12


class Seen(TypedDict):
    """What a worker sees: its host, its versions, the word in the probe file, whether the checkpoint is there, and the hash of its code."""

    host: str
    versions: dict[str, str | None]
    word: str | None
    checkpoint: bool
    code: str


def look(checkpoint: str, probe: str, packages: tuple[str, ...]) -> Seen:
    """Runs on every worker before anything else does."""
    word = None
    with contextlib.suppress(OSError):
        word = Path(probe).read_text()
    return Seen(
        host=platform.node(),
        versions={package: _version(package) for package in packages},
        word=word,
        checkpoint=Path(checkpoint).exists(),
        code=program_code_sha256(),
    )


def do_job(folder: str, log: str) -> Ended | None:
    """Do the job in `folder`, its output going to `log`; how it ended where that was not well.

    A task that the scheduler gives to a second worker, because the first has died, starts anew.
    """
    place = Path(folder)
    if (place / STOP).exists():
        return None
    for leftover in place.iterdir():
        if leftover.name != Job.FILE:
            remove_tree(leftover)
    job = Job.read(place / Job.FILE)
    job.model_copy(update={"parent": os.getpid()}).write(place / Job.FILE)
    killed_before = oom_kills()
    process = start(command(), env=torch_environment(job.threads), merge=True, feed=True)
    lines: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
    steps: list[str] = []
    assert process.stdin is not None  # noqa: S101 - pipes were asked for
    assert process.stdout is not None  # noqa: S101
    pipe = process.stdout

    def read() -> None:
        with contextlib.ExitStack() as stack:
            file = None
            with contextlib.suppress(OSError):
                Path(log).parent.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(Path(log).open("wb", buffering=0))
            for raw in pipe:
                with contextlib.suppress(OSError):
                    if file is not None:
                        file.write(raw)
                line = raw.decode(errors="replace").rstrip()
                if line.startswith(STEP_MARK):
                    steps.append(line.removeprefix(STEP_MARK))
                elif line:
                    lines.append(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    peak = 0
    try:
        with contextlib.suppress(OSError):  # it has died, which its exit status tells
            process.stdin.write(f"{place}\n".encode())
            process.stdin.close()
        while process.poll() is None:
            if (place / STOP).exists():
                return None
            with contextlib.suppress(psutil.Error):
                peak = max(peak, int(psutil.Process(process.pid).memory_info().rss))
            time.sleep(_POLL_SECONDS)
        reader.join(timeout=5)
    finally:
        end(process)
    if process.returncode == 0:
        return None
    return Ended(
        code=process.returncode,
        folder=place,
        log=Path(log),
        step=steps[-1] if steps else None,
        last=tuple(lines),
        peak_bytes=peak,
        oom_killed=oom_kills() > killed_before,
        available_bytes=available_bytes(),
    )


def _version(package: str) -> str | None:
    if package == "etcli":
        import etcli

        return etcli.__version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
