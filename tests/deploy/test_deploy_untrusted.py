"""A device's folder and manifest are not trusted: nothing outside the deployment is read, written or removed because of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import samples
from deploy_scene import Scene

from etcli.common.errors import DeployError, EtcliError, ExitCode
from etcli.deploy.clean import clean

MANIFEST = ".etcli-manifest.json"
PENDING = ".etcli-pending.json"


def hostile(scene: Scene, path: str, *, document: str = MANIFEST) -> Path:
    """Deploy, then add `path` to the device's document as if it were ours; return a file that it might reach."""
    scene.deploy()
    victim = scene.device.root / "victim.txt"
    victim.write_text("precious")
    manifest: dict[str, Any] = json.loads((scene.folder / MANIFEST).read_text())
    manifest["files"].append({"path": path, "size": 8, "sha256": "0" * 64, "executable": False})
    (scene.folder / document).write_text(json.dumps(manifest))
    return victim


@pytest.mark.parametrize("document", [MANIFEST, PENDING])
@pytest.mark.parametrize(
    "path", ["../../victim.txt", "/data/local/tmp/victim.txt", "bundle/../../../victim.txt", "./x", "a//b", "x\ny", ""]
)
def test_manifest_with_a_path_that_leaves_the_folder_is_refused(scene: Scene, path: str, document: str) -> None:
    victim = hostile(scene, path, document=document)
    with pytest.raises(DeployError) as caught:
        scene.deploy()
    assert caught.value.exit == ExitCode.DEPLOY
    assert caught.value.problems[0].code == "deploy.manifest_invalid"
    with pytest.raises(DeployError):
        clean(scene.loaded, scene.device, scene.console)
    assert victim.read_text() == "precious"
    scene.deploy(force=True)
    assert victim.read_text() == "precious"
    assert scene.deploy().current


def test_listed_file_behind_a_link_is_not_removed(scene: Scene) -> None:
    victim = hostile(scene, "out/victim.txt")
    (scene.folder / "out").symlink_to(scene.device.root)
    assert scene.deploy().removed == ()
    clean(scene.loaded, scene.device, scene.console)
    assert victim.read_text() == "precious"


def test_link_in_place_of_a_folder_of_ours_is_refused(scene: Scene) -> None:
    scene.deploy()
    bundle = scene.folder / "bundle"
    bundle.rename(scene.device.root / "elsewhere")
    bundle.symlink_to(scene.device.root / "elsewhere")
    with pytest.raises(DeployError, match="a symbolic link") as caught:
        scene.deploy()
    assert {problem.code for problem in caught.value.problems} == {"deploy.obstacle"}


def test_link_in_place_of_a_file_is_refused(scene: Scene) -> None:
    scene.deploy()
    victim = scene.device.root / "victim.txt"
    victim.write_text("precious")
    (scene.folder / "bundle/runner.cfg").unlink()
    (scene.folder / "bundle/runner.cfg").symlink_to(victim)
    with pytest.raises(DeployError):
        scene.deploy()
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("depth", ["etcli", "etcli/tiny"])
def test_folder_behind_a_link_is_refused(scene: Scene, depth: str) -> None:
    elsewhere = scene.device.root / "elsewhere"
    elsewhere.mkdir()
    link = scene.device.root / depth
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(elsewhere)
    with pytest.raises(DeployError, match="a symbolic link, not a folder"):
        scene.deploy()
    with pytest.raises(DeployError):
        clean(scene.loaded, scene.device, scene.console)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("content", [b"not json", b"[]", b"\xff\xfe", b"{}", b"[" * 100_000])
def test_manifest_that_is_none_is_refused_and_can_be_forced(scene: Scene, content: bytes) -> None:
    scene.deploy()
    (scene.folder / MANIFEST).write_bytes(content)
    with pytest.raises(DeployError) as caught:
        scene.deploy()
    assert caught.value.problems[0].code == "deploy.manifest_invalid"
    scene.deploy(force=True)
    assert scene.deploy().current


def test_files_with_our_content_are_ours_without_a_manifest(scene: Scene) -> None:
    scene.deploy()
    (scene.folder / MANIFEST).unlink()
    again = scene.deploy()
    assert (again.sent_files, again.removed) == (0, ())
    assert scene.deploy().current
    (scene.folder / MANIFEST).unlink()
    other = scene.folder / "bundle/chunks/tiny_0.pte"
    other.write_bytes(bytes(other.stat().st_size))
    with pytest.raises(DeployError, match=r"did not put there: bundle/chunks/tiny_0\.pte$"):
        scene.deploy()
    assert not any(other.read_bytes())


def test_huge_manifest_is_not_read(scene: Scene) -> None:
    scene.deploy()
    with (scene.folder / MANIFEST).open("r+b") as file:
        file.truncate(1 << 33)
    with pytest.raises(DeployError, match="sensible size"):
        scene.deploy()


def test_folder_of_somebody_else_is_refused_and_its_files_survive_force(scene: Scene) -> None:
    scene.folder.mkdir(parents=True)
    (scene.folder / "photo.jpg").write_text("mine")
    with pytest.raises(DeployError, match=r"did not put there: photo\.jpg") as caught:
        scene.deploy()
    assert caught.value.problems[0].code == "deploy.foreign_folder"
    assert scene.device.pushed == []
    scene.deploy(force=True)
    assert (scene.folder / "photo.jpg").read_text() == "mine"
    assert clean(scene.loaded, scene.device, scene.console) == 9
    assert [path.name for path in scene.folder.iterdir()] == ["photo.jpg"]


def test_folder_of_another_recipe_is_refused_and_replaced_with_force(scene: Scene) -> None:
    scene.deploy()
    mine = scene.loaded
    scene.loaded = samples.make_recipe(mine.base, name="other", deploy={"dir": mine.recipe.device_dir})
    samples.make_bundle(scene.loaded, scene.workspace)
    samples.make_build(scene.loaded, scene.workspace)
    with pytest.raises(DeployError, match="belongs to another recipe, tiny"):
        scene.deploy()
    result = scene.deploy(force=True)
    assert result.removed == ("bundle/chunks/tiny_0.pte", "bundle/chunks/tiny_1.pte")
    scene.loaded = mine
    with pytest.raises(DeployError, match="another recipe, other"):
        clean(scene.loaded, scene.device, scene.console)


def test_folder_inside_another_deployment_is_refused(scene: Scene) -> None:
    scene.deploy()
    scene.loaded = samples.make_recipe(
        scene.loaded.base, name="other", deploy={"dir": f"{scene.loaded.recipe.device_dir}/bundle"}
    )
    samples.make_bundle(scene.loaded, scene.workspace)
    samples.make_build(scene.loaded, scene.workspace)
    with pytest.raises(DeployError, match="inside another deployment"):
        scene.deploy()


@pytest.mark.parametrize(
    "folder",
    ["/sdcard/etcli", "/data/local/tmp", "/data/local/tmp/../x", "/data/local/tmp/", "etcli", "/data/local/tmp/a//b"],
)
def test_folder_outside_the_place_for_programs_is_refused(scene: Scene, folder: str) -> None:
    section = scene.loaded.recipe.deploy.model_copy(update={"dir": folder})
    recipe = scene.loaded.recipe.model_copy(update={"deploy": section})
    scene.loaded = type(scene.loaded)(recipe, scene.loaded.path, scene.loaded.base, {})
    with pytest.raises(EtcliError) as caught:
        scene.deploy()
    assert caught.value.problems[0].code == "deploy.dir"
    assert caught.value.exit == ExitCode.USAGE
    assert scene.device.commands == []


def test_file_system_without_the_right_to_execute_is_refused(scene: Scene) -> None:
    scene.device.mounts = (
        "/dev/a / ext4 rw,noexec 0 0\n/dev/b /data ext4 rw,nosuid 0 0\n/dev/c /data/local/tmp f2fs rw,noexec 0 0\n"
    )
    with pytest.raises(DeployError, match="mounted noexec"):
        scene.deploy()
    scene.device.mounts = "/dev/a / ext4 rw,noexec 0 0\n/dev/b /data ext4 rw,nosuid 0 0\n"
    assert scene.deploy().sent_files == 9


def test_name_with_a_line_end_does_not_pass_for_a_file(scene: Scene) -> None:
    scene.deploy()
    real = scene.folder / "bundle/runner.cfg"
    status = real.stat()
    fake = f"x\n{0o100644:x} {int(status.st_mtime)} {status.st_size} /data/local/tmp/etcli/tiny/bundle"
    (scene.folder / fake).mkdir(parents=True)
    (scene.folder / fake / "runner.cfg").write_text("x")
    assert [file.path for file in scene.deploy().files if file.action == "send"] in ([], ["bundle/runner.cfg"])
    assert scene.deploy().skipped_bytes > 0
