"""One recipe, its workspace, and a virtual device behind a real adb server, seen from outside through the stock adb program."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import samples
from device_fixtures import stock_adb

from etcli.common.workspace import Workspace
from etcli.deploy.stage import DeployOptions, DeployResult, deploy
from etcli.device.adb import AdbDevice
from etcli.device.server import AdbServer
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe

FOLDER = "/data/local/tmp/etcli/tiny"


class AdbScene:
    """A recipe, its workspace and a device."""

    def __init__(self, home: Path, server: AdbServer, device: AdbDevice) -> None:
        self.loaded: LoadedRecipe = samples.make_recipe(home)
        self.workspace = Workspace(home / "work", "tiny")
        self.server = server
        self.device = device
        self.console = Console(verbosity=-1)
        samples.make_bundle(self.loaded, self.workspace)
        samples.make_build(self.loaded, self.workspace)

    def deploy(self, **options: object) -> DeployResult:
        """Deploy with `options` changed from the defaults."""
        return deploy(self.loaded, self.workspace, self.device, replace(DeployOptions(), **options), self.console)

    def adb(self, *words: str) -> str:
        """What `adb -s SERIAL WORDS` prints."""
        command = [stock_adb(), "-P", str(self.server.port), "-s", self.device.serial, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    def inodes(self) -> dict[str, str]:
        """Inode and change time of every file and folder of the deployment: a write of any kind changes them."""
        listing = self.adb("shell", f"find {FOLDER} -exec stat -c '%n|%i %y %z' {{}} +")
        return dict(line.split("|", 1) for line in listing.splitlines())
