"""Devices that a real adb server lists and nobody can use: what stands for a phone here speaks just enough of adb to be in that state."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from etcli.common.errors import DeviceError
from etcli.device import wire
from etcli.device.adb import AdbDevice
from etcli.device.select import select_device
from etcli.device.server import AdbServer
from etcli.device.virtual.packets import AUTH, CNXN, MAX_PAYLOAD, VERSION, Packet, read_packet
from etcli.output.console import Console

Answer = Callable[[Packet], "Packet | None"]
_TOKEN, _PUBLIC_KEY = 1, 3


def never_authorised(packet: Packet) -> Packet | None:
    """Asks for a signature by another key, until it is shown a new one, about which it would ask the user."""
    if packet.command == AUTH and packet.arg0 == _PUBLIC_KEY:
        return None
    return Packet(AUTH, _TOKEN, 0, bytes(range(20)))


def in_mode(mode: str) -> Answer:
    """Says that it is in another mode than Android."""
    banner = f"{mode}::ro.product.name=stand;ro.product.model=stand;ro.product.device=stand;".encode()
    return lambda packet: Packet(CNXN, VERSION, MAX_PAYLOAD, banner) if packet.command == CNXN else None


class StandIn:
    """A daemon that answers every message by `answer`."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.serial = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as source, contextlib.suppress(OSError):
            while (packet := read_packet(source.read)) is not None:
                answer = self._answer(packet)
                if answer is not None:
                    connection.sendall(answer.pack())


@pytest.fixture
def connected(adb_server: AdbServer) -> Iterator[Callable[[Answer, str], str]]:
    """A function that connects a stand-in and waits until the server lists it in a state; gives its serial."""
    made: list[StandIn] = []

    def connect(answer: Answer, state: str) -> str:
        stand_in = StandIn(answer)
        made.append(stand_in)
        adb_server.client.connect(stand_in.serial, timeout=30)
        until = time.monotonic() + 30
        while (stand_in.serial, state) not in {(one.serial, one.state) for one in adb_server.devices()}:
            assert time.monotonic() < until, adb_server.devices()
            time.sleep(0.1)
        return stand_in.serial

    yield connect
    for stand_in in made:
        adb_server.forget(stand_in.serial)
        stand_in.close()


@pytest.mark.known_failure("device-states")
@pytest.mark.parametrize(
    ("answer", "state", "code", "word"),
    [
        (never_authorised, "unauthorized", "device.unauthorized", "accept"),
        (in_mode("recovery"), "recovery", "device.wrong_mode", "reboot"),
        (in_mode("sideload"), "sideload", "device.wrong_mode", "reboot"),
        (in_mode("bootloader"), "bootloader", "device.wrong_mode", "reboot"),
    ],
)
def test_a_state_is_explained(connected, answer: Answer, state: str, code: str, word: str) -> None:
    serial = connected(answer, state)
    with pytest.raises(DeviceError) as caught:
        select_device(serial=serial, virtual=None, console=Console(verbosity=-1))
    (problem,) = caught.value.problems
    assert problem.code == code
    assert serial in problem.message
    assert word in (problem.hint or "")


@pytest.mark.known_failure("device-states")
def test_a_device_that_was_disconnected_is_not_there(adb_server: AdbServer, connected) -> None:
    serial = connected(in_mode("device"), "device")
    adb_server.forget(serial)
    with pytest.raises(DeviceError) as caught:
        select_device(serial=serial, virtual=None, console=Console(verbosity=-1))
    assert caught.value.problems[0].code == "device.not_found"
    assert "adb connect" in (caught.value.problems[0].hint or "")


def test_a_device_that_accepts_nothing_is_not_waited_for_without_end(
    adb_server: AdbServer, connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = AdbDevice(adb_server, connected(in_mode("device"), "device"))
    monkeypatch.setattr(wire, "_ACCEPT_SECONDS", 1.0)
    with pytest.raises(DeviceError) as caught, device.open(["true"]):
        pass
    assert caught.value.problems[0].code == "device.timeout"


@pytest.mark.parametrize(
    "said", [b"", b"OK", b"OKAYzzzz", b"FAILzzzz", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 40]
)
def test_a_port_where_something_else_answers(said: bytes) -> None:
    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.recv(100)
                connection.sendall(said)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, daemon=True).start()
        server = AdbServer("127.0.0.1", listener.getsockname()[1])
        for ask in (
            server.devices,
            server.version,
            lambda: server.features("serial"),
            lambda: wire.open_wire(server.client, "serial", "sync:"),
        ):
            with pytest.raises(DeviceError) as caught:
                ask()
            assert caught.value.problems[0].code.startswith("device.")
        listener.shutdown(socket.SHUT_RDWR)
