"""What has to change on the device, from what is wanted and what is there. No device is touched here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from etcli.common.errors import DeployError, Problems
from etcli.deploy.result import PlannedFile
from etcli.deploy.wanted import WantedFile
from etcli.device.listing import Listing

PROGRAM_MODE = 0o755
FILE_MODE = 0o644


@dataclass(frozen=True)
class Plan:
    """`remove` are stale files of an earlier deployment, `modes` kept files whose permission bits are wrong.

    `space_bytes` is the most that the file system must take on top of what it holds now, at any moment of the deployment.
    """

    files: tuple[PlannedFile, ...]
    remove: tuple[str, ...]
    modes: tuple[str, ...]
    space_bytes: int

    @property
    def changes(self) -> bool:
        """Whether any file has to be sent, removed or changed."""
        return bool(self.remove or self.modes or any(file.action == "send" for file in self.files))


def mode_of(executable: bool) -> int:
    """Permission bits of a deployed file."""
    return PROGRAM_MODE if executable else FILE_MODE


def to_hash(wanted: Collection[WantedFile], listing: Listing, known: Mapping[str, str]) -> dict[str, int]:
    """Paths and sizes of files whose content only a hash on the device can tell: there, of the right size, not vouched for by the manifest's stamps."""
    return {
        file.path: file.size
        for file in wanted
        if file.path not in known
        and (entry := listing.get(file.path)) is not None
        and entry.is_file
        and entry.size == file.size
    }


def make_plan(
    wanted: Collection[WantedFile], listing: Listing, known: Mapping[str, str], owned: Collection[str]
) -> Plan:
    """The plan.

    Args:
        known: SHA-256 of files on the device, from its manifest where they are untouched, or hashed there.
        owned: paths that earlier deployments of ours list.

    Raises:
        DeployError: a link or a folder stands where a file or a folder of ours must go; all of them at once.
    """
    _check_obstacles(wanted, listing)
    files = tuple(_planned(file, listing, known) for file in wanted)
    keep = {file.path for file in files}
    # Only what the listing shows as a regular file, whose parents are therefore real folders, is ever removed.
    remove = tuple(
        sorted(path for path in set(owned) - keep if (entry := listing.get(path)) is not None and entry.is_file)
    )
    modes = tuple(
        file.path
        for file in files
        if file.action == "keep" and listing[file.path].mode & 0o777 != mode_of(file.executable)
    )
    return Plan(files, remove, modes, _space(files, remove, listing))


def _planned(file: WantedFile, listing: Listing, known: Mapping[str, str]) -> PlannedFile:
    entry = listing.get(file.path)
    if entry is None:
        action, why = "send", "not on the device"
    elif entry.size != file.size:
        action, why = "send", f"has {entry.size:,} bytes there"
    elif known.get(file.path) != file.sha256:
        action, why = "send", "has other content there"
    else:
        action, why = "keep", "already there"
    return PlannedFile(
        path=file.path,
        size=file.size,
        sha256=file.sha256,
        executable=file.executable,
        reason=file.reason,
        action="send" if action == "send" else "keep",
        why=why,
    )


def _space(files: tuple[PlannedFile, ...], remove: tuple[str, ...], listing: Listing) -> int:
    # Each file is written beside the one it replaces, which goes only when the new one is whole.
    now = -sum(listing[path].size for path in remove)
    most = 0
    for file in files:
        if file.action == "send":
            most = max(most, now + file.size)
            old = listing.get(file.path)
            now += file.size - (old.size if old is not None else 0)
    return most


def _check_obstacles(wanted: Collection[WantedFile], listing: Listing) -> None:
    problems = Problems()
    seen = set()
    for file in wanted:
        for path in (file.path, *(str(parent) for parent in PurePosixPath(file.path).parents if str(parent) != ".")):
            entry = listing.get(path)
            fits = entry is None or (entry.is_file if path == file.path else entry.is_folder)
            if entry is not None and not fits and path not in seen:
                seen.add(path)
                problems.add(
                    DeployError.problem(
                        f"{path} in the deployment folder is {entry.kind}, which etcli did not put there",
                        code="deploy.obstacle",
                        hint="Remove it, or choose another deploy.dir; etcli never writes through links.",
                    )
                )
    problems.raise_if_any(DeployError)
