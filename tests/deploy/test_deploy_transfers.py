"""Transfers through a cable that breaks, garbles and counts, between a real adb server and devices of either protocol."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import samples
from adb_scene import FOLDER, AdbScene
from breaking_proxy import BreakingProxy
from device_fixtures import MakeDevice

from etcli.common.errors import DeployError, DeviceError, StaleError
from etcli.common.hashing import file_sha256
from etcli.deploy import stage, transfer
from etcli.deploy.folder import hashes
from etcli.device.adb import AdbDevice, AdbSender
from etcli.device.base import Device
from etcli.device.held_link import HeldLink
from etcli.device.listing import list_folder
from etcli.device.server import AdbServer
from etcli.device.virtual.spec import Protocol
from etcli.manifests.bundle import BundleManifest

CHUNK = 300_000


@pytest.fixture
def cable(adb_server: AdbServer, virtual_device: MakeDevice, protocol: Protocol) -> Iterator[BreakingProxy]:
    device = virtual_device("x86_64", protocol=protocol)
    proxy = BreakingProxy(int(device.serial.rpartition(":")[2]))
    adb_server.connect(proxy.serial, timeout=20)
    yield proxy
    adb_server.forget(proxy.serial)
    proxy.close()
    device.shell(["rm", "-rf", "/data/local/tmp/etcli"])


@pytest.fixture
def scene(tmp_path: Path, adb_server: AdbServer, cable: BreakingProxy) -> AdbScene:
    """A bundle of five chunks, nothing of which repeats, and the device at the end of the cable."""
    scene = AdbScene(tmp_path, adb_server, AdbDevice(adb_server, cable.serial))
    samples.make_bundle(scene.loaded, scene.workspace, weights=os.urandom(CHUNK), chunks=5)
    return scene


def codes(scene: AdbScene) -> list[str]:
    return [warning.code for warning in scene.console.warnings]


@pytest.mark.known_failure("device-transfer-breaks")
@pytest.mark.parametrize("at", [[20_000], [CHUNK * 5 // 2], [CHUNK, CHUNK * 2, CHUNK * 4]])
def test_a_broken_transfer_is_taken_up_where_it_broke(scene: AdbScene, cable: BreakingProxy, at: list[int]) -> None:
    breaks = len(at)
    cable.break_at = [cable.to_device + place for place in at]
    before = cable.to_device
    result = scene.deploy()
    # two breaks may fall into one attempt, or into the time in which the device comes back
    assert set(codes(scene)) == {"deploy.connection_broken"}
    assert len(codes(scene)) <= breaks
    assert scene.deploy(verify=True).current
    # each break costs one file at the most, and what old devices' small messages add
    assert cable.to_device - before < result.sent_bytes + breaks * CHUNK + 400_000
    assert ".part-" not in scene.adb("shell", f"find {FOLDER}")


@pytest.mark.known_failure("device-transfer-breaks")
def test_a_device_that_stays_away_ends_it_and_the_repeat_sends_the_rest(
    scene: AdbScene, cable: BreakingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "RECOVERY", 0.2)
    send = AdbSender.send

    def patient(self: AdbSender, local: Path, remote: str, **options: Any) -> None:
        if "tiny_2" in remote:  # the first chunk is in its place by then
            first = file_sha256(scene.workspace.bundle / "chunks/tiny_0.pte")
            while first not in scene.device.shell(["sha256sum", f"{FOLDER}/bundle/chunks/tiny_0.pte"]).stdout:
                time.sleep(0.02)
            cable.break_at = [cable.to_device + CHUNK // 2]
            cable.for_good = True
        send(self, local, remote, **options)

    monkeypatch.setattr(AdbSender, "send", patient)
    with pytest.raises(DeviceError) as caught:
        scene.deploy()
    assert all(problem.hint for problem in caught.value.problems)
    monkeypatch.setattr(AdbSender, "send", send)
    cable.mend()
    scene.server.connect(cable.serial, timeout=20)
    assert f"{FOLDER}/.etcli-manifest.json" not in scene.adb("shell", f"find {FOLDER} -type f").split()
    result = scene.deploy()
    assert {"bundle/chunks/tiny_0.pte"} <= {file.path for file in result.files if file.action == "keep"}
    assert scene.deploy(verify=True).current


def test_a_device_that_another_took_meanwhile_is_left_to_it(
    scene: AdbScene,
    cable: BreakingProxy,
    virtual_device: MakeDevice,
    protocol: Protocol,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have changed what the plan was made for, also where it is done by now."""
    near = virtual_device("x86_64", protocol=protocol)
    cable.break_at = [cable.to_device + CHUNK * 5 // 2]
    cable.for_good = True
    recover = scene.device.recover

    def recovering(timeout: float) -> bool:
        theirs = HeldLink(near, "etcli deploy of theirs, process 1 of you on there")
        while theirs.take() is not None:
            time.sleep(0.1)
        theirs.release()
        cable.mend()
        return recover(20)

    monkeypatch.setattr(scene.device, "recover", recovering)
    with pytest.raises(DeviceError) as caught:
        scene.deploy()
    assert caught.value.problems[0].code == "device.lock_lost"
    assert f"{FOLDER}/.etcli-manifest.json" not in scene.adb("shell", f"find {FOLDER} -type f").split()
    monkeypatch.setattr(scene.device, "recover", recover)
    scene.deploy()
    assert scene.deploy(verify=True).current


@pytest.mark.known_failure("device-transfer-breaks")
@pytest.mark.parametrize(
    "protocol", ["new"], indirect=True
)  # the old one adds sums, at which the daemon drops the connection
def test_what_arrives_damaged_is_sent_again(scene: AdbScene, cable: BreakingProxy) -> None:
    cable.garble_at = cable.to_device + CHUNK * 3 // 2
    scene.deploy()
    assert codes(scene) == ["deploy.damaged"]
    assert scene.deploy(verify=True).current


@pytest.mark.parametrize("protocol", ["old"], indirect=True)
def test_an_old_device_notices_damage_by_itself(scene: AdbScene, cable: BreakingProxy) -> None:
    cable.garble_at = cable.to_device + CHUNK * 3 // 2
    scene.deploy()
    assert codes(scene) == ["deploy.connection_broken"]
    assert scene.deploy(verify=True).current


def test_a_file_damaged_here_never_gets_its_name(scene: AdbScene) -> None:
    path = scene.workspace.bundle / "chunks/tiny_2.pte"
    content = bytearray(path.read_bytes())
    content[7] ^= 1
    path.write_bytes(content)
    manifest = scene.workspace.bundle / "manifest.json"
    os.utime(manifest, ns=(2**62, 2**62))  # as if the file had been damaged before its manifest was written
    with pytest.raises(StaleError) as caught:
        scene.deploy()
    assert [problem.code for problem in caught.value.problems] == ["bundle.damaged"]
    assert caught.value.problems[0].file == path
    assert (caught.value.problems[0].hint or "").endswith(" --force --only-chunks 2")
    assert f"{FOLDER}/bundle/chunks/tiny_2.pte" not in scene.adb("shell", f"find {FOLDER} -type f").split()


@pytest.mark.known_failure("device-slow-push")
@pytest.mark.parametrize("protocol", ["new"], indirect=True)
def test_files_go_in_blocks_of_64_kib(scene: AdbScene, cable: BreakingProxy) -> None:
    cable.seen = []
    scene.device.push(scene.workspace.bundle / "chunks/tiny_0.pte", "/data/local/tmp/etcli/f")
    stream = b"".join(cable.seen)
    assert stream.count(b"DATA\0\0\1\0") == (CHUNK + 1) // 65536
    assert cable.to_device < 2 * CHUNK


@pytest.mark.known_failure("device-push-times")
def test_nothing_is_sent_for_the_sake_of_a_time(scene: AdbScene, cable: BreakingProxy) -> None:
    scene.deploy()
    for path in scene.workspace.bundle.rglob("*"):
        os.utime(path)
    scene.adb("shell", f"touch -d @946684800 {FOLDER}/bundle/chunks/*")
    before = cable.to_device
    assert scene.deploy().current
    assert cable.to_device - before < 40_000


def test_one_changed_chunk_is_all_that_goes(scene: AdbScene, cable: BreakingProxy) -> None:
    scene.deploy()
    manifest = samples.make_bundle(scene.loaded, scene.workspace, weights=os.urandom(CHUNK), chunks=1)
    first = manifest.chunks[0]
    whole = samples.make_bundle(scene.loaded, scene.workspace, weights=os.urandom(CHUNK), chunks=5)
    scene.deploy()
    entry = samples.entry(scene.workspace.bundle, first.files[0].path, os.urandom(CHUNK))
    file = first.files[0].model_copy(update={"size": entry.size, "sha256": entry.sha256})
    chunks = (whole.chunks[0].model_copy(update={"files": (file,)}), *whole.chunks[1:])
    whole.model_copy(update={"chunks": chunks}).write(scene.workspace.bundle / "manifest.json")
    before = cable.to_device
    result = scene.deploy()
    sent = [file.path for file in result.files if file.action == "send"]
    assert sent == ["bundle/chunks/tiny_0.pte", "bundle/manifest.json"]
    assert cable.to_device - before < CHUNK + 60_000


@pytest.mark.known_failure("device-file-changed-since")
def test_an_old_file_pushed_over_one_of_ours_is_found(scene: AdbScene, tmp_path: Path) -> None:
    scene.deploy()
    path = "bundle/chunks/tiny_1.pte"
    other = tmp_path / "by hand.pte"
    other.write_bytes(bytes((scene.workspace.bundle / "chunks/tiny_1.pte").stat().st_size))
    os.utime(other, (1_600_000_000, 1_600_000_000))
    scene.adb("push", str(other), f"{FOLDER}/{path}")
    assert scene.adb("shell", f"stat -c %Y {FOLDER}/{path}").strip() == "1600000000", "adb gave it the old date"
    result = scene.deploy()
    assert [file.path for file in result.files if file.action == "send"] == [path]
    assert scene.deploy().current


def test_a_file_only_touched_is_hashed_once_and_stays(scene: AdbScene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.deploy()
    path = "bundle/chunks/tiny_1.pte"
    scene.adb("shell", f"touch -d '2001-01-01 00:00:00' {FOLDER}/{path}")
    hashed: list[str] = []

    def counting(device: Device, folder: str, sizes: Mapping[str, int]) -> dict[str, str]:
        hashed.extend(sizes)
        return hashes(device, folder, sizes)

    monkeypatch.setattr(stage, "hashes", counting)
    before = scene.inodes()
    assert scene.deploy(dry_run=True).current
    assert scene.inodes() == before, "a dry run writes nothing"
    assert scene.deploy().current
    assert scene.deploy().current
    assert hashed == [path, path], "once in the dry run, once to be written down"


def test_content_changed_under_a_manifest_that_vouches_for_it_is_found_by_verify(scene: AdbScene) -> None:
    scene.deploy()
    path = "bundle/chunks/tiny_1.pte"
    size = (scene.workspace.bundle / "chunks/tiny_1.pte").stat().st_size
    old = list_folder(scene.device, FOLDER)[path].stamp
    scene.adb("shell", f"head -c {size} /dev/zero > {FOLDER}/{path}")
    new = list_folder(scene.device, FOLDER)[path].stamp
    assert new != old
    scene.adb("shell", f"sed -i 's/{old}/{new}/' {FOLDER}/.etcli-manifest.json")
    assert scene.deploy().current
    result = scene.deploy(verify=True)
    assert [file.path for file in result.files if file.action == "send"] == [path]


@pytest.mark.known_failure("device-size-32-bit")
def test_sizes_beyond_4_gib_are_told_whole(scene: AdbScene) -> None:
    size = 4_700_000_000
    scene.adb("shell", f"mkdir -p {FOLDER} && truncate -s {size} {FOLDER}/large")
    status = scene.device.stat(f"{FOLDER}/large")
    assert status is not None
    assert status.size == size
    # the question that adbutils asks has an answer of 32 bits
    stock = scene.server.client.device(scene.device.serial).sync.stat(f"{FOLDER}/large").size
    assert stock == size & 0xFFFFFFFF


@pytest.mark.full
@pytest.mark.known_failure("device-size-32-bit")
@pytest.mark.parametrize("protocol", ["new"], indirect=True)
def test_a_file_of_more_than_4_gib_is_deployed_and_kept(scene: AdbScene) -> None:
    size = 4_400_000_000
    path = scene.workspace.bundle / "chunks/tiny_0.pte"
    with path.open("r+b") as file:
        file.truncate(size)
    manifest = BundleManifest.read(scene.workspace.bundle / "manifest.json")
    chunk = manifest.chunks[0]
    digest = file_sha256(path)
    large = chunk.files[0].model_copy(update={"size": size, "sha256": digest})
    chunks = (chunk.model_copy(update={"files": (large,)}), *manifest.chunks[1:])
    manifest.model_copy(update={"chunks": chunks}).write(scene.workspace.bundle / "manifest.json")
    assert scene.deploy().sent_bytes > size
    assert scene.deploy(verify=True).current


def test_a_refused_file_is_named_with_the_devices_reason(scene: AdbScene) -> None:
    scene.adb("shell", f"mkdir -p {FOLDER}/bundle/chunks && chmod 555 {FOLDER}/bundle/chunks")
    with pytest.raises(DeployError, match="Permission denied") as caught:
        scene.deploy()
    assert caught.value.problems[0].code == "deploy.refused"
    scene.adb("shell", f"chmod 755 {FOLDER}/bundle/chunks")
    scene.deploy()
    assert scene.deploy().current
