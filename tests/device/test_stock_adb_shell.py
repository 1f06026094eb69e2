"""The stock adb program's shell and exec against the virtual device."""

from __future__ import annotations

import os
import subprocess
import threading
import time

import pytest
from device_fixtures import stock_adb

from etcli.device.adb import AdbDevice


def test_it_is_listed_with_its_names(adb, phone: AdbDevice) -> None:
    lines = adb("devices", "-l", serial=None).stdout.decode().splitlines()
    line = next(line for line in lines if line.startswith(phone.serial))
    assert " device " in line
    assert "model:etcli_virtual_aarch64" in line


def test_its_features(adb) -> None:
    features = set(adb("features").stdout.decode().split())
    assert {"shell_v2", "stat_v2", "ls_v2", "fixed_push_mkdir"} <= features
    assert "delayed_ack" not in features


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("true", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("no-such-program", 127),
        ("/etc/passwd", 126),
        ("kill -9 $$", 137),
        ("kill -SEGV $$", 139),
    ],
)
def test_exit_statuses(adb, text: str, code: int) -> None:
    assert adb("shell", text).returncode == code


def test_outputs_are_separate(adb) -> None:
    done = adb("shell", "echo out; echo err >&2; printf tail")
    assert (done.stdout, done.stderr) == (b"out\ntail", b"err\n")


def test_no_byte_is_changed(adb) -> None:
    data = bytes(range(256)) * 5000 + b"\r\n\n\r"
    assert adb("shell", "cat", stdin=data).stdout == data


def test_standard_input_ends(adb) -> None:
    done = adb("shell", "wc -c; echo after", stdin=b"x" * 1000)
    assert done.stdout.decode().split() == ["1000", "after"]


def test_exec_carries_bytes_both_ways(adb, folder: str) -> None:
    data = os.urandom(3_000_000)
    assert adb("exec-in", f"cat > {folder}/in", stdin=data).returncode == 0
    deadline = time.monotonic() + 20
    while adb("shell", f"stat -c %s {folder}/in").stdout.strip() != b"3000000" and time.monotonic() < deadline:
        time.sleep(0.05)  # exec-in does not wait for the command
    assert adb("exec-out", "cat", f"{folder}/in").stdout == data


def test_exec_joins_the_outputs(adb) -> None:
    assert adb("exec-out", "echo out; echo err >&2").stdout == b"out\nerr\n"


def test_a_terminal_can_be_asked_for(adb) -> None:
    done = adb("shell", "-tt", "test -t 0 && test -t 1 && echo terminal; exit 3")
    assert done.stdout == b"terminal\r\n"
    assert done.returncode == 3
    assert adb("shell", "-T", "test -t 1 || echo none").stdout == b"none\n"


def test_an_interactive_shell_takes_commands(adb) -> None:
    done = adb("shell", "-T", stdin=b"cd /data/local/tmp\npwd\nexit 4\n")
    assert b"/data/local/tmp" in done.stdout
    assert done.returncode == 4


def test_control_c_on_a_terminal_interrupts_the_program_and_not_the_shell(adb_server, phone: AdbDevice) -> None:
    command = [stock_adb(), "-P", str(adb_server.port), "-s", phone.serial, "shell", "-tt"]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdin is not None
    client.stdin.write(b"sleep 4712\n")
    client.stdin.flush()
    _wait(lambda: _runs(phone, "4712"))
    client.stdin.write(b"\x03exit 5\n")
    client.stdin.flush()
    assert client.wait(timeout=60) == 5


def test_a_program_hears_that_nobody_listens(adb, adb_server, phone: AdbDevice, folder: str) -> None:
    text = f"trap 'echo heard > {folder}/mark; exit' HUP; sleep 4713 & wait"
    command = [stock_adb(), "-P", str(adb_server.port), "-s", phone.serial, "shell", text]
    client = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    _wait(lambda: _runs(phone, "4713"))
    client.kill()
    client.wait()
    _wait(lambda: adb("shell", f"cat {folder}/mark").stdout == b"heard\n")


def test_many_streams_at_once(adb) -> None:
    results: dict[int, bytes] = {}

    def one(number: int) -> None:
        data = bytes([number]) * 400_000
        results[number] = b"same" if adb("shell", "cat", stdin=data).stdout == data else b"different"

    threads = [threading.Thread(target=one, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(12), b"same")


def test_a_reader_that_stops_holds_back_no_other_stream(adb, adb_server, phone: AdbDevice) -> None:
    command = [stock_adb(), "-P", str(adb_server.port), "-s", phone.serial, "shell", "cat /dev/zero"]
    stuck = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        assert stuck.stdout is not None
        stuck.stdout.read(1)
        assert adb("shell", "echo alive").stdout == b"alive\n"
    finally:
        stuck.kill()
        stuck.wait()


@pytest.mark.parametrize(
    "text", ["sleep 4711", "sleep 4711 & sleep 4711", "trap '' HUP; sleep 4711; sleep 4711", "cat /dev/zero 4711"]
)
def test_a_client_that_dies_takes_its_processes_along(adb, adb_server, phone: AdbDevice, text: str) -> None:
    command = [stock_adb(), "-P", str(adb_server.port), "-s", phone.serial, "shell", text]
    client = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _wait(lambda: b"4711" in _processes(adb))
    client.kill()
    client.wait()
    _wait(lambda: b"4711" not in _processes(adb))


def test_what_detached_itself_outlives_its_shell(adb, folder: str) -> None:
    adb("shell", f"setsid sh -c 'sleep 1; echo done > {folder}/mark' >/dev/null 2>&1 </dev/null &")
    _wait(lambda: adb("shell", f"cat {folder}/mark").stdout == b"done\n")


def test_processes_of_one_stream_are_seen_and_ended_from_another(adb, adb_server, phone: AdbDevice) -> None:
    command = [stock_adb(), "-P", str(adb_server.port), "-s", phone.serial, "shell", "echo $$; exec sleep 600"]
    client = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert client.stdout is not None
    pid = int(client.stdout.readline())
    assert adb("shell", f"kill -TERM {pid}").returncode == 0
    assert client.wait(timeout=60) == 128 + 15


@pytest.mark.parametrize("arguments", [("reboot",), ("forward", "--list"), ("root",)])
def test_what_it_does_not_do_leaves_it_as_it_was(adb, phone: AdbDevice, arguments: tuple[str, ...]) -> None:
    adb(*arguments)
    assert phone.serial in adb("devices", serial=None).stdout.decode()
    assert adb("shell", "echo alive").stdout == b"alive\n"


def test_a_very_long_command_is_refused_not_fatal(phone: AdbDevice, adb) -> None:
    word = "x" * 60_000
    assert phone.shell(["printf", "%s", word]).stdout == word
    assert adb("shell", "echo", *["y" * 1000] * 200).returncode != 0
    assert adb("shell", "echo alive").stdout == b"alive\n"


def _processes(adb) -> bytes:
    return adb("shell", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout.replace(b"cat /proc/[0-9]*", b"")


def _runs(phone: AdbDevice, word: str) -> bool:
    lines = phone.shell(
        ["sh", "-c", "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f; echo; done"]
    ).stdout.splitlines()
    return any(line.startswith("sleep ") and word in line for line in lines)


def _wait(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)
