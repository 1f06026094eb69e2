"""A deployed small recipe whose runner is a shell script that the test writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import samples
from deploy_scene import Scene
from local_device import LocalDevice

from etcli.common.workspace import Workspace
from etcli.manifests.run_record import RunRecord
from etcli.output.console import Console
from etcli.run.stage import RunOptions, run


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    loaded = samples.make_recipe(tmp_path, run={"prompt": "Hello world", "chat": False})
    workspace = Workspace(tmp_path / "work", loaded.recipe.name)
    samples.make_bundle(loaded, workspace)
    return Scene(loaded, workspace, LocalDevice(tmp_path / "device"), Console(verbosity=-1))


@pytest.fixture
def run_script(scene: Scene) -> Callable[..., RunRecord]:
    """Deploy a runner that is the given script, and run it with `options` changed from the defaults."""

    def call(script: str, **options: object) -> RunRecord:
        samples.make_build(scene.loaded, scene.workspace, runner=script)
        scene.deploy()
        return run(scene.loaded, scene.workspace, scene.device, replace(RunOptions(), **options), scene.console)

    return call
