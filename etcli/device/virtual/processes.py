"""Whether a process number still means the daemon that wrote it down."""

from __future__ import annotations

from pathlib import Path

MODULE = "etcli.device.virtual"
"""What `python -m` is given to run a daemon; it stands in the daemon's command line."""


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot, which no change of the clock moves; None when it is gone or only unburied."""
    try:
        # The name in parentheses may hold anything; after it come the state and, 19 fields on, the start time (proc(5)).
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def is_daemon(pid: int, started: int) -> bool:
    """Whether the process is a virtual device's daemon that started at `started`, and not another that got its number since."""
    if start_ticks(pid) != started:
        return False
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return MODULE.encode() in words
