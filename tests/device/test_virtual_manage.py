"""Virtual devices are started, found again, changed, stopped; what goes wrong is explained."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from etcli.common.errors import DeviceError, ExitCode, ToolError, UsageError
from etcli.device import virtual
from etcli.device.adb import AdbDevice
from etcli.device.select import connected_devices, select_device
from etcli.device.server import AdbServer
from etcli.device.virtual import native
from etcli.device.virtual.processes import start_ticks
from etcli.device.virtual.spec import DeviceFolder, Running, VirtualSpec
from etcli.output.console import Console


@pytest.fixture
def devices(adb_server: AdbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdbServer]:
    """A cache folder of the test's own, with the compiled programs of the usual one; its devices are stopped afterwards."""
    compiled = [native.init_program(), native.exec_library()]
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/virtual-device").symlink_to(compiled[0].parent.parent)
    yield adb_server
    for device in virtual.list_devices():
        virtual.stop(device.spec.name, server=adb_server)


def _shell(device: virtual.VirtualDevice, server: AdbServer, *argv: str) -> str:
    return AdbDevice(server, device.serial).shell(list(argv)).stdout


def test_the_second_start_finds_the_first(devices: AdbServer) -> None:
    first = virtual.start("x86_64", {"ro.x": "1"})
    again = virtual.start("x86_64", {"ro.x": "1"})
    assert first.running is not None
    assert again.running == first.running
    assert first.spec.name == "virtual-x86_64"


def test_other_properties_start_it_anew_with_its_files_and_port(devices: AdbServer) -> None:
    first = virtual.start("x86_64", {"ro.x": "1"})
    _shell(first, devices, "touch", "/data/local/tmp/kept")
    second = virtual.start("x86_64", {"ro.x": "2"})
    assert first.running is not None
    assert second.running is not None
    assert second.running.pid != first.running.pid
    assert second.serial == first.serial
    assert _shell(second, devices, "getprop", "ro.x") == "2\n"
    assert _shell(second, devices, "ls", "/data/local/tmp") == "kept\n"


def test_ensure_takes_what_runs_as_it_is(devices: AdbServer) -> None:
    started = virtual.start("x86_64", {"ro.x": "1"})
    assert virtual.ensure("x86_64").running == started.running
    virtual.stop("virtual-x86_64")
    again = virtual.ensure("x86_64")
    assert again.spec.props == {"ro.x": "1"}
    assert again.serial == started.serial


def test_stop_ends_it_and_tells_adb(devices: AdbServer) -> None:
    device = virtual.start("x86_64")
    assert device.running is not None
    assert virtual.stop("virtual-x86_64") is True
    assert start_ticks(device.running.pid) is None
    assert device.serial not in [listed.serial for listed in devices.devices()]
    assert virtual.stop("virtual-x86_64") is False
    assert [(known.spec.name, known.running) for known in virtual.list_devices()] == [("virtual-x86_64", None)]


def test_stop_with_remove_leaves_nothing(devices: AdbServer) -> None:
    device = virtual.start("x86_64")
    virtual.stop("virtual-x86_64", remove=True)
    assert not device.folder.path.exists()
    assert virtual.list_devices() == []


def test_a_busy_port_is_avoided(devices: AdbServer) -> None:
    first = virtual.start("x86_64")
    virtual.stop("virtual-x86_64")
    assert first.running is not None
    with socket.create_server(("127.0.0.1", first.running.port)):
        second = virtual.start("x86_64")
    assert second.serial != first.serial
    assert _shell(second, devices, "echo", "alive") == "alive\n"


def test_it_survives_what_ends_its_starter(devices: AdbServer) -> None:
    code = "from etcli.device import virtual; print(virtual.start('x86_64').running.pid, flush=True); import time; time.sleep(60)"
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    os.killpg(starter.pid, signal.SIGINT)
    starter.wait(timeout=30)
    device = virtual.start("x86_64")
    assert device.running is not None
    assert device.running.pid == pid
    assert _shell(device, devices, "echo", "alive") == "alive\n"


def test_a_killed_daemon_takes_its_programs_along_and_is_replaced(devices: AdbServer) -> None:
    device = virtual.start("x86_64")
    assert device.running is not None
    with AdbDevice(devices, device.serial).open(["sh", "-c", "echo go; exec sleep 6291"]) as stream:
        assert next(stream.lines()) == "go"
        _wait(lambda: _host_processes("6291"))
        os.kill(device.running.pid, signal.SIGKILL)
        _wait(lambda: not _host_processes("6291"))
    assert [known.running for known in virtual.list_devices()] == [None]
    again = virtual.start("x86_64")
    assert again.running is not None
    assert again.running.pid != device.running.pid
    assert _shell(again, devices, "echo", "alive") == "alive\n"


def test_when_the_devices_init_dies_the_daemon_says_so(devices: AdbServer) -> None:
    device = virtual.start("x86_64")
    assert device.running is not None
    below = {process.pid for process in psutil.Process(device.running.pid).children(recursive=True)}
    (init,) = below.intersection(_host_processes("/system/bin/init")) - {_bubblewrap(below)}
    with AdbDevice(devices, device.serial).open(["sh", "-c", "echo go; exec sleep 600"]) as stream:
        lines = stream.lines()
        assert next(lines) == "go"
        os.kill(init, signal.SIGKILL)
        with pytest.raises(DeviceError, match="is gone"):  # and not as a program that ended by itself
            list(lines)
    _wait(lambda: virtual.list_devices()[0].running is None)
    assert "the device is gone" in device.folder.log.read_text()


def test_another_process_with_the_number_of_a_dead_daemon_is_left_alone(devices: AdbServer) -> None:
    device = virtual.start("x86_64")
    virtual.stop("virtual-x86_64")
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    for pid, started in ((os.getpid(), ticks), (os.getpid(), 1), (2**22 - 1, 1)):
        Running(pid=pid, started=started, port=1).write(device.folder.running)
        assert virtual.list_devices()[0].running is None
        assert virtual.stop("virtual-x86_64") is False
    assert virtual.start("x86_64").running is not None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 99}'])
def test_unreadable_state_is_written_anew(devices: AdbServer, content: str) -> None:
    folder = DeviceFolder.of("virtual-x86_64")
    folder.path.mkdir(parents=True)
    folder.spec.write_text(content)
    folder.running.write_text(content)
    assert virtual.start("x86_64").running is not None


def test_many_starts_at_once_start_one(devices: AdbServer) -> None:
    pids = []

    def one() -> None:
        running = virtual.start("x86_64").running
        pids.append(running.pid if running else None)

    threads = [threading.Thread(target=one) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pids) == 5
    assert len(set(pids)) == 1


def test_two_devices_do_not_see_each_other(devices: AdbServer) -> None:
    one, two = (virtual.start("x86_64", name=name) for name in ("one", "two"))
    _shell(one, devices, "touch", "/data/local/tmp/mine")
    assert _shell(two, devices, "ls", "/data/local/tmp") == ""
    assert _shell(one, devices, "sh", "-c", "ls /proc | grep -c '^[0-9]'").strip() in ("2", "3", "4")


def test_there_is_no_network_and_nothing_of_the_users(devices: AdbServer) -> None:
    device = virtual.start("x86_64")
    assert _shell(device, devices, "sh", "-c", "ls -A /data /data/local").split() == [
        "/data:",
        "local",
        "/data/local:",
        "tmp",
    ]
    assert _shell(device, devices, "sh", "-c", "cat /proc/net/route | wc -l").strip() in ("0", "1")
    assert _shell(device, devices, "sh", "-c", "env | grep -c ETCLI; ls /root /home 2>/dev/null; true") == "0\n"


def test_a_daemon_that_does_not_come_up_is_explained(devices: AdbServer, tmp_path: Path) -> None:
    folder = DeviceFolder.of("virtual-x86_64")
    folder.path.mkdir(parents=True)
    folder.data.write_text("a file where a folder belongs")
    with pytest.raises(DeviceError, match="did not start") as caught:
        virtual.start("x86_64")
    assert "File exists" in str(caught.value) or "Not a directory" in str(caught.value)
    assert str(folder.log) in (caught.value.problems[0].hint or "")
    assert virtual.list_devices()[0].running is None


def test_a_killed_device_is_no_device_that_is_offline(devices: AdbServer) -> None:
    device = virtual.start("x86_64")
    assert device.running is not None
    os.kill(device.running.pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while {listed.serial: listed.state for listed in devices.devices()}.get(device.serial) == "device":
        assert time.monotonic() < until
        time.sleep(0.05)
    assert device.serial in {listed.serial for listed in devices.devices()}
    with pytest.raises(DeviceError) as caught:
        select_device(serial=device.serial, virtual=None, console=Console(verbosity=-1))
    assert caught.value.problems[0].code == "device.not_found"
    assert "etcli device start" in (caught.value.problems[0].hint or "")
    assert device.serial not in {found.serial for found in connected_devices()}
    assert virtual.ensure("x86_64").running is not None


def test_missing_bubblewrap(devices: AdbServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from etcli.device.virtual.sandbox import bubblewrap_command

    bubblewrap_command.cache_clear()
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ToolError) as caught:
        virtual.start("x86_64")
    assert "apt-get install -y bubblewrap" in (caught.value.problems[0].hint or "")
    with pytest.raises(ToolError) as caught:
        virtual.start("aarch64")
    hints = [problem.hint or "" for problem in caught.value.problems]
    assert any("apt-get install -y bubblewrap" in hint for hint in hints)
    assert any("qemu-user-static" in hint for hint in hints)


def test_everything_that_this_machine_lacks_is_said_at_once(
    devices: AdbServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from etcli.device.virtual import native
    from etcli.device.virtual.sandbox import bubblewrap_command

    bubblewrap_command.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(native, "cache_dir", lambda: tmp_path / "nothing-compiled")
    with pytest.raises(ToolError) as caught:
        virtual.start("aarch64")
    assert caught.value.exit == ExitCode.ENVIRONMENT
    codes = [problem.code for problem in caught.value.problems]
    assert sorted(codes) == ["bubblewrap.missing", "compiler.missing", "qemu.missing"]


@pytest.mark.parametrize(
    ("arch", "props", "name"),
    [
        ("riscv64", {}, None),
        ("x86_64", {"a=b": "c"}, None),
        ("x86_64", {"": "c"}, None),
        ("x86_64", {"ro.x": "two\nlines"}, None),
        ("x86_64", {}, "../elsewhere"),
        ("x86_64", {}, "UPPER"),
        ("x86_64", {}, "line\n"),
    ],
)
def test_settings_that_cannot_be(devices: AdbServer, arch: str, props: dict[str, str], name: str | None) -> None:
    with pytest.raises(UsageError):
        virtual.start(arch, props, name=name)
    assert virtual.list_devices() == []


def test_a_server_on_another_machine_cannot_reach_it(devices: AdbServer) -> None:
    with pytest.raises(DeviceError, match="this machine only"):
        virtual.start("x86_64", server=AdbServer("192.0.2.1", 5037))  # reserved for documentation


def test_nothing_that_it_starts_listens_beyond_this_machine(devices: AdbServer) -> None:
    """Its daemon and what runs in it, and the adb server that it is connected to, which has a process of its own."""
    device = virtual.start("x86_64", server=devices)
    assert device.running is not None
    daemon = psutil.Process(device.running.pid)
    port = int(device.serial.rpartition(":")[2])
    listening = {
        (process.name(), connection.laddr.ip, connection.laddr.port)
        for process in [daemon, *daemon.children(recursive=True)]
        for connection in process.net_connections("all")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {(daemon.name(), "127.0.0.1", port)}
    server = [
        connection.laddr.ip
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == devices.port
    ]
    assert server
    assert set(server) <= {"127.0.0.1", "::1"}


def test_an_unknown_name(devices: AdbServer) -> None:
    with pytest.raises(DeviceError, match="no virtual device nothing"):
        virtual.stop("nothing")


def test_properties_with_odd_values(devices: AdbServer) -> None:
    props = {
        "ro.a": "x=y",
        "ro.b": "  spaces  ",
        "ro.c": "'$(id)' \\n %s",
        "ro.d": "",
        "ro.e": "]: [",
        "ro.product.model": "Größe 漢",
    }
    device = AdbDevice(devices, virtual.start("x86_64", props).serial)
    found = device.properties()
    assert {name: found[name] for name in props} == props


def test_a_description_survives_its_file(devices: AdbServer) -> None:
    device = virtual.start("x86_64", {"ro.x": "1"}, data_limit=1 << 20)
    assert VirtualSpec.read(device.folder.spec) == device.spec


def _host_processes(word: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if word.encode() in words:
            found.append(int(folder.name))
    return found


def _bubblewrap(pids: set[int]) -> int | None:
    return next((pid for pid in pids if Path(f"/proc/{pid}/comm").read_text() == "bwrap\n"), None)


def _wait(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
