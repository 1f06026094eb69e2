"""One process at a time: advisory locks on files, released by the system however a process ends."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import getpass
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

_LONGEST_HOLDER = 300
_LOOK_SECONDS = 0.3

_descriptors: list[int] = []


def held() -> tuple[int, ...]:
    """The descriptors of the locks that this process holds. A program that inherits them holds the locks as long as it lives:
    one that outlives a killed etcli keeps others from what it still writes."""
    return tuple(_descriptors)


@contextlib.contextmanager
def exclusive(
    path: Path,
    *,
    on_wait: Callable[[], None] | None = None,
    what: str | None = None,
    while_waiting: Callable[[], None] | None = None,
) -> Iterator[None]:
    """Hold the lock file `path` for the length of the block; `on_wait` is called once if another process has it.

    The file stays, unless its holder removes it, as `etcli clean` does: whoever waited for it takes the lock of the file that is there then.

    Args:
        what: what is done meanwhile, as `export of NAME`, which `holder` tells others.
        while_waiting: called time and again as long as another has it; what it raises ends the wait. For waits of other threads than the
            first, which no signal ends.
    """
    with _held(path, fcntl.LOCK_EX, on_wait, while_waiting) as file:
        if what is not None:
            with contextlib.suppress(OSError):
                file.truncate(0)
                file.write(this_process(what).encode())
                file.flush()
        yield


def this_process(what: str) -> str:
    """How this process tells others who it is: `etcli export of NAME, process 4711 of me on laptop since 2026-11-30 22:31:05 UTC`."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return f"etcli {what}, process {os.getpid()} of {_user()} on {platform.node()} since {now:%Y-%m-%d %H:%M:%S} UTC"


@contextlib.contextmanager
def shared(path: Path, *, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path` together with others that share it; whoever wants it alone waits for all of them, and they for it."""
    with _held(path, fcntl.LOCK_SH, on_wait):
        yield


@contextlib.contextmanager
def _held(
    path: Path, kind: int, on_wait: Callable[[], None] | None, while_waiting: Callable[[], None] | None = None
) -> Iterator[BinaryIO]:
    waited = False
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = path.open("ab")
        except FileNotFoundError:  # its folder was removed this very moment
            continue
        with file:
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if on_wait is not None and not waited:
                    on_wait()
                waited = True
                _wait(file, kind, while_waiting)
            if _is_there(path, file):
                _descriptors.append(file.fileno())
                try:
                    yield file
                finally:
                    _descriptors.remove(file.fileno())
                return


def _wait(file: BinaryIO, kind: int, while_waiting: Callable[[], None] | None) -> None:
    while while_waiting is not None:
        while_waiting()
        time.sleep(_LOOK_SECONDS)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return
    fcntl.flock(file, kind)


def holder(path: Path) -> str:
    """Who has the lock, as far as it says, in the words of `this_process`."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        text = file.read(_LONGEST_HOLDER).decode("utf-8", errors="replace").strip()
        if text:
            return text
    return "another etcli"


def _is_there(path: Path, file: BinaryIO) -> bool:
    """Whether the open file is still the one of that name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())
