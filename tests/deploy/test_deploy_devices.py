"""Several devices, two etclis on one device, and what a device cannot run: through the command line and a real adb server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import samples
from adb_scene import FOLDER, AdbScene
from device_fixtures import MakeDevice

from etcli.common.errors import DeployError, EtcliError
from etcli.device.adb import AdbDevice
from etcli.device.held_link import LINK
from etcli.device.lock import WAIT, device_lock
from etcli.device.server import AdbServer
from etcli.device.shelltext import script
from etcli.device.virtual.spec import Protocol
from etcli.output.console import Console

RECIPE = "name: tiny\nmodel: {source: model.gguf}\nrun: {prompt: Hello world, chat: false}\n"
ETCLI = (sys.executable, "-m", "etcli")
MEANT = ("tiny.yaml", "--workspace", "work", "--stale-ok")
Etcli = Callable[..., "tuple[int, dict[str, Any], str]"]


@pytest.fixture
def scene(tmp_path: Path, adb_server: AdbServer, virtual_device: MakeDevice, protocol: Protocol) -> Iterator[AdbScene]:
    device = virtual_device("x86_64", protocol=protocol)
    yield AdbScene(tmp_path, adb_server, device)
    device.shell(["rm", "-rf", "/data/local/tmp/etcli"])


@pytest.fixture
def etcli(tmp_path: Path, adb_server: AdbServer) -> Etcli:
    """Runs `etcli WORDS --json` where the scene's bundle and build are; gives exit code, document and stderr."""
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    (tmp_path / "model.gguf").write_bytes(b"")

    def call(*words: str) -> tuple[int, dict[str, Any], str]:
        command = [*ETCLI, *words, *MEANT, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=100)
        return done.returncode, json.loads(done.stdout), done.stderr

    return call


@pytest.fixture
def pair(virtual_device: MakeDevice) -> Iterator[tuple[AdbDevice, AdbDevice]]:
    """A device of the new protocol and one of the old."""
    devices = (virtual_device("x86_64"), virtual_device("x86_64", protocol="old"))
    yield devices
    for device in devices:
        device.shell(["rm", "-rf", "/data/local/tmp/etcli"])


def test_two_devices_at_once(
    pair: tuple[AdbDevice, AdbDevice], etcli: Etcli, tmp_path: Path, adb_server: AdbServer
) -> None:
    AdbScene(tmp_path, adb_server, pair[0])
    chosen = [word for device in pair for word in ("--serial", device.serial)]
    code, document, errors = etcli("deploy", "--dry-run", *chosen)
    assert code == 0, document
    assert [one["sent_files"] for one in document["result"]["devices"]] == [9, 9]
    code, document, errors = etcli("deploy", *chosen)
    assert code == 0, document
    assert [one["serial"] for one in document["result"]["devices"]] == [device.serial for device in pair]
    assert all(device.serial in errors for device in pair)
    for device in pair:
        assert device.stat(f"{FOLDER}/.etcli-manifest.json") is not None
    code, document, _ = etcli("deploy", *chosen)
    assert [one["current"] for one in document["result"]["devices"]] == [True, True]
    code, document, _ = etcli("deploy", "--serial", pair[0].serial)
    assert document["result"]["serial"] == pair[0].serial, "one device is no list"


def test_one_of_two_fails(
    pair: tuple[AdbDevice, AdbDevice], etcli: Etcli, tmp_path: Path, adb_server: AdbServer
) -> None:
    AdbScene(tmp_path, adb_server, pair[0])
    pair[1].shell(["mkdir", "-p", f"{FOLDER}/bundle"])
    pair[1].shell(["ln", "-s", "/etc/passwd", f"{FOLDER}/bundle/runner.cfg"])
    code, document, _ = etcli("deploy", "--serial", pair[0].serial, "--serial", pair[1].serial)
    assert code == 8
    good, bad = document["result"]["devices"]
    assert good["sent_files"] == 9
    assert bad["serial"] == pair[1].serial
    assert bad["errors"][0]["code"].startswith("deploy.")
    assert pair[1].serial in document["errors"][0]["message"]


def test_an_interruption_keeps_what_is_done(
    pair: tuple[AdbDevice, AdbDevice], tmp_path: Path, adb_server: AdbServer, etcli: Etcli
) -> None:
    """One device is done, the other waits for another etcli."""
    AdbScene(tmp_path, adb_server, pair[0])
    chosen = [word for device in pair for word in ("--serial", device.serial)]
    command = [*ETCLI, "deploy", *MEANT, *chosen]
    for json_too in (True, False):
        with device_lock(pair[1], "bench of other", Console(verbosity=-1)):
            process = subprocess.Popen(
                [*command, *(["--json"] if json_too else [])],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert process.stderr is not None
            said = ""
            while not ("etcli bench of other" in said and ("sending 9 files: " in said or "current: all" in said)):
                line = process.stderr.readline()
                assert line, said
                said += line
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        assert f"interrupted on {pair[1].serial}" in (out if json_too else errors)
        assert "Traceback" not in errors
        if json_too:
            document = json.loads(out)
            done, cut = document["result"]["devices"]
            assert done["sent_files"] == 9
            assert cut["errors"][0]["code"] == "interrupted"
        else:
            assert pair[0].serial in out
    assert pair[1].stat(FOLDER) is None


def test_two_etclis_take_turns(scene: AdbScene, capfd: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []
    holding = threading.Event()

    def first() -> None:
        with device_lock(scene.device, "bench of other", Console(verbosity=-1)):
            holding.set()
            time.sleep(1.5)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    holding.wait(20)
    scene.console = Console()
    scene.deploy()
    order.append("second")
    thread.join()
    assert order == ["first", "second"]
    said = capfd.readouterr().err
    assert (
        f"waiting for another etcli that uses {scene.device.serial}: etcli bench of other, process {os.getpid()}"
        in said
    )


def test_an_etcli_of_another_machine_is_waited_for(
    scene: AdbScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with device_lock(scene.device, "deploy of theirs", Console(verbosity=-1)):
        # another machine has another cache folder, and no lock file in it
        monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "theirs"))
        done = threading.Event()

        def second() -> None:
            with device_lock(AdbDevice(scene.server, scene.device.serial), "deploy of ours", Console()):
                done.set()

        thread = threading.Thread(target=second)
        thread.start()
        assert not done.wait(1.5)
    assert done.wait(20)
    thread.join()
    assert "waiting for another etcli" in capfd.readouterr().err
    assert scene.device.stat(LINK) is None


@pytest.mark.parametrize(
    "words",
    [("deploy",), ("run",), ("run", "--interactive", "--prompt", "Hello"), ("bench",)],
)
def test_every_verb_leaves_a_device_in_use_alone(
    scene: AdbScene, etcli: Etcli, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.deploy()
    before = scene.inodes()
    monkeypatch.setenv(WAIT, "0")
    with device_lock(scene.device, "bench of other", Console(verbosity=-1)):
        code, document, errors = etcli(*words, "--serial", scene.device.serial)
    assert code == 4, document
    (error,) = document["errors"]
    assert error["code"] == "device.busy"
    assert f"etcli bench of other, process {os.getpid()} of " in error["message"]
    assert WAIT in error["hint"]
    assert scene.inodes() == before
    assert "Traceback" not in errors


@pytest.mark.parametrize("words", [("run",), ("bench", "--runs", "2")])
def test_a_program_under_way_keeps_the_device(
    scene: AdbScene, etcli: Etcli, words: tuple[str, ...], tmp_path: Path
) -> None:
    """A bench for all of its runs."""
    samples.make_build(scene.loaded, scene.workspace, runner="#!/bin/sh\nexec sleep 3.25\n")
    scene.deploy(stale_ok=True)
    began = subprocess.Popen(
        [*ETCLI, *words, *MEANT, "--serial", scene.device.serial],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while scene.device.stat(LINK) is None:
        assert began.poll() is None
        time.sleep(0.05)
    code, document, errors = etcli("deploy", "--serial", scene.device.serial)
    assert code == 0, document
    running = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; done 2>/dev/null"
    assert "sleep 3.25" not in scene.device.shell(["sh", "-c", running]).stdout
    assert f"etcli {words[0]} of tiny, process {began.pid} of" in errors
    began.wait()


def test_a_lock_whose_holder_is_gone_holds_nobody(scene: AdbScene) -> None:
    scene.device.shell(script('ln -sf "1 99 etcli deploy of ghost" "$1"', LINK))
    scene.device.shell(script('ln -sf "4194000 99 etcli deploy of ghost" "$1.x"; mv "$1.x" "$1"', LINK))
    scene.deploy()
    assert scene.device.stat(LINK) is None


def test_killed_at_any_moment_and_repeated(scene: AdbScene, etcli: Etcli, tmp_path: Path) -> None:
    """The process is killed at growing delays; whatever it left, the repeat makes the device whole."""
    samples.make_bundle(scene.loaded, scene.workspace, weights=os.urandom(2_000_000))
    command = [*ETCLI, "deploy", *MEANT, "-q"]
    for delay in (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.3):
        process = subprocess.Popen(
            [*command, "--serial", scene.device.serial], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        time.sleep(delay)
        process.kill()
        process.communicate()
    code, document, _ = etcli("deploy", "--serial", scene.device.serial)
    assert code == 0, document
    assert scene.deploy(verify=True, stale_ok=True).current
    left = scene.adb("shell", f"find {FOLDER} -type f").split()
    assert not [path for path in left if ".part-" in path or "pending" in path]


@pytest.mark.known_failure("device-not-executable")
def test_places_where_no_program_runs_are_refused(scene: AdbScene) -> None:
    for place in ("/sdcard/tiny", "/data/tiny", "/data/local/tmp/../tiny"):
        loaded = scene.loaded.recipe.model_copy(
            update={"deploy": scene.loaded.recipe.deploy.model_copy(update={"dir": place})}
        )
        with pytest.raises(EtcliError) as caught:
            AdbSceneOf(scene, loaded).deploy()
        assert caught.value.problems[0].code == "deploy.dir"


@pytest.mark.known_failure("device-not-executable")
def test_a_lost_executable_bit_comes_back(scene: AdbScene) -> None:
    scene.deploy()
    program = f"{FOLDER}/bin/etcli_llama_runner"
    scene.device.shell(["chmod", "644", program])
    assert scene.device.shell([program]).code == 126
    assert scene.deploy().sent_bytes == 0
    assert scene.device.shell([program]).code == 0


@pytest.mark.known_failure("device-wrong-abi")
def test_a_build_for_another_processor_is_not_sent(scene: AdbScene) -> None:
    samples.make_build(scene.loaded, scene.workspace, target="linux-aarch64")
    with pytest.raises(DeployError) as caught:
        scene.deploy(target="linux-aarch64")
    assert caught.value.problems[0].code == "deploy.target_unfit"
    assert scene.device.stat(FOLDER) is None


class AdbSceneOf(AdbScene):
    """`scene` with another recipe."""

    def __init__(self, scene: AdbScene, recipe: object) -> None:
        self.__dict__.update(scene.__dict__)
        self.loaded = scene.loaded.__class__(**{**vars(scene.loaded), "recipe": recipe})
