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
    `force` deploys in spite of another platform and takes over a folder that is not this recipe's.
    """

    target: str | None = None
    bundle: Path | None = None
    dry_run: bool = False
    force: bool = False
    stale_ok: bool = False


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

    `sent_bytes` and `skipped_bytes` count the content of the bundle's and the build's files, whole.
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
    current: bool
    dry_run: bool
    seconds: float
