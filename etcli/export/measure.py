"""Time and memory of a worker, the lines that tell its parent where it is, and what it leaves at its end."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
import resource
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from etcli.common.hashing import file_sha256
from etcli.export.job import STEP_MARK, Outcome
from etcli.manifests.base import FileEntry


class Steps:
    """Announces steps and keeps their wall seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A step of the work, as `job.STEPS` names them."""
        print(f"{STEP_MARK}{name}", flush=True)
        start = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - start, 3)


def resident_bytes() -> int:
    """What is resident in this process now."""
    return int(psutil.Process().memory_info().rss)


def forget_peak() -> None:
    """Let the peak start anew from what is resident now, where the system allows (Linux does)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def give_back() -> None:
    """Return freed memory to the system: the C library keeps it otherwise, and a worker would seem to grow with every chunk."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def peak_memory_bytes() -> int:
    """The most memory that was resident in this process since it began or `forget_peak` was called.

    From VmHWM where there is one: `ru_maxrss` of a Linux process starts with what its parent used before exec.
    """
    with contextlib.suppress(OSError):
        match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
        if match:
            return int(match[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def write_outcome(
    folder: Path, files: Sequence[Path], steps: Steps, weights_bytes: int, *, sha256: str | None = None, **facts: Any
) -> None:
    """Write the `Outcome` of a job that has left `files` in `folder`.

    Args:
        sha256: that of the one file, where it is known already.
        facts: the outcome's other fields.
    """
    status = {path: path.stat() for path in files}
    Outcome(
        files=tuple(
            FileEntry(path=path.name, size=found.st_size, sha256=sha256 or file_sha256(path))
            for path, found in status.items()
        ),
        times={path.name: found.st_mtime_ns for path, found in status.items()},
        seconds=steps.seconds,
        peak_memory_bytes=peak_memory_bytes(),
        weights_bytes=weights_bytes,
        **facts,
    ).write(folder / Outcome.FILE)
