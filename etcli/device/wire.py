"""One connection through the adb server to a service of a device, made by adbutils; its failures as `DeviceError`s."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from etcli.common.errors import DeviceError, EtcliError
from etcli.device.program import adb_command

if TYPE_CHECKING:
    import adbutils

_ACCEPT_SECONDS = 60.0
"""In which server and device have to accept a request, however long what was asked for may take."""

_SEND_BUFFER = 256 << 10
_LONGEST_REQUEST = 0xFFFF
"""Bytes of a service name: its length is sent as four hexadecimal digits."""


class Wire:
    """A byte stream to a service of a device.

    Args:
        serial: whom error messages name.
        timeout: seconds until everything that goes over this connection must be done, None for no limit.
        stall: seconds in which at least something must go, None for no limit.
    """

    def __init__(
        self,
        connection: adbutils.AdbConnection,
        serial: str,
        *,
        timeout: float | None = None,
        stall: float | None = None,
    ) -> None:
        self._socket: socket.socket = connection.conn
        with contextlib.suppress(OSError):
            # Requests are small and wait for their answers. A send buffer that the system lets grow to megabytes holds data that has gone
            # cold when the server copies it: transfers through one of a fixed size are faster by half (benchmarks/deploy.py).
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self._serial = serial
        self._timeout = timeout
        self._stall = stall
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._closed = self._given_up = False

    def send(self, data: bytes | memoryview) -> None:
        """Send all of `data`.

        Raises:
            DeviceError: the device is gone, or the time is up.
        """
        try:
            self._limit()
            self._socket.sendall(data)
        except TimeoutError:
            raise self._late() from None
        except OSError:
            raise self.gone() from None

    def receive(self, most: int) -> bytes:
        """The next bytes, at most `most`; none at the end.

        Raises:
            DeviceError: the time is up.
        """
        try:
            self._limit()
            return self._socket.recv(most)
        except TimeoutError:
            raise self._late() from None
        except OSError:
            return b""

    def receive_exactly(self, count: int) -> bytes:
        """Exactly `count` bytes.

        Raises:
            DeviceError: the connection ended before, or the time is up.
        """
        parts = []
        while count > 0:
            part = self.receive(min(count, 1 << 20))
            if not part:
                raise self.gone()
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def allow_stall(self, seconds: float | None) -> None:
        """From now on at least something must go in so many seconds, None for no limit."""
        self._stall = seconds

    def has_answer(self) -> bool:
        """Whether something can be read now."""
        with contextlib.suppress(OSError, ValueError):
            return bool(select.select([self._socket], [], [], 0)[0])
        return True

    @property
    def closed(self) -> bool:
        """Whether it was closed from this side, by whoever uses it."""
        return self._closed and not self._given_up

    def give_up(self) -> None:
        """End the connection for whoever uses it, who gets the error of `ended_here`."""
        self._given_up = True
        self.close()

    def close(self) -> None:
        """End the connection; a thread that waits in `receive` gets nothing more."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def gone(self) -> DeviceError:
        """The error for a connection that ended before its time."""
        return ended_here(self._serial) if self._given_up else device_gone(self._serial)

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _limit(self) -> None:
        if self._deadline is None:
            self._socket.settimeout(self._stall)
            return
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)

    def _late(self) -> DeviceError:
        return DeviceError(
            f"{self._serial} did not finish within {self._timeout:g} s"
            if self._timeout is not None
            else f"{self._serial} has taken and sent nothing for {self._stall or 0:g} s",
            code="device.timeout",
            hint=f"Look whether it still answers: {adb_command()} -s {self._serial} shell true",
        )


def open_wire(
    client: adbutils.AdbClient,
    serial: str,
    service: str,
    *,
    timeout: float | None = None,
    stall: float | None = None,
) -> Wire:
    """Connect to `service` (such as `sync:`) of the device `serial`; `timeout` and `stall` as in `Wire`.

    Raises:
        DeviceError: the server or the device is gone, or the device refuses the service.
    """
    with translated(serial):
        connection = client.make_connection()
    wire = Wire(connection, serial, timeout=timeout, stall=_ACCEPT_SECONDS if stall is None else stall)
    try:
        for request in (f"host:transport:{serial}", service):
            encoded = request.encode("utf-8", errors="surrogateescape")
            if len(encoded) > _LONGEST_REQUEST:
                raise DeviceError(
                    f"a command of {len(encoded)} bytes is too long for adb, which takes {_LONGEST_REQUEST}",
                    code="device.command_too_long",
                )
            wire.send(b"%04x" % len(encoded) + encoded)
            _check_status(wire, serial)
        wire.allow_stall(stall)
    except BaseException:
        wire.close()
        raise
    return wire


@contextlib.contextmanager
def translated(serial: str | None = None) -> Iterator[None]:
    """Turn adbutils' exceptions and connection failures of the block into `DeviceError`s."""
    import adbutils

    try:
        yield
    except (
        adbutils.AdbError,
        OSError,
        EOFError,
        ValueError,
        struct.error,
    ) as error:  # ValueError: lengths and text that are none
        if serial is not None and isinstance(error, adbutils.AdbError):
            raise refused(serial, str(error)) from None
        raise DeviceError(
            f"the adb server does not answer: {error}",
            code="device.adb_server",
            hint="Start it with: adb start-server. ANDROID_ADB_SERVER_HOST and ANDROID_ADB_SERVER_PORT say where it is; "
            "if another program has that port, give a free one.",
        ) from None


def refused(serial: str, reason: str) -> DeviceError:
    """The error for adb's own words about a device that it does not connect to."""
    if "not found" in reason:
        return device_gone(serial)
    if "unauthorized" in reason:
        return DeviceError(
            f"{serial} has not authorised this computer",
            code="device.unauthorized",
            hint="Unlock the device and accept the question about USB debugging.",
        )
    if "offline" in reason:
        return DeviceError(
            f"{serial} is offline", code="device.offline", hint=f"Replug it, or: {adb_command()} reconnect {serial}"
        )
    what = "closed the connection" if reason == "closed" else f"refuses: {reason}"
    return DeviceError(
        f"{serial} {what}",
        code="device.refused",
        hint=f"Repeat the command, which keeps what was complete. If it stays: replug the device, or {adb_command()} reconnect {serial}",
    )


ENDED_HERE = "device.closed"
"""Code of the errors of a device on which all work was ended from here, as Ctrl-C does."""


def ended_here(serial: str) -> DeviceError:
    """The error for work on a device that was ended from here."""
    return DeviceError(f"work on {serial} was ended from here", code=ENDED_HERE)


def was_ended_here(error: EtcliError) -> bool:
    """Whether `error` means nothing else than that."""
    return all(problem.code == ENDED_HERE for problem in error.problems)


def device_gone(serial: str) -> DeviceError:
    """The error for a device that is no longer there."""
    hint = f"Check the cable and `{adb_command()} devices`, then repeat the command; what was complete is kept."
    if serial.startswith("127.0.0.1:"):
        hint = "If it is a virtual device, `etcli device start` starts it again; its log is devices/NAME/log in the cache folder."
    return DeviceError(f"{serial} is gone: the connection ended", code="device.gone", hint=hint)


def _check_status(wire: Wire, serial: str) -> None:
    status = wire.receive_exactly(4)
    if status == b"OKAY":
        return
    if status != b"FAIL":
        raise DeviceError(f"the adb server answered {status!r}", code="device.adb_server")
    length = wire.receive_exactly(4)
    try:
        reason = wire.receive_exactly(int(length, 16))
    except ValueError:
        raise DeviceError(f"the adb server answered {status + length!r}", code="device.adb_server") from None
    raise refused(serial, reason.decode(errors="replace"))
