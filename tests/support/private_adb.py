"""Virtual devices behind an adb server of the test run's own: the user's server and devices are never touched."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcli.common import process
from etcli.device import virtual
from etcli.device.adb import AdbDevice
from etcli.device.server import AdbServer, adb_program


def free_port() -> int:
    """A loopback port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def private_server(home: Path) -> Iterator[AdbServer]:
    """An adb server on a port of its own and a cache folder of its own, as the environment's while the block runs."""
    port = free_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        patch.setenv("ETCLI_CACHE_DIR", str(home))
        for name in ("ANDROID_SERIAL", "ANDROID_ADB_SERVER_HOST", "ANDROID_ADB_SERVER_ADDRESS"):
            patch.delenv(name, raising=False)
        server = AdbServer.from_environment()
        server.ensure_running()
        try:
            yield server
        finally:
            for device in virtual.list_devices():
                virtual.stop(device.spec.name, remove=True)
            process.run([adb_program(), "-P", str(port), "kill-server"], env=dict(os.environ), timeout=30)


@contextlib.contextmanager
def virtual_device(server: AdbServer, arch: str, **settings: object) -> Iterator[AdbDevice]:
    """A virtual device with `settings` of `virtual.start`, removed with its files at the end."""
    device = virtual.start(arch, server=server, **settings)  # type: ignore[arg-type]
    try:
        yield AdbDevice(server, device.serial)
    finally:
        virtual.stop(device.spec.name, server=server, remove=True)
