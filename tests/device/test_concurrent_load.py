"""Many shells and transfers on one virtual device at once, for a minute: not a byte may be lost."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from device_fixtures import MakeDevice, stock_adb

from etcli.device.adb import AdbDevice
from etcli.device.server import AdbServer
from etcli.device.virtual.spec import Protocol

WORKERS = 10


def work(number: int, seconds: float, device: AdbDevice, server: AdbServer, home: Path) -> int:
    """Push, pull, hash and print, in turn by our client and the stock one, until the time is up; the bytes compared."""
    until = time.monotonic() + seconds
    local, back = home / f"{number}.bin", home / f"{number}.back"
    folder = f"/data/local/tmp/load/{number}"
    adb = [stock_adb(), "-P", str(server.port), "-s", device.serial]
    compared = 0
    turn = 0
    while time.monotonic() < until or turn < 2:
        turn += 1
        data = os.urandom(50_000 + 37_777 * (turn % 23) + number)
        local.write_bytes(data)
        remote = f"{folder}/f{turn % 3}"
        if (turn + number) % 2:
            device.push(local, remote)
            device.pull(remote, back)
        else:
            device.shell(["mkdir", "-p", folder])
            subprocess.run([*adb, "push", str(local), remote], check=True, capture_output=True, timeout=60)
            subprocess.run([*adb, "pull", remote, str(back)], check=True, capture_output=True, timeout=60)
        assert back.read_bytes() == data
        digest = hashlib.sha256(data).hexdigest()
        assert device.shell(["sha256sum", remote]).stdout.split()[0] == digest
        lines = device.shell(["seq", "1", "20000"]).stdout.split()
        assert lines == [str(n) for n in range(1, 20001)]
        with device.open(["sh", "-c", "seq 1 3000; exit 7"]) as stream:
            assert list(stream.lines()) == lines[:3000]
        assert stream.code == 7
        compared += len(data)
    return compared


def loaded(seconds: float, device: AdbDevice, server: AdbServer, home: Path) -> None:
    with ThreadPoolExecutor(WORKERS) as pool:
        done = [pool.submit(work, number, seconds, device, server, home) for number in range(WORKERS)]
        assert all(future.result() > 0 for future in done)
    device.shell(["rm", "-rf", "/data/local/tmp/load"])


@pytest.mark.parametrize("protocol", ["new", "old"])
def test_ten_at_once(virtual_device: MakeDevice, adb_server: AdbServer, tmp_path: Path, protocol: Protocol) -> None:
    loaded(1.0, virtual_device("x86_64", protocol=protocol), adb_server, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("protocol", ["new", "old"])
def test_ten_at_once_for_a_minute(
    virtual_device: MakeDevice, adb_server: AdbServer, tmp_path: Path, protocol: Protocol
) -> None:
    loaded(60.0, virtual_device("x86_64", protocol=protocol), adb_server, tmp_path)
