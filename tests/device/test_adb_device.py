"""AdbDevice: what the stages use."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

import pytest
from device_fixtures import MakeDevice

from etcli.common.errors import DeployError, DeviceError, ExitCode
from etcli.device import virtual
from etcli.device.adb import AdbDevice
from etcli.device.shelltext import script
from etcli.device.virtual.spec import Protocol


@pytest.fixture(params=["new", "old"])
def protocol(request: pytest.FixtureRequest) -> Protocol:
    """Everything here holds for devices of either protocol."""
    return request.param


@pytest.fixture
def phone(virtual_device: MakeDevice, protocol: Protocol) -> AdbDevice:
    """The session's virtual aarch64 device of the protocol."""
    return virtual_device("aarch64", protocol=protocol)


def test_facts(virtual_device: MakeDevice) -> None:
    device = virtual_device("aarch64", {"ro.product.model": "A phone", "ro.soc.model": "MT6991"})
    facts = device.facts()
    assert (facts.serial, facts.model, facts.soc, facts.abi) == (device.serial, "A phone", "MT6991", "arm64-v8a")
    assert facts.emulated
    assert facts.os.startswith("Linux")


def test_it_cannot_pass_for_a_phone(virtual_device: MakeDevice) -> None:
    assert virtual_device("x86_64", {"ro.etcli.virtual": "0"}).facts().emulated


def test_getprop_of_one_name(phone: AdbDevice) -> None:
    assert phone.shell(["getprop", "ro.product.cpu.abi"]).stdout == "arm64-v8a\n"
    assert phone.shell(["getprop", "no.such"]).stdout == "\n"
    assert phone.shell(["getprop", "no.such", "default"]).stdout == "default\n"


@pytest.mark.known_failure("device-no-exit-status")
def test_shell_gives_status_outputs_folder_and_variables(phone: AdbDevice, folder: str) -> None:
    result = phone.shell(script('pwd; printf %s "$X"; echo err >&2; exit 6'), cwd=folder, env={"X": "a 'b' $c"})
    assert (result.code, result.stdout, result.stderr) == (6, f"{folder}\na 'b' $c", "err\n")


def test_shell_has_no_input(phone: AdbDevice) -> None:
    assert phone.shell(["cat"], timeout=30).stdout == ""


def test_bytes_that_are_no_text_are_shown(phone: AdbDevice) -> None:
    assert phone.shell(["printf", r"a\377b"]).stdout == "a\N{REPLACEMENT CHARACTER}b"


def test_a_command_that_takes_too_long_ends_on_the_device(phone: AdbDevice) -> None:
    with pytest.raises(DeviceError) as caught:
        phone.shell(["sleep", "5813"], timeout=0.5)
    assert caught.value.problems[0].code == "device.timeout"
    _wait(lambda: "5813" not in phone.shell(script("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout)


def test_lines_come_as_they_are_printed(phone: AdbDevice, folder: str) -> None:
    waiting = script(
        'echo first; while [ ! -e "$1" ]; do sleep 0.05; done; echo second; printf "no end"; exit 2', f"{folder}/go"
    )
    with phone.open(waiting) as stream:
        lines = stream.lines()
        assert next(lines) == "first"
        phone.shell(["touch", f"{folder}/go"])
        assert list(lines) == ["second", "no end"]
        assert stream.code == 2


def test_stderr_of_a_stream(phone: AdbDevice) -> None:
    with phone.open(script("echo a >&2; echo b; echo c >&2")) as stream:
        assert list(stream.lines()) == ["b"]
    assert stream.stderr == "a\nc\n"


def test_a_line_without_end_does_not_fill_memory(phone: AdbDevice) -> None:
    with phone.open(["head", "-c", "5000000", "/dev/zero"]) as stream:
        lines = list(stream.lines())
    assert sum(map(len, lines)) == 5_000_000
    assert max(map(len, lines)) < 3 << 20


def test_leaving_the_block_ends_the_program(phone: AdbDevice) -> None:
    with phone.open(script("echo go; sleep 5814 & wait")) as stream:
        assert next(stream.lines()) == "go"
    _wait(lambda: "5814" not in phone.shell(script("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout)


def test_closing_from_another_thread_ends_the_lines(phone: AdbDevice) -> None:
    with phone.open(script("echo go; sleep 600")) as stream:
        lines = stream.lines()
        assert next(lines) == "go"
        threading.Timer(0.2, stream.close).start()
        assert list(lines) == []
        assert stream.code == 129


def test_push_makes_parents_and_sets_the_mode(phone: AdbDevice, folder: str, tmp_path: Path) -> None:
    data = os.urandom(200_000)
    (tmp_path / "f").write_bytes(data)
    blocks: list[int] = []
    remote = f'{folder}/it\'s "new"/$deep/f'
    phone.push(tmp_path / "f", remote, executable=True, progress=blocks.append)
    assert sum(blocks) == len(data)
    assert max(blocks) <= 1 << 20
    status = phone.stat(remote)
    assert status is not None
    assert (status.mode, status.size) == (0o100755, 200_000)
    phone.push(tmp_path / "f", remote)
    assert phone.shell(["stat", "-c", "%a", remote]).stdout == "644\n"
    phone.pull(remote, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data
    assert phone.shell(["ls", f'{folder}/it\'s "new"/$deep']).stdout == "f\n"


def test_push_replaces_a_running_program(phone: AdbDevice, folder: str, hello_aarch64: Path, tmp_path: Path) -> None:
    phone.shell(["cp", "/usr/bin/sleep", f"{folder}/program"])
    with phone.open([f"{folder}/program", "600"]):
        phone.push(hello_aarch64, f"{folder}/program", executable=True)
    assert phone.shell([f"{folder}/program", "4"]).code == 4


def test_push_does_not_disappear_into_a_folder(phone: AdbDevice, folder: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(DeployError, match="is a folder"):
        phone.push(tmp_path / "f", folder)
    assert phone.shell(["ls", "-A", folder]).stdout == ""
    assert ".part-" not in phone.shell(["ls", "/data/local/tmp"]).stdout


def test_a_refused_push_says_why(phone: AdbDevice, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 3_000_000)
    with pytest.raises(DeployError, match="Read-only file system") as caught:
        phone.push(tmp_path / "f", "/system/f")
    assert (caught.value.exit, caught.value.problems[0].code) == (ExitCode.DEPLOY, "deploy.refused")


def test_a_full_device_says_so_and_keeps_no_part(
    virtual_device: MakeDevice, protocol: Protocol, tmp_path: Path
) -> None:
    device = virtual_device("x86_64", data_limit=1 << 20, protocol=protocol)
    (tmp_path / "old").write_text("old")
    device.push(tmp_path / "old", "/data/local/tmp/f")
    (tmp_path / "big").write_bytes(b"x" * (8 << 20))
    with pytest.raises(DeployError, match="No space left on device") as caught:
        device.push(tmp_path / "big", "/data/local/tmp/f")
    assert caught.value.problems[0].code == "deploy.no_space"
    assert device.shell(["ls", "-A", "/data/local/tmp"]).stdout == "f\n"
    assert device.shell(["cat", "/data/local/tmp/f"]).stdout == "old"


def test_pulling_what_is_not_there_leaves_the_local_file(phone: AdbDevice, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    with pytest.raises(DeviceError, match="No such file or directory"):
        phone.pull("/data/local/tmp/nothing", tmp_path / "kept")
    assert (tmp_path / "kept").read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_stat_does_not_follow_links(phone: AdbDevice, folder: str) -> None:
    phone.shell(["ln", "-s", "/nowhere", f"{folder}/link"])
    status = phone.stat(f"{folder}/link")
    assert status is not None
    assert status.mode & 0o170000 == 0o120000
    assert phone.stat(f"{folder}/missing") is None
    assert phone.stat(f"{folder}/link/below") is None


def test_free_bytes_of_a_path_that_is_not_there_yet(virtual_device: MakeDevice) -> None:
    device = virtual_device("x86_64", data_limit=3 << 20)
    assert device.free_bytes("/data/local/tmp/not/yet there") == 3 << 20


def test_a_device_that_dies_is_reported(virtual_device: MakeDevice, protocol: Protocol, tmp_path: Path) -> None:
    device = virtual_device("x86_64", {"ro.product.model": "mortal"}, protocol=protocol)
    name = next(known.spec.name for known in virtual.list_devices() if known.serial == device.serial)
    with contextlib.ExitStack() as stack:
        # Several at once: its end kills them one after the other, and none of them may look as if it had ended by itself.
        opened = [stack.enter_context(device.open(script("echo go; sleep 600"))).lines() for _ in range(8)]
        for lines in opened:
            assert next(lines) == "go"
        virtual.stop(name)
        for lines in opened:
            with pytest.raises(DeviceError) as caught:
                list(lines)
            assert caught.value.problems[0].code == "device.gone"
    with pytest.raises(DeviceError):
        device.shell(["true"])
    (tmp_path / "f").write_text("x")
    with pytest.raises(DeviceError):
        device.push(tmp_path / "f", "/data/local/tmp/f")


def _wait(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)
