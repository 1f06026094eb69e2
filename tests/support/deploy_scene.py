"""One recipe, its workspace, and a local folder as the device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from local_device import LocalDevice

from etcli.common.workspace import Workspace
from etcli.deploy.stage import DeployOptions, DeployResult, deploy
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe


@dataclass
class Scene:
    """One recipe, its workspace, and a device."""

    loaded: LoadedRecipe
    workspace: Workspace
    device: LocalDevice
    console: Console

    def deploy(self, **options: object) -> DeployResult:
        """Deploy with `options` changed from the defaults; what was pushed is counted from zero."""
        self.device.pushed.clear()
        self.device.pushed_bytes = 0
        return deploy(self.loaded, self.workspace, self.device, replace(DeployOptions(), **options), self.console)

    @property
    def folder(self) -> Path:
        """The deployment folder as it is on this machine."""
        return self.device.local(self.loaded.recipe.device_dir)
