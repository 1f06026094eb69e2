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
    try:
        lines = (group / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)


def _number(path: Path) -> int | None:
    """The number in `path`; None where there is no file, or no limit (`max`)."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that an allocation failed: Python's own, or torch's, which is a RuntimeError of such a text."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in str(error))
