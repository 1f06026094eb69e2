"""Too little space on a device: what of etcli's is there is named with its size, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
import samples
from deploy_scene import Scene
from local_device import LocalDevice

from etcli.common.errors import DeployError
from etcli.common.workspace import Workspace
from etcli.deploy.room import room_hint
from etcli.device.deployments import held_deployments
from etcli.output.console import Console

ROOT = "/data/local/tmp/etcli"


@pytest.fixture
def device(tmp_path: Path) -> LocalDevice:
    return LocalDevice(tmp_path / "device")


def held(device: LocalDevice, name: str, size: int, document: str = ".etcli-manifest.json") -> None:
    folder = device.local(ROOT) / name
    folder.mkdir(parents=True)
    (folder / document).write_text("{}")
    (folder / "weights").write_bytes(b"w" * size)


def test_deployments_are_found_by_their_documents_the_largest_first(device: LocalDevice) -> None:
    held(device, "small", 10_000)
    held(device, "large", 3_000_000)
    held(device, "begun", 1_000_000, ".etcli-pending.json")
    held(device, "not-ours", 10, "notes.json")
    held(device, "Evil; rm -rf $HOME", 10)
    (device.local(ROOT) / "link").symlink_to(device.local(ROOT) / "large")
    found = held_deployments(device)
    assert [item.name for item in found] == ["large", "begun", "small"]
    assert found[0].folder == f"{ROOT}/large"
    assert found[0].bytes is not None
    assert 3_000_000 <= found[0].bytes < 3_100_000
    assert held_deployments(LocalDevice(device.root.parent / "other")) == ()


def test_an_answer_that_is_none_gives_no_size(device: LocalDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    held(device, "one", 10)
    real = device._words
    monkeypatch.setattr(device, "_words", lambda argv: ["echo", "99\tother"] if argv[0] == "du" else real(argv))
    assert [item.bytes for item in held_deployments(device)] == [None]
    assert "deployments of etcli are there: one. " in room_hint(device, f"{ROOT}/tiny")


def test_a_full_device_names_what_else_etcli_put_there(tmp_path: Path, device: LocalDevice) -> None:
    loaded = samples.make_recipe(tmp_path)
    scene = Scene(loaded, Workspace(tmp_path / "work", "tiny"), device, Console(verbosity=-1))
    samples.make_bundle(loaded, scene.workspace)
    samples.make_build(loaded, scene.workspace)
    device.free = 1000
    with pytest.raises(DeployError) as caught:
        scene.deploy()
    assert "no other deployment" in (caught.value.problems[0].hint or "")
    held(device, "old", 2_000_000)
    held(device, "tiny", 10)
    (device.local(ROOT) / "tiny" / ".etcli-manifest.json").unlink()
    (device.local(ROOT) / "tiny" / "weights").unlink()
    with pytest.raises(DeployError) as caught:
        scene.deploy()
    (problem,) = caught.value.problems
    assert problem.code == "deploy.no_space"
    assert "old (2.0 MB)" in (problem.hint or "")
    assert f"-s local-1 shell rm -r {ROOT}/old" in (problem.hint or "")
    assert "tiny" not in (problem.hint or "")
