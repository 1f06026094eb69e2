"""What a deployment sends, keeps and removes."""

from __future__ import annotations

import hashlib
import os

import pytest
import samples
from deploy_scene import Scene

from etcli.common.errors import DeployError, DeviceError, StaleError
from etcli.manifests.deployment import DeploymentManifest

MANIFEST = ".etcli-manifest.json"
PENDING = ".etcli-pending.json"


def device_files(scene: Scene) -> dict[str, str]:
    """SHA-256 of every file in the deployment folder but our documents."""
    return {
        path.relative_to(scene.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in scene.folder.rglob("*")
        if path.is_file() and path.name not in (MANIFEST, PENDING)
    }


def read_manifest(scene: Scene) -> DeploymentManifest:
    return DeploymentManifest.read(scene.folder / MANIFEST)


def test_first_deployment_puts_bundle_and_stage_in_place(scene: Scene) -> None:
    result = scene.deploy()
    files = device_files(scene)
    assert set(files) == {
        "bin/etcli_llama_runner",
        "bin/libhelper.so",
        "bundle/manifest.json",
        "bundle/runner.cfg",
        "bundle/embedding_float32.bin",
        "bundle/rope_float32.bin",
        "bundle/tokenizer/tokenizer.json",
        "bundle/chunks/tiny_0.pte",
        "bundle/chunks/tiny_1.pte",
    }
    assert {file.path: file.sha256 for file in read_manifest(scene).files} == files
    assert (scene.folder / "bin/etcli_llama_runner").stat().st_mode & 0o777 == 0o755
    assert (scene.folder / "bundle/runner.cfg").stat().st_mode & 0o777 == 0o644
    assert not result.current
    assert result.sent_files == 9
    assert result.sent_bytes == sum((scene.folder / path).stat().st_size for path in files)
    assert scene.device.pushed[-1].endswith(MANIFEST), "the manifest comes last"
    assert not (scene.folder / PENDING).exists()


def test_unchanged_deployment_sends_nothing_at_all(scene: Scene) -> None:
    scene.deploy()
    result = scene.deploy()
    assert result.current
    assert (result.sent_files, result.sent_bytes) == (0, 0)
    assert scene.device.pushed == []
    assert result.skipped_bytes == sum(file.size for file in result.files)


def test_only_the_changed_file_is_sent(scene: Scene) -> None:
    scene.deploy()
    samples.make_build(scene.loaded, scene.workspace, runner="#!/bin/sh\nexit 3\n")
    result = scene.deploy()
    sent = [(file.path, file.why) for file in result.files if file.action == "send"]
    assert sent == [("bin/etcli_llama_runner", "has other content there")]
    assert [path.rsplit("/", 1)[-1] for path in scene.device.pushed] == [PENDING, "etcli_llama_runner", MANIFEST]
    assert (scene.folder / "bin/etcli_llama_runner").read_text() == "#!/bin/sh\nexit 3\n"


def test_rebuild_without_a_new_byte_renews_only_the_manifest(scene: Scene) -> None:
    scene.deploy()
    samples.make_build(scene.loaded, scene.workspace, cmake="9.9")
    result = scene.deploy()
    assert result.sent_bytes == 0
    assert not result.current
    assert [path.rsplit("/", 1)[-1] for path in scene.device.pushed] == [MANIFEST]
    assert scene.deploy().current


def test_stale_files_of_ours_go_and_files_of_others_stay(scene: Scene) -> None:
    scene.deploy()
    (scene.folder / "bundle/notes.txt").write_text("mine")
    old = scene.workspace.bundle / "manifest.json"
    manifest = samples.make_bundle(scene.loaded, scene.workspace)
    shorter = manifest.model_copy(update={"chunks": manifest.chunks[:1]})
    shorter.write(old)
    result = scene.deploy()
    assert result.removed == ("bundle/chunks/tiny_1.pte",)
    assert not (scene.folder / "bundle/chunks/tiny_1.pte").exists()
    assert (scene.folder / "bundle/notes.txt").read_text() == "mine"


def test_same_size_change_on_the_device_is_noticed(scene: Scene) -> None:
    scene.deploy()
    victim = scene.folder / "bundle/rope_float32.bin"
    victim.write_bytes(b"x" * victim.stat().st_size)
    written = (scene.folder / MANIFEST).stat().st_mtime
    os.utime(victim, (written + 5, written + 5))
    result = scene.deploy()
    sent = [(file.path, file.why) for file in result.files if file.action == "send"]
    assert sent == [("bundle/rope_float32.bin", "has other content there")]
    assert victim.read_bytes() == b"r" * 512


@pytest.mark.parametrize("mode", [0o600, 0o777])
def test_lost_permissions_are_restored_without_sending(scene: Scene, mode: int) -> None:
    scene.deploy()
    (scene.folder / "bin/etcli_llama_runner").chmod(mode)
    result = scene.deploy()
    assert result.sent_bytes == 0
    assert (scene.folder / "bin/etcli_llama_runner").stat().st_mode & 0o777 == 0o755


def test_file_missing_on_the_device_is_sent_again(scene: Scene) -> None:
    scene.deploy()
    (scene.folder / "bundle/runner.cfg").unlink()
    result = scene.deploy()
    assert [(file.path, file.why) for file in result.files if file.action == "send"] == [
        ("bundle/runner.cfg", "not on the device")
    ]


def test_interrupted_deployment_leaves_no_manifest_and_goes_on(scene: Scene) -> None:
    scene.device.break_after = 4  # the pending document and three files
    with pytest.raises(DeviceError):
        scene.deploy()
    assert not (scene.folder / MANIFEST).exists()
    arrived = set(device_files(scene))
    assert len(arrived) == 3
    scene.device.break_after = None
    result = scene.deploy()
    assert {file.path for file in result.files if file.action == "keep"} == arrived
    assert result.sent_files == 6
    assert read_manifest(scene).name == "tiny"


def test_interrupted_update_still_knows_its_stale_files(scene: Scene) -> None:
    scene.deploy()
    manifest = samples.make_bundle(scene.loaded, scene.workspace, weights=b"other" * 999)
    manifest.model_copy(update={"chunks": manifest.chunks[:1]}).write(scene.workspace.bundle / "manifest.json")
    scene.device.break_after = 1
    with pytest.raises(DeviceError):
        scene.deploy()
    assert not (scene.folder / MANIFEST).exists()
    (scene.folder / "bundle/chunks/tiny_1.pte").write_bytes(b"back again")
    scene.device.break_after = None
    assert scene.deploy().removed == ("bundle/chunks/tiny_1.pte",)


def test_parts_of_a_broken_transfer_are_cleared_away(scene: Scene) -> None:
    parts = [scene.folder / ".etcli-pending.json.part-12", scene.folder / "bundle/chunks/tiny_0.pte.part-345"]
    foreign = scene.folder / "bundle/other.bin.part-1"
    for part in parts:
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(b"half")
    assert scene.deploy().removed == (".etcli-pending.json.part-12", "bundle/chunks/tiny_0.pte.part-345")
    foreign.write_bytes(b"not ours")
    assert scene.deploy().current
    assert foreign.exists()


def test_file_damaged_on_the_way_is_an_error_and_sent_again(scene: Scene) -> None:
    scene.device.corrupt = f"{scene.loaded.recipe.device_dir}/bundle/chunks/tiny_0.pte"
    with pytest.raises(DeployError, match="did not arrive whole") as caught:
        scene.deploy()
    assert caught.value.problems[0].code == "deploy.damaged"
    assert not (scene.folder / MANIFEST).exists()
    scene.device.corrupt = None
    result = scene.deploy()
    assert [file.path for file in result.files if file.action == "send"] == ["bundle/chunks/tiny_0.pte"]


@pytest.mark.known_failure("deploy-forgotten-library")
def test_dry_run_plans_and_changes_nothing(scene: Scene) -> None:
    result = scene.deploy(dry_run=True)
    assert result.dry_run
    assert not result.current
    assert result.sent_files == 9
    assert {file.path: file.reason for file in result.files}["bin/libhelper.so"] == "needed by the runner"
    assert all(file.reason for file in result.files)
    assert scene.device.pushed == []
    assert not scene.folder.exists()


def test_full_device_is_refused_before_anything_changes(scene: Scene) -> None:
    scene.deploy()
    samples.make_bundle(scene.loaded, scene.workspace, weights=b"larger!" * 2000)
    scene.device.free = 10_000
    with pytest.raises(DeployError, match="not enough space") as caught:
        scene.deploy()
    assert caught.value.problems[0].code == "deploy.no_space"
    assert "0.0 MB free" in caught.value.problems[0].message
    assert (scene.folder / MANIFEST).exists(), "the old deployment is still whole"
    assert scene.device.pushed == []


@pytest.mark.known_failure("export-missing-chunk")
def test_damaged_local_file_is_found_before_anything_is_sent(scene: Scene) -> None:
    path = scene.workspace.bundle / "chunks/tiny_0.pte"
    path.write_bytes(b"\xff" * path.stat().st_size)
    with pytest.raises(StaleError) as caught:
        scene.deploy()
    assert caught.value.problems[0].code == "bundle.damaged"
    assert (caught.value.problems[0].hint or "").endswith(" --force --only-chunks 0"), "export alone finds it current"
    assert scene.device.pushed == []


def test_every_local_file_that_is_missing_is_named_at_once(scene: Scene) -> None:
    (scene.workspace.bundle / "runner.cfg").unlink()
    (scene.workspace.build("host") / "stage/libhelper.so").write_bytes(b"short")
    with pytest.raises(StaleError) as caught:
        scene.deploy()
    assert [problem.code for problem in caught.value.problems] == ["bundle.damaged", "build.damaged"]
