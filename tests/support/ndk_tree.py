"""Folders laid out as an Android NDK: every file that a build asks for, each empty. `ndk_standin.py` has one that compiles."""

from __future__ import annotations

import platform
from pathlib import Path

from etcli.tables.ndk import ndk_facts

TRIPLE = "aarch64-linux-android"


def make_ndk(root: Path, revision: str = "28.2.13676358", *, api_levels: tuple[int, ...] = (21, 26, 28, 35)) -> Path:
    """The whole layout, below `root`."""
    facts, host = ndk_facts(), ndk_facts().hosts[platform.system()]
    libraries = facts.libraries.format(host=host, triple=TRIPLE)
    files = [facts.toolchain_file, facts.compiler, facts.strip, f"{libraries}/{facts.runtime}"]
    files += [name for name in facts.files if not name.endswith("/include")]
    folders = [name for name in facts.files if name.endswith("/include")]
    folders += [f"{libraries}/{level}" for level in api_levels]
    for name in folders:
        (root / name.format(host=host)).mkdir(parents=True)
    for name in files:
        path = root / name.format(host=host)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    write_revision(root, revision)
    return root


def write_revision(root: Path, revision: str) -> None:
    """Say in `source.properties` that it is of `revision`."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "source.properties").write_text(f"Pkg.Desc = Android NDK\nPkg.Revision = {revision}\nPkg.ReleaseName = x\n")
