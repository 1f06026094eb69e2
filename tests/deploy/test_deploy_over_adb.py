"""Deploying to a real x86_64 virtual device through a real adb server, seen with the stock adb program."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import samples
from adb_scene import FOLDER, AdbScene
from device_fixtures import MakeDevice

from etcli.common.errors import DeployError, ExitCode, InterruptedByUser
from etcli.deploy import apply, stage
from etcli.deploy.clean import clean
from etcli.device.adb import AdbSender
from etcli.device.server import AdbServer
from etcli.device.virtual.spec import Protocol
from etcli.output.console import Console


@pytest.fixture
def scene(tmp_path: Path, adb_server: AdbServer, virtual_device: MakeDevice, protocol: Protocol) -> Iterator[AdbScene]:
    device = virtual_device("x86_64", protocol=protocol)
    yield AdbScene(tmp_path, adb_server, device)
    device.shell(["rm", "-rf", "/data/local/tmp/etcli", "/data/local/tmp/victim"])


def test_files_arrive_as_they_are(scene: AdbScene, tmp_path: Path) -> None:
    scene.deploy()
    scene.adb("pull", FOLDER, str(tmp_path / "pulled"))
    for folder, source in (
        ("bundle", scene.workspace.bundle),
        ("bin", scene.workspace.build("host") / "stage"),
    ):
        sent = {p.relative_to(source).as_posix(): p.read_bytes() for p in source.rglob("*") if p.is_file()}
        there = tmp_path / "pulled" / folder
        assert {p.relative_to(there).as_posix(): p.read_bytes() for p in there.rglob("*") if p.is_file()} == sent
    assert scene.adb("shell", f"stat -c %a {FOLDER}/bin/etcli_llama_runner").strip() == "755"


def test_second_deployment_touches_nothing(scene: AdbScene) -> None:
    scene.deploy()
    before = scene.inodes()
    result = scene.deploy()
    assert result.current
    assert result.sent_bytes == 0
    assert scene.inodes() == before


def test_only_what_changed_is_written(scene: AdbScene) -> None:
    scene.deploy()
    before = scene.inodes()
    samples.make_build(scene.loaded, scene.workspace, runner="#!/bin/sh\necho new\n")
    assert scene.deploy().sent_files == 1
    after = scene.inodes()
    assert {path for path in after if after[path] != before.get(path)} == {
        FOLDER,
        f"{FOLDER}/.etcli-manifest.json",
        f"{FOLDER}/bin",
        f"{FOLDER}/bin/etcli_llama_runner",
    }
    assert scene.adb("shell", f"{FOLDER}/bin/etcli_llama_runner") == "new\n"


@pytest.mark.known_failure("device-text-busy")
def test_running_program_can_be_replaced(scene: AdbScene) -> None:
    program = scene.workspace.build("host") / "stage" / "etcli_llama_runner"
    sleep = Path(shutil.which("sleep") or "/bin/sleep").read_bytes()
    for build in (sleep, sleep + b"\0"):
        staged = samples.entry(program.parent, program.name, build)
        manifest = samples.make_build(scene.loaded, scene.workspace)
        program.write_bytes(build)
        first = manifest.stage[0].model_copy(update={"size": staged.size, "sha256": staged.sha256})
        changed = manifest.model_copy(update={"stage": (first, *manifest.stage[1:])})
        changed.write(scene.workspace.build("host") / "manifest.json")
        with scene.device.open([f"{FOLDER}/bin/etcli_llama_runner", "60"]):
            assert scene.deploy().sent_files > 0


def interrupted(scene: AdbScene, monkeypatch: pytest.MonkeyPatch, at: str, error: type[BaseException]) -> None:
    """Make the push of the file `at` break off in the middle."""
    send = AdbSender.send

    def broken(
        self: AdbSender,
        local: Path,
        remote: str,
        *,
        executable: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        def stop(_: int) -> None:
            raise error

        here = remote.rpartition(".part-")[0].endswith(at)
        send(self, local, remote, executable=executable, progress=stop if here else progress)

    monkeypatch.setattr(AdbSender, "send", broken)


def test_interrupted_transfer_leaves_no_manifest_and_sends_only_the_rest(
    scene: AdbScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupted(scene, patch, "bundle/embedding_float32.bin", KeyboardInterrupt)
        with pytest.raises(InterruptedByUser) as caught:
            scene.deploy()
    assert caught.value.exit == ExitCode.INTERRUPTED
    assert "etcli deploy" in (caught.value.problems[0].hint or "")
    files = scene.adb("shell", f"find {FOLDER} -type f").split()
    assert f"{FOLDER}/.etcli-manifest.json" not in files
    assert not [path for path in files if ".part" in path]
    result = scene.deploy()
    assert sorted(file.path for file in result.files if file.action == "keep") == [
        "bin/etcli_llama_runner",
        "bin/libhelper.so",
        "bundle/chunks/tiny_0.pte",
        "bundle/chunks/tiny_1.pte",
    ]
    assert scene.deploy().current


@pytest.mark.parametrize("path", ["../../victim/x", "/data/local/tmp/victim/x", "bundle/../../../victim/x"])
def test_hostile_manifest_removes_nothing(scene: AdbScene, tmp_path: Path, path: str) -> None:
    scene.deploy()
    scene.adb("shell", "mkdir -p /data/local/tmp/victim && echo precious > /data/local/tmp/victim/x")
    manifest = json.loads(scene.adb("shell", f"cat {FOLDER}/.etcli-manifest.json"))
    manifest["files"].append({"path": path, "size": 9, "sha256": "0" * 64, "executable": False})
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(manifest))
    scene.adb("push", str(forged), f"{FOLDER}/.etcli-manifest.json")
    with pytest.raises(DeployError) as caught:
        scene.deploy()
    assert caught.value.problems[0].code == "deploy.manifest_invalid"
    with pytest.raises(DeployError):
        clean(scene.loaded, scene.device, Console(verbosity=-1))
    scene.deploy(force=True)
    assert scene.adb("shell", "cat /data/local/tmp/victim/x") == "precious\n"


def test_links_are_refused_on_the_device(scene: AdbScene) -> None:
    scene.deploy()
    scene.adb("shell", f"mv {FOLDER}/bundle /data/local/tmp/victim && ln -s /data/local/tmp/victim {FOLDER}/bundle")
    with pytest.raises(DeployError, match="a symbolic link"):
        scene.deploy()
    clean(scene.loaded, scene.device, Console(verbosity=-1))
    assert "runner.cfg" in scene.adb("shell", "ls /data/local/tmp/victim")


def test_a_shell_without_what_it_takes_is_refused_before_anything_is_sent(
    scene: AdbScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "TOOLS", ("find", "no-such-hasher", "mv", "no-such-stat"))
    with pytest.raises(DeployError, match="has no no-such-hasher, no no-such-stat in its shell") as caught:
        scene.deploy()
    assert caught.value.problems[0].code == "deploy.tools"
    assert scene.device.stat(FOLDER) is None


def test_a_folder_in_the_place_of_the_manifest_is_named(scene: AdbScene) -> None:
    scene.adb("shell", f"mkdir -p {FOLDER}/.etcli-manifest.json/mine")
    with pytest.raises(DeployError) as caught:
        scene.deploy()
    assert caught.value.problems[0].code == "deploy.manifest_invalid"
    with pytest.raises(DeployError, match=r"\.etcli-manifest\.json'?: Is a directory"):
        scene.deploy(force=True)


def test_foreign_folder_is_refused(scene: AdbScene) -> None:
    scene.adb("shell", f"mkdir -p {FOLDER}/photos && echo mine > {FOLDER}/photos/1.jpg")
    with pytest.raises(DeployError, match=r"did not put there: photos/1\.jpg"):
        scene.deploy()
    assert scene.adb("shell", f"find {FOLDER} -type f").split() == [f"{FOLDER}/photos/1.jpg"]


def test_clean_leaves_nothing(scene: AdbScene) -> None:
    scene.deploy()
    assert clean(scene.loaded, scene.device, Console(verbosity=-1)) == 9
    assert scene.adb("shell", "ls -A /data/local/tmp/etcli") == ""
    assert clean(scene.loaded, scene.device, Console(verbosity=-1)) == 0


@pytest.mark.known_failure("device-full-reason")
def test_full_device(
    tmp_path: Path,
    adb_server: AdbServer,
    virtual_device: MakeDevice,
    protocol: Protocol,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = virtual_device("x86_64", data_limit=4 << 20, protocol=protocol)
    scene = AdbScene(tmp_path, adb_server, device)
    samples.make_bundle(scene.loaded, scene.workspace, weights=b"12345678" * (3 << 17))
    with pytest.raises(DeployError) as caught:
        scene.deploy()
    assert caught.value.problems[0].code == "deploy.no_space"
    assert "6.3 MB and 5 % to spare" in caught.value.problems[0].message
    assert device.stat(FOLDER) is None, "nothing was begun"
    # A device that promises more than it has fills up in the middle of a file.
    with monkeypatch.context() as patch:
        patch.setattr(stage, "_check_space", lambda *_: None)
        with pytest.raises(
            DeployError,
            match=r"tiny_1\.pte: .*No space left on device \(the file has 3\.1 MB, .* MB are free there now",
        ) as caught:
            scene.deploy()
    assert caught.value.problems[0].code == "deploy.no_space"
    files = scene.adb("shell", f"find {FOLDER} -type f").split()
    assert f"{FOLDER}/.etcli-manifest.json" not in files
    assert not [path for path in files if ".part" in path]
    samples.make_bundle(scene.loaded, scene.workspace)
    scene.deploy()
    assert scene.deploy().current
