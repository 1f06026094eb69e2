"""Who has a device: taken, waited for, lost with a connection and taken up again, given back however its holder ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from breaking_proxy import BreakingProxy
from device_fixtures import MakeDevice

from etcli.common.errors import DeviceError, UsageError
from etcli.device.adb import AdbDevice
from etcli.device.held_link import _HOLD, LINK, HeldLink
from etcli.device.lock import WAIT, device_lock, still_held
from etcli.device.server import AdbServer
from etcli.device.shelltext import script
from etcli.output.console import Console

QUIET = Console(verbosity=-1)


@pytest.fixture(params=["new", "old"])
def device(virtual_device: MakeDevice, request: pytest.FixtureRequest) -> Iterator[AdbDevice]:
    device = virtual_device("x86_64", protocol=request.param)
    device.shell(["rm", "-f", LINK])
    yield device
    assert link(device) == "", "a test left the device taken"


@pytest.fixture
def new_protocol(virtual_device: MakeDevice) -> AdbDevice:
    return virtual_device("x86_64")


@pytest.fixture
def cable(adb_server: AdbServer, device: AdbDevice) -> Iterator[BreakingProxy]:
    proxy = BreakingProxy(int(device.serial.rpartition(":")[2]))
    adb_server.connect(proxy.serial, timeout=20)
    yield proxy
    adb_server.forget(proxy.serial)
    proxy.close()


def link(device: AdbDevice) -> str:
    return device.shell(["readlink", LINK]).stdout.strip()


def until(what: object, timeout: float = 20.0) -> None:
    """Wait until the callable `what` gives something true."""
    end = time.monotonic() + timeout
    while not what():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)


def test_it_says_who_and_since_when(device: AdbDevice) -> None:
    with device_lock(device, "bench of tiny", QUIET):
        told = link(device)
        process, since, _, who = told.split(" ", 3)
        assert who.startswith(f"etcli bench of tiny, process {os.getpid()} of ")
        assert who.endswith(" UTC")
        stat = device.shell(["cat", f"/proc/{process}/stat"]).stdout
        assert stat.rpartition(")")[2].split()[19] == since
    assert link(device) == ""


def test_who_has_it_already_does_not_wait_for_itself(device: AdbDevice) -> None:
    with device_lock(device, "bench of tiny", QUIET):
        with device_lock(device, "run of tiny", QUIET):
            assert "bench" in link(device)
        assert "bench" in link(device), "the inner one gives nothing back"


@pytest.mark.parametrize("elsewhere", [False, True], ids=["this machine", "another machine"])
def test_nobody_is_waited_for_longer_than_asked(
    device: AdbDevice,
    elsewhere: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def second() -> None:
        with device_lock(device, "run of mine", Console()):
            pytest.fail("two have it")

    with device_lock(device, "deploy of theirs", QUIET):
        if elsewhere:
            monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path))
        monkeypatch.setenv(WAIT, "0.7")
        with ThreadPoolExecutor(1) as other, pytest.raises(DeviceError) as caught:
            other.submit(second).result()
    (problem,) = caught.value.problems
    assert problem.code == "device.busy"
    assert f"etcli deploy of theirs, process {os.getpid()} of " in problem.message
    assert WAIT in (problem.hint or "")
    said = capfd.readouterr().err
    assert said.count("waiting for 0.7 s at most") == 1


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_a_wait_that_is_no_number_is_refused(
    new_protocol: AdbDevice, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WAIT, text)
    with pytest.raises(UsageError, match=WAIT), device_lock(new_protocol, "run of mine", QUIET):
        pass


HOLD = """
import os, sys, time
from etcli.device.adb import AdbDevice
from etcli.device.lock import device_lock
from etcli.device.server import AdbServer
from etcli.output.console import Console
with device_lock(AdbDevice(AdbServer.from_environment(), sys.argv[1]), "deploy of theirs", Console()):
    print("held", flush=True)
    time.sleep(100)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_holder_that_is_killed_holds_nobody(device: AdbDevice, number: signal.Signals) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, device.serial], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.send_signal(number)
    holder.communicate()
    with device_lock(device, "run of mine", QUIET):
        assert "run of mine" in link(device)


def test_without_a_cache_the_link_is_lock_enough(
    device: AdbDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with device_lock(device, "run of mine", QUIET):
        assert "run of mine" in link(device)


def test_a_connection_that_breaks_costs_no_lock(device: AdbDevice, cable: BreakingProxy, adb_server: AdbServer) -> None:
    far = AdbDevice(adb_server, cable.serial)
    with device_lock(far, "deploy of mine", QUIET):
        before = link(device)
        for _ in range(2):
            cable.cut()
            assert far.recover(20)
            until(lambda before=before: link(device) not in ("", before))
            still_held(far)
            assert link(device).split(" ")[2:] == before.split(" ")[2:]
            before = link(device)
    assert link(device) == ""


def test_taking_it_up_again_may_break_off_too(device: AdbDevice) -> None:
    """At any moment of it: the program on the device is killed as its connection ends, and what it was at is not done by halves."""
    held = HeldLink(device, "etcli deploy of mine")
    again = script(_HOLD, LINK, held._word, "etcli deploy of mine", "again")
    assert held.take() is None
    held._over.set()  # no thread of its own looks after it
    held._stream.close()
    drawn = random.Random(3)  # noqa: S311 - moments to try
    for _ in range(60):
        with device.open(again):
            time.sleep(drawn.uniform(0.0, 0.02))
        assert held._word in link(device)
    with device.open(again) as stream:
        assert next(iter(stream.lines())) == "held"
        held.release()


@pytest.mark.parametrize("stays", [True, False], ids=["has it", "had it"])
def test_a_device_that_another_took_meanwhile_is_no_longer_ours(
    device: AdbDevice,
    cable: BreakingProxy,
    adb_server: AdbServer,
    stays: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    far = AdbDevice(adb_server, cable.serial)
    with device_lock(far, "deploy of mine", QUIET):
        cable.for_good = True
        cable.cut()
        monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "theirs"))
        theirs = HeldLink(device, "etcli deploy of theirs, process 1 of you on there")
        until(lambda: theirs.take() is None)
        if not stays:
            theirs.release()
        cable.mend()
        assert far.recover(20)
        with pytest.raises(DeviceError) as caught:
            still_held(far)
        assert caught.value.problems[0].code == "device.lock_lost"
        assert ("process 1 of you" in caught.value.problems[0].message) is stays
    assert ("theirs" in link(device)) is stays, "what is another's stays"
    theirs.release()


def test_a_link_left_behind_is_taken_over_by_one_alone(new_protocol: AdbDevice) -> None:
    """Many find it at the same time."""
    inside = 0
    lock = threading.Lock()

    def take(number: int) -> int:
        nonlocal inside
        held = HeldLink(new_protocol, f"etcli run {number}")
        until(lambda: held.take() is None, 60)
        with lock:
            inside += 1
            most = inside
        time.sleep(0.05)
        with lock:
            inside -= 1
        held.release()
        assert held.complaint == ""
        return most

    for _ in range(3):
        new_protocol.shell(script('rm -f "$1"; ln -s "4194000 99 0 etcli deploy of ghost" "$1"', LINK))
        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(take, range(6))) == [1] * 6
    assert link(new_protocol) == ""


@pytest.mark.parametrize(
    "text", ["", "x", "1 2", "-5 1 1 1", "$(reboot) 1 1 1", "99999999999999999999 1 1 1", "/data/local/tmp"]
)
def test_what_is_no_link_of_ours_is_replaced(new_protocol: AdbDevice, text: str) -> None:
    made = ["ln", "-s", "--", text or "/nowhere", LINK]
    assert new_protocol.shell(made).code == 0
    with device_lock(new_protocol, "run of mine", QUIET):
        assert "run of mine" in link(new_protocol)
    assert link(new_protocol) == ""


def test_a_link_that_another_has_is_seen_though_our_own_connection_looks_whole(new_protocol: AdbDevice) -> None:
    other = "4194000 99 0a0b0c0d etcli deploy of theirs"
    with device_lock(new_protocol, "run of mine", QUIET):
        still_held(new_protocol)
        new_protocol.shell(script('rm -f "$1"; ln -s "$2" "$1"', LINK, other))
        with pytest.raises(DeviceError, match=r"took the device: etcli deploy of theirs$") as caught:
            still_held(new_protocol)
        assert caught.value.problems[0].code == "device.lock_lost"
    assert link(new_protocol) == other, "what is another's stays"
    new_protocol.shell(["rm", LINK])


def test_a_device_without_room_for_a_link_works_all_the_same(new_protocol: AdbDevice) -> None:
    new_protocol.shell(["mkdir", LINK])
    try:
        with device_lock(new_protocol, "run of mine", QUIET):
            still_held(new_protocol)
            assert new_protocol.shell(["ls", "-A", LINK]).stdout == ""
    finally:
        new_protocol.shell(["rmdir", LINK])


def test_a_wait_for_another_ends_with_the_device(new_protocol: AdbDevice, adb_server: AdbServer) -> None:
    """As Ctrl-C does with the waits of several devices, which are those of threads."""
    mine = AdbDevice(adb_server, new_protocol.serial)

    def second() -> None:
        with device_lock(mine, "run of mine", QUIET):
            pass

    with device_lock(new_protocol, "deploy of theirs", QUIET), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second)
        time.sleep(0.5)
        assert not waiting.done()
        mine.close()
        with pytest.raises(DeviceError):
            waiting.result(timeout=20)
