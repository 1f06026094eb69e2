"""What a deployment is asked for, what it plans, and what it did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Action = Literal["send", "keep"]


@dataclass(frozen=True)
class DeployOptions:
    """How to deploy.

    `target` picks a build, by default the newest that fits the device; `bundle` is a bundle folder, by default the workspace's;
    `force` deploys in spite of another platform and takes over a folder that is not this recipe's; `verify` has the device hash every file,
    whatever its manifest says.
    """

    target: str | None = None
    bundle: Path | None = None
    dry_run: bool = False
    force: bool = False
    stale_ok: bool = False
    verify: bool = False


@dataclass(frozen=True)
class PlannedFile:
    """A file of the deployment: path below the folder, bytes, why it is part of it, and why it is sent or kept."""

    path: str
    size: int
    sha256: str
    executable: bool
    reason: str
    action: Action
    why: str


@dataclass(frozen=True)
class DeployResult:
    """A deployment, or with `dry_run` what it would be. `current` says that nothing had to be changed.

    `sent_bytes` and `skipped_bytes` count the content of the bundle's and the build's files, whole. `space_bytes` is what the file system must
    take on top of what it holds, at the most; `free_bytes` what it had free, None where nothing had to be sent.
    """

    name: str
    serial: str
    folder: str
    target: str
    files: tuple[PlannedFile, ...]
    removed: tuple[str, ...]
    sent_files: int
    sent_bytes: int
    skipped_bytes: int
    space_bytes: int
    free_bytes: int | None
    current: bool
    dry_run: bool
    seconds: float
