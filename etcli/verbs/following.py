"""The command that comes after a stage, as a user would type it."""

from __future__ import annotations

from etcli.common.workspace import Workspace
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import MANIFEST, command_line

_VIRTUAL = {"host": "virtual:x86_64", "linux-aarch64": "virtual:aarch64"}
"""Targets that no phone takes, and the virtual device that does."""


def after_export(loaded: LoadedRecipe, workspace: Workspace) -> str:
    """The line after an export: the build, or where there is one already the deployment."""
    built = any(workspace.builds.glob(f"*/{MANIFEST}"))
    return command_line("deploy" if built else "build", loaded, workspace, named=False)


def after_build(
    loaded: LoadedRecipe, workspace: Workspace, target: str, *, serial: str | None, virtual: str | None
) -> str:
    """The line after a build for `target`: the deployment to the device that was named or that takes it, or the export that lacks."""
    if not (workspace.bundle / MANIFEST).is_file():
        return command_line("export", loaded, workspace, named=False)
    device = virtual or (None if serial else _VIRTUAL.get(target))
    words = ["--device", device] if device else ["--serial", serial] if serial else []
    return command_line("deploy", loaded, workspace, *words, named=False)
