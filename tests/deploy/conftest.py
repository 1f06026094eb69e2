"""A workspace with a small bundle and build, and a local folder or a virtual device."""

from __future__ import annotations

from pathlib import Path

import pytest
import samples
from deploy_scene import Scene
from local_device import LocalDevice

from etcli.common.workspace import Workspace
from etcli.deploy import transfer
from etcli.device.virtual.spec import Protocol
from etcli.output.console import Console


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    loaded = samples.make_recipe(tmp_path)
    workspace = Workspace(tmp_path / "work", loaded.recipe.name)
    samples.make_bundle(loaded, workspace)
    samples.make_build(loaded, workspace)
    return Scene(loaded, workspace, LocalDevice(tmp_path / "device"), Console(verbosity=-1))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken transfers are taken up again at once, and three times."""
    monkeypatch.setattr(transfer, "WAITS", (0.0, 0.0, 0.0))


@pytest.fixture(params=["new", "old"])
def protocol(request: pytest.FixtureRequest) -> Protocol:
    """What goes through a real adb server does so with devices of either protocol."""
    return request.param
