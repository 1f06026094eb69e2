"""The command that comes after a stage, as a user would type it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from etcli.common.errors import EtcliError
from etcli.common.workspace import Workspace
from etcli.manifests.build import BuildManifest
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import MANIFEST, build_outdated, command_line

_VIRTUAL = {"host": "virtual:x86_64", "linux-aarch64": "virtual:aarch64"}
"""Targets that no phone takes, and the virtual device that does."""


def after_export(loaded: LoadedRecipe, workspace: Workspace) -> str:
    """The line after an export: the deployment of the newest build that fits the recipe, or where there is none the build."""
    for path in _newest_first(workspace.builds.glob(f"*/{MANIFEST}")):
        try:
            manifest = BuildManifest.read(path)
        except (EtcliError, FileNotFoundError):
            continue  # damaged or gone: no build to deploy
        if build_outdated(loaded, manifest) is None:
            return command_line("deploy", loaded, workspace, *_device_words(manifest.target), named=False)
    return command_line("build", loaded, workspace, named=False)


def after_build(
    loaded: LoadedRecipe, workspace: Workspace, target: str, *, serial: str | None, virtual: str | None
) -> str:
    """The line after a build for `target`: the deployment to the device that was named or that takes it, or the export that lacks."""
    if not (workspace.bundle / MANIFEST).is_file():
        return command_line("export", loaded, workspace, named=False)
    return command_line("deploy", loaded, workspace, *_device_words(target, serial, virtual), named=False)


def _device_words(target: str, serial: str | None = None, virtual: str | None = None) -> list[str]:
    """The options for the device that was named or that takes a build for `target`; none for a phone, which is found."""
    device = virtual or (None if serial else _VIRTUAL.get(target))
    return ["--device", device] if device else ["--serial", serial] if serial else []


def _newest_first(paths: Iterable[Path]) -> list[Path]:
    times: dict[Path, int] = {}
    for path in paths:
        with contextlib.suppress(OSError):  # gone meanwhile
            times[path] = path.stat().st_mtime_ns
    return sorted(times, key=times.__getitem__, reverse=True)
