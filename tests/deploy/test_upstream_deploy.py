"""Deploying for upstream's MediaTek runner: what it cannot run is refused before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import samples
from deploy_scene import Scene
from local_device import LocalDevice
from mtk_bundles import make_mtk_bundle
from tokenizer_kinds import bpe_folder

from etcli.common.errors import DeployError, EtcliError
from etcli.common.workspace import Workspace
from etcli.manifests.model import RopeConfig
from etcli.output.console import Console


def scene_of(root: Path, runner: str, **changes: Any) -> Scene:
    loaded = samples.make_recipe(root, run={"runner": runner})
    workspace = Workspace(root / "work", loaded.recipe.name)
    make_mtk_bundle(loaded, workspace, bpe_folder(root / "model"), **changes)
    samples.make_build(loaded, workspace)
    return Scene(loaded, workspace, LocalDevice(root / "device"), Console(verbosity=-1))


def test_what_the_binary_registers_is_not_the_builds_affair(tmp_path: Path) -> None:
    """The bundle's delegate is one that the build lacks: etcli's runner could not run it, the user's binary brings it."""
    assert scene_of(tmp_path / "a", "mtk").deploy().sent_files > 5
    with pytest.raises(DeployError, match="NeuropilotBackend"):
        scene_of(tmp_path / "b", "etcli", cache="shift").deploy()


def test_a_ring_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, "mtk", cache="ring")
    with pytest.raises(EtcliError) as caught:
        scene.deploy()
    assert [problem.code for problem in caught.value.problems] == ["mtk.cache"]
    assert scene.device.pushed == []


@pytest.mark.known_failure("mtk-rope-scaling")
def test_scaled_positions_are_a_warning(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, "mtk", model_changes={"rope": RopeConfig(theta=5e5, kind="llama3", factor=8.0)})
    scene.deploy()
    assert [warning.code for warning in scene.console.warnings] == ["mtk.rope_scaling"]
