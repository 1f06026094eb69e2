"""The adb server of this machine: found where adb's own variables say, started if it does not run, never stopped.

Everything is asked over its socket and not through the `adb` program, which ends a server of another version than its own.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etcli.common import process
from etcli.common.errors import DeviceError, ToolError, UsageError
from etcli.device.program import adb_command, adb_program
from etcli.device.wire import translated

if TYPE_CHECKING:
    import adbutils

_DEFAULT_HOST = "127.0.0.1"
_DEFAULT_PORT = 5037
_START_SECONDS = 30.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Listed:
    """A device as the server lists it: serial and state (`device`, `offline`, `unauthorized`, `no permissions (...)`, ...)."""

    serial: str
    state: str


@dataclass(frozen=True)
class AdbServer:
    """An adb server at `host`:`port`. Methods raise `DeviceError` when it does not answer."""

    host: str
    port: int

    @classmethod
    def from_environment(cls) -> AdbServer:
        """The server that `adb` itself would use: `ANDROID_ADB_SERVER_HOST` (or `_ADDRESS`) and `ANDROID_ADB_SERVER_PORT`, else the usual one.

        Raises:
            UsageError: the port is no port.
        """
        host = (
            os.environ.get("ANDROID_ADB_SERVER_HOST") or os.environ.get("ANDROID_ADB_SERVER_ADDRESS") or _DEFAULT_HOST
        )
        text = os.environ.get("ANDROID_ADB_SERVER_PORT") or str(_DEFAULT_PORT)
        if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
            raise UsageError(
                f"ANDROID_ADB_SERVER_PORT={text!r} is no port",
                code="device.adb_server_port",
                hint="Set a number, or unset it.",
            )
        return cls(host, int(text))

    @property
    def local(self) -> bool:
        """Whether it runs on this machine."""
        return self.host in _LOOPBACK

    @functools.cached_property
    def client(self) -> adbutils.AdbClient:
        """adbutils' client of this server."""
        import adbutils  # half a second of requests and Pillow, which the daemon of a virtual device never needs

        return adbutils.AdbClient(host=self.host, port=self.port)

    def ensure_running(self) -> None:
        """Start the server if nothing answers at its place.

        Raises:
            ToolError: there is no adb program to start it with, or it does not start.
            DeviceError: it is to run on another machine, and does not answer there.
        """
        if self._answers():
            return
        if not self.local:
            raise DeviceError(
                f"no adb server answers at {self.host}:{self.port}",
                code="device.adb_server",
                hint="Start it on that machine, or unset ANDROID_ADB_SERVER_HOST to use this one's.",
            )
        program = adb_program()
        environment = {"ANDROID_ADB_SERVER_PORT": str(self.port)}
        try:
            done = process.run([program, "-P", str(self.port), "start-server"], env=environment, timeout=_START_SECONDS)
            complaint = (done.stderr or done.stdout).strip()
        except subprocess.TimeoutExpired as error:
            complaint = str(error)
        except OSError as error:
            raise ToolError(
                f"{program} cannot be started: {error.strerror}",
                code="adb.missing",
                hint="Install adb (apt-get install adb), or unset ADBUTILS_ADB_PATH to use the one that came with adbutils.",
            ) from None
        until = time.monotonic() + _START_SECONDS / 3
        while not self._answers():
            if time.monotonic() > until:
                raise ToolError(
                    f"the adb server does not start on port {self.port}: {complaint}",
                    code="adb.server",
                    hint=f"See what {program} -P {self.port} start-server says.",
                )
            time.sleep(0.1)

    def version(self) -> int:
        """The number of the protocol that it speaks, as 41; an adb program of another number ends it."""
        with translated(), self.client.make_connection(timeout=_START_SECONDS) as connection:
            connection.send_command("host:version")
            connection.check_okay()
            text = connection.read_string_block()
        try:
            return int(text, 16)
        except ValueError:
            raise DeviceError(
                f"the adb server at {self.host}:{self.port} says that its version is {text[:20]!r}",
                code="device.adb_server",
                hint="Look which program listens there.",
            ) from None

    def devices(self) -> list[Listed]:
        """All that the server knows of, whatever its state."""
        with translated(), self.client.make_connection(timeout=_START_SECONDS) as connection:
            connection.send_command("host:devices")
            connection.check_okay()
            listing = connection.read_string_block()
        pairs = (line.split("\t", 1) for line in listing.splitlines() if "\t" in line)
        return [Listed(serial, state) for serial, state in pairs]

    def features(self, serial: str) -> frozenset[str]:
        """What the device and the server can do, in adb's words. A server from before Android 7 has no such question, and old devices no answer.

        Raises:
            DeviceError: it is gone, or not usable.
        """
        import adbutils

        with translated(serial), self.client.make_connection(timeout=_START_SECONDS) as connection:
            connection.send_command(f"host-serial:{serial}:features")
            try:
                connection.check_okay()
            except adbutils.AdbError as error:
                if "unknown host service" in str(error):
                    return frozenset()
                raise
            return frozenset(word for word in connection.read_string_block().split(",") if word)

    def connect(self, address: str, *, timeout: float) -> None:
        """Connect to a device over TCP and wait until it is usable. One that is connected already stays so.

        Raises:
            DeviceError: it is not usable after `timeout` seconds; the text holds the server's own.
        """
        until = time.monotonic() + timeout
        answer = ""
        while True:
            states = {listed.serial: listed.state for listed in self.devices()}
            state = states.get(address)
            if state == "device":
                return
            if time.monotonic() > until:
                raise DeviceError(
                    f"the adb server does not connect to {address}: {answer or state}",
                    code="device.connect",
                    hint=f"See what {adb_command()} connect {address} says.",
                )
            if state is not None and state not in ("connecting", "authorizing"):
                self.forget(address)
                state = None
            if state is None:
                with translated(address):
                    answer = self.client.connect(address, timeout=_START_SECONDS)
            time.sleep(0.05)

    def forget(self, address: str) -> None:
        """Disconnect a device connected over TCP, if it is known; nothing happens when no server runs."""
        if self._answers():
            with translated():
                self.client.disconnect(address)

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=1.0):
                return True
        except OSError:
            return False
