"""What is in a folder of the device now, by one `find | stat` pass.

Everything read here is untrusted. A file counts as present only if this listing shows it as a regular file; `find` does not follow
links, so a listed path has no link among its parents below the folder.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from etcli.common.errors import DeployError
from etcli.common.files import check_relative
from etcli.device.base import Device
from etcli.device.program import adb_command

_FRACTION = re.compile(r"\.[0-9]+")


@dataclass(frozen=True)
class Entry:
    """A file, folder or link on the device: `st_mode`, bytes, and its stamp.

    The stamp is made of the inode and its change time, which the kernel sets with every change of content, name or permissions and nobody can set
    back as the modification time can be (`adb push` itself gives a file the time it has on the host). While it stays as it was, so did the content.
    """

    mode: int
    size: int
    stamp: str = ""

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, not a link to one."""
        return stat.S_ISDIR(self.mode)

    @property
    def kind(self) -> str:
        """What it is, for messages."""
        if stat.S_ISLNK(self.mode):
            return "a symbolic link"
        return "a folder" if self.is_folder else "a file" if self.is_file else "a special file"


Listing = Mapping[str, Entry]
"""Entries by path below the deployment folder."""


def list_folder(device: Device, folder: str) -> Listing:
    """Everything below `folder`, which need not exist. Names with control characters are left out: none of ours has any.

    Raises:
        DeployError: the device has no working `find` and `stat`.
    """
    if device.stat(folder) is None:
        return {}
    result = device.shell(["find", folder, "-exec", "stat", "-c", "%f %s %i %Z %z|%n", "{}", "+"])
    found: dict[str, Entry] = {}
    ambiguous = set()
    for line in result.stdout.splitlines():
        status, _, path = line.partition("|")
        if not path.startswith(folder + "/"):
            continue
        relative = path[len(folder) + 1 :]
        try:
            check_relative(relative)
            entry = _entry(status)
        except ValueError:
            continue
        if relative in found:
            ambiguous.add(relative)
        found[relative] = entry
    if not found and result.code != 0:
        raise DeployError(
            f"{device.serial} cannot list {folder}: {result.stderr.strip() or f'exit status {result.code}'}",
            code="deploy.listing",
            hint=f"Look at it with: {adb_command()} -s {device.serial} shell ls -la {folder}",
        )
    # A name with a line end in it can pretend to be another file; what is listed twice is not taken for present.
    return {path: entry for path, entry in found.items() if path not in ambiguous}


def _entry(status: str) -> Entry:
    mode, size, inode, seconds, readable = status.split(" ", 4)
    # Only the readable form of the time has its fraction; the rest of it depends on the time zone.
    fraction = _FRACTION.search(readable)
    return Entry(int(mode, 16), int(size), f"{int(inode)} {int(seconds)}{fraction[0] if fraction else ''}")
