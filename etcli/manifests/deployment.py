"""`.etcli-manifest.json` on the device: what etcli put there. Written last; untrusted when read back."""

from __future__ import annotations

from typing import ClassVar

from etcli.manifests.base import FileEntry, Manifest, RecipeName


class DeployedFile(FileEntry):
    """A file below the deployment folder and its permission bits.

    `stamp` is the device's inode and change time of the file when its content was known to be the one of this hash; empty where it was not looked at.
    """

    executable: bool
    stamp: str = ""


class DeploymentManifest(Manifest):
    """One deployment. Its presence means that every listed file arrived whole."""

    FILE: ClassVar[str] = ".etcli-manifest.json"

    etcli: str
    name: RecipeName
    target: str
    bundle_sha256: str
    build_sha256: str
    runner: str
    files: tuple[DeployedFile, ...]
