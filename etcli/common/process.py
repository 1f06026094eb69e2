"""Outside programs on this machine, run from argument lists: output captured or logged, none left behind.

Every child gets a process group of its own, so that an interrupt ends the whole tree and not only its root.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.common import locks


@dataclass(frozen=True)
class Completed:
    """A finished program. `code` is its exit status, or minus the signal that ended it."""

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """Whether it exited with 0."""
        return self.code == 0


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str | None] | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
) -> Completed:
    """Run a program to its end and return what it printed. Never raises for its exit status.

    Args:
        env: variables set on top of this process's own; None takes one away.
        timeout: seconds, after which the whole process group is killed.

    Raises:
        FileNotFoundError: there is no such program.
        subprocess.TimeoutExpired: it took longer than `timeout`.
    """
    words = tuple(str(word) for word in argv)
    process = _start(words, cwd, env, stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL, merge=False)
    with _ended(process):
        out, err = process.communicate(stdin.encode() if stdin is not None else None, timeout=timeout)
    return Completed(words, process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def stream(
    argv: Sequence[str | Path],
    on_line: Callable[[str], None],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str | None] | None = None,
    log: Path | None = None,
) -> int:
    """Run a program, call `on_line` with each line of its merged output, optionally keep it all in `log`; return its exit status.

    It holds the locks that this process holds: should this one be killed, the next waits for what the program and its children still write.

    Raises:
        FileNotFoundError: there is no such program.
    """
    words = tuple(str(word) for word in argv)
    process = _start(words, cwd, env, stdin=subprocess.DEVNULL, merge=True, keep=locks.held())
    with _ended(process), contextlib.ExitStack() as stack:
        sink = None
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            sink = stack.enter_context(log.open("w", encoding="utf-8"))
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip("\r\n")
            if sink is not None:
                sink.write(line + "\n")
                sink.flush()
            on_line(line)
    return process.wait()


def start(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str | None] | None = None,
    merge: bool = False,
    feed: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a program in its own process group with piped stdout (and stderr, unless merged); the caller ends it with `end`.

    With `feed` its stdin is a pipe, otherwise it is empty.
    """
    stdin = subprocess.PIPE if feed else subprocess.DEVNULL
    return _start(tuple(str(word) for word in argv), cwd, env, stdin=stdin, merge=merge)


def end(process: subprocess.Popen[bytes], *, grace: float = 3.0) -> None:
    """Ask the process group to stop, kill it after `grace` seconds, and reap the process."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what a dead program has not read
                pipe.close()


def end_with_parent(parent: int) -> None:
    """For a worker's start: end when the process `parent`, which started it, does, however that ends (on Linux).

    The parent must have started the worker from a thread that lives as long as the work, since the kernel watches the thread.
    """
    if sys.platform == "linux":
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was asked
        raise SystemExit(int(signal.SIGTERM))


def describe_exit(code: int) -> str:
    """`code` for people: `exit status 3`, or the name of the signal that ended the program."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _start(
    argv: tuple[str, ...],
    cwd: Path | None,
    env: Mapping[str, str | None] | None,
    *,
    stdin: int,
    merge: bool,
    keep: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        cwd=cwd,
        env=_environment(env),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merge else subprocess.PIPE,
        start_new_session=True,
        pass_fds=keep,
    )


def _environment(changes: Mapping[str, str | None] | None) -> dict[str, str] | None:
    if not changes:
        return None
    merged = {**os.environ, **changes}
    return {name: value for name, value in merged.items() if value is not None}


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        end(process)
        raise
    process.wait()
