"""Time and memory of a worker, and the lines that tell its parent where it is."""

from __future__ import annotations

import contextlib
import re
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from etcli.export.job import STEP_MARK


class Steps:
    """Announces steps and keeps their wall seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """One of `job.STEPS`."""
        print(f"{STEP_MARK}{name}", flush=True)
        start = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - start, 3)


def peak_memory_bytes() -> int:
    """The most memory that was resident in this process so far.

    From VmHWM where there is one: `ru_maxrss` of a Linux process starts with what its parent used before exec.
    """
    with contextlib.suppress(OSError):
        match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
        if match:
            return int(match[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
