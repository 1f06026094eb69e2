"""How much memory a process may still take, a container's limit included."""

from __future__ import annotations

from pathlib import Path

import psutil


def available_bytes(cgroups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> int:
    """Memory that can be had without swapping and without reaching the limit of this process's control group (version 2) or a parent.

    A container may be killed at its limit while the machine still has memory, so both count. File cache of the group counts as free.
    """
    free = int(psutil.virtual_memory().available)
    for group in _groups(cgroups, membership):
        limit, used = _number(group / "memory.max"), _number(group / "memory.current")
        if limit is not None and used is not None:
            free = min(free, max(0, limit - used + _inactive_file(group)))
    return free


def oom_kills(
    cgroups: Path = Path("/sys/fs/cgroup"),
    membership: Path = Path("/proc/self/cgroup"),
    vmstat: Path = Path("/proc/vmstat"),
) -> int:
    """How many processes the system has killed for want of memory so far, on the machine or in this process's control group; 0 if unknown."""
    counts = [_counter(vmstat, "oom_kill ")]
    counts += [_counter(group / "memory.events", "oom_kill ") for group in _groups(cgroups, membership)]
    return sum(counts)


def _groups(cgroups: Path, membership: Path) -> list[Path]:
    """This process's control group and its parents."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if own is None:
        return []
    group = cgroups / own.strip("/")
    return [group, *(parent for parent in group.parents if parent.is_relative_to(cgroups))]


def _inactive_file(group: Path) -> int:
    return _counter(group / "memory.stat", "inactive_file ")


def _counter(path: Path, name: str) -> int:
    """The number after `name` in a file of such lines; 0 where there is none."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)


def _number(path: Path) -> int | None:
    """The number in `path`; None where there is no file, or no limit (`max`)."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that an allocation failed: Python's own, or torch's, which is a RuntimeError of such a text."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in str(error))
