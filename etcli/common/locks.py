"""One process at a time: advisory locks on files, released by the system however a process ends."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusive(path: Path, *, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path` for the length of the block; `on_wait` is called once if another process has it.

    The file stays: removing it would let two processes hold two locks of one name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if on_wait is not None:
                on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
