"""What a recipe left in the workspace, or on the device, removed; nothing else touched."""

from __future__ import annotations

from dataclasses import dataclass

from etcli.common.files import remove_tree
from etcli.common.workspace import Workspace
from etcli.deploy.clean import clean as clean_deployment
from etcli.device.base import Device
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe


@dataclass(frozen=True)
class Cleaned:
    """How many files went, and from where."""

    place: str
    files: int


def clean_workspace(workspace: Workspace) -> Cleaned:
    """Remove `<workspace>/<name>`, and the workspace folder itself where that leaves it empty. Caches stay."""
    home = workspace.home
    count = sum(path.is_symlink() or path.is_file() for path in home.rglob("*")) if home.is_dir() else 0
    remove_tree(home)
    if workspace.root.is_dir() and not any(workspace.root.iterdir()):
        workspace.root.rmdir()
    return Cleaned(str(home), count)


def clean_device(loaded: LoadedRecipe, device: Device, console: Console) -> Cleaned:
    """Remove the recipe's deployment from `device`.

    Raises:
        DeployError: the folder is not this recipe's.
    """
    removed = clean_deployment(loaded, device, console)
    return Cleaned(f"{device.serial}:{loaded.recipe.device_dir}", removed)
