"""A virtual device behind an adb server of the benchmark's own: the user's server and devices are never touched."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from etcli.common import process
from etcli.device import virtual
from etcli.device.adb import AdbDevice
from etcli.device.program import adb_program
from etcli.device.server import AdbServer

_VARIABLES = ("ANDROID_SERIAL", "ANDROID_ADB_SERVER_HOST", "ANDROID_ADB_SERVER_ADDRESS", "ADB_SERVER_SOCKET")


def free_port() -> int:
    """A loopback port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def private_device(home: Path, arch: str) -> Iterator[tuple[AdbServer, AdbDevice]]:
    """A server and a fresh device of `arch`, both gone at the end; `home` is this process's cache folder from now on."""
    for name in _VARIABLES:
        os.environ.pop(name, None)
    os.environ["ANDROID_ADB_SERVER_PORT"] = str(free_port())
    os.environ["ETCLI_CACHE_DIR"] = str(home)
    server = AdbServer.from_environment()
    server.ensure_running()
    device = virtual.start(arch, server=server)
    try:
        yield server, AdbDevice(server, device.serial)
    finally:
        virtual.stop(device.spec.name, server=server, remove=True)
        process.run([adb_program(), "-P", str(server.port), "kill-server"], timeout=30)
