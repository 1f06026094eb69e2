"""Fixtures for tests that need a device: an adb server of their own, and virtual devices behind it.

The server listens on a private port, takes no phone from the user's own server and is the only one that tests see; the user's is never
asked, started or stopped. Devices have names of this test process in the usual cache folder and are removed with their files.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import adbutils
import pytest

from etcli.device import virtual
from etcli.device.adb import AdbDevice
from etcli.device.server import AdbServer
from etcli.device.virtual.spec import Protocol

MakeDevice = Callable[..., AdbDevice]


def stock_adb() -> str:
    """The adb program that came with adbutils, whatever else is on PATH."""
    return str(Path(adbutils.__file__).parent / "binaries" / "adb")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session", autouse=True)
def _private_adb_port() -> Iterator[int]:
    """Every test, whether it means to use adb or not, sees only a private place for the server."""
    names = (
        "ANDROID_ADB_SERVER_PORT",
        "ANDROID_ADB_SERVER_HOST",
        "ANDROID_ADB_SERVER_ADDRESS",
        "ANDROID_SERIAL",
        "ADB_SERVER_SOCKET",
    )
    port = _free_port()
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.delenv(name, raising=False)
        patch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        patch.setenv("ADB_LOCAL_TRANSPORT_MAX_PORT", "0")  # no search for emulators
        patch.setenv("ADB_MDNS_AUTO_CONNECT", "none")  # nor for phones in the network
        yield port


@pytest.fixture(scope="session")
def adb_server(_private_adb_port: int) -> Iterator[AdbServer]:
    """A private adb server, ended with the session. `--one-device` keeps it from phones on USB."""
    server = AdbServer("127.0.0.1", _private_adb_port)
    command = [stock_adb(), "-P", str(server.port), "--one-device", "none-of-the-users", "start-server"]
    subprocess.run(
        command, check=True, timeout=60, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    yield server
    server.client.server_kill()


@pytest.fixture(scope="session")
def _shared_devices(adb_server: AdbServer) -> Iterator[Callable[[str, Protocol], AdbDevice]]:
    names: dict[tuple[str, Protocol], str] = {}

    def shared(arch: str, protocol: Protocol) -> AdbDevice:
        name = names.setdefault((arch, protocol), f"test-{os.getpid()}-{arch.replace('_', '-')}-{protocol}")
        return AdbDevice(adb_server, virtual.start(arch, name=name, protocol=protocol, server=adb_server).serial)

    yield shared
    for name in names.values():
        virtual.stop(name, server=adb_server, remove=True)


_numbers = itertools.count(1)


@pytest.fixture
def virtual_device(
    adb_server: AdbServer, _shared_devices: Callable[[str, Protocol], AdbDevice]
) -> Iterator[MakeDevice]:
    """A function `(arch="aarch64", props=None, *, data_limit=None, cpu=None, protocol="new") -> AdbDevice`.

    Without settings it gives one device of the protocol for the whole session (files stay from test to test; use folders of your own); with any, a
    fresh device that is removed after the test.
    """
    made: list[str] = []

    def make(
        arch: str = "aarch64",
        props: dict[str, str] | None = None,
        *,
        data_limit: int | None = None,
        cpu: str | None = None,
        protocol: Protocol = "new",
    ) -> AdbDevice:
        if props is None and data_limit is None and cpu is None:
            return _shared_devices(arch, protocol)
        name = f"test-{os.getpid()}-{next(_numbers)}"
        made.append(name)
        device = virtual.start(
            arch, props, name=name, data_limit=data_limit, cpu=cpu, protocol=protocol, server=adb_server
        )
        return AdbDevice(adb_server, device.serial)

    yield make
    for name in made:
        virtual.stop(name, server=adb_server, remove=True)
