"""The daemon against peers that do not keep to the protocol: they are dropped or answered, and it goes on for the others."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from etcli.device.adb import AdbDevice
from etcli.device.virtual import packets
from etcli.device.virtual.packets import CLSE, CNXN, HEADER, MAX_PAYLOAD, OKAY, OPEN, VERSION, WRTE, Packet, read_packet


class Peer:
    """A connection to the daemon that can send anything."""

    def __init__(self, serial: str) -> None:
        host, port = serial.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)

    def send(self, packet: Packet | bytes) -> None:
        self.socket.sendall(packet if isinstance(packet, bytes) else packet.pack())

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                break
            data += part
        return data

    def receive(self) -> Packet | None:
        return read_packet(self.read)

    def greet(self, *, version: int = VERSION, max_payload: int = MAX_PAYLOAD) -> Packet:
        self.send(Packet(CNXN, version, max_payload, b"host::features=shell_v2"))
        answer = self.receive()
        assert answer is not None
        return answer

    def open(self, service: bytes, local: int = 1) -> Packet:
        self.send(Packet(OPEN, local, 0, service + b"\0"))
        answer = self.receive()
        assert answer is not None
        return answer

    def run(self, service: bytes, data: bytes = b"") -> bytes:
        """What a service sends until it closes; each message acknowledged."""
        opened = self.open(service)
        assert opened.command == OKAY
        if data:
            self.send(Packet(WRTE, 1, opened.arg0, data))
        received = b""
        while (packet := self.receive()) is not None and packet.command != CLSE:
            if packet.command == WRTE:
                received += packet.payload
                self.send(Packet(OKAY, 1, packet.arg0))
        return received


@pytest.fixture
def peer(phone: AdbDevice) -> Iterator[Callable[[], Peer]]:
    peers: list[Peer] = []

    def connect() -> Peer:
        peers.append(Peer(phone.serial))
        return peers[-1]

    yield connect
    for made in peers:
        made.socket.close()
    assert phone.shell(["echo", "alive"]).stdout == "alive\n"


def test_handshake(peer) -> None:
    answer = peer().greet()
    assert (answer.command, answer.arg0, answer.arg1) == (CNXN, VERSION, MAX_PAYLOAD)
    assert answer.payload.startswith(b"device::ro.product.name=")
    assert b"features=shell_v2," in answer.payload


BAD = {
    "noise": os.urandom(4096),
    "text": b"GET / HTTP/1.1\r\nHost: device\r\n\r\n",
    "zeros": bytes(4096),
    "half a header": Packet(CNXN, VERSION, 4096).pack()[:10],
    "wrong magic": HEADER.pack(CNXN, VERSION, 4096, 0, 0, CNXN),
    "unknown command": HEADER.pack(0x41414141, 0, 0, 0, 0, 0x41414141 ^ 0xFFFFFFFF),
    "a payload of 4 GiB": HEADER.pack(CNXN, VERSION, 4096, 0xFFFFFFFF, 0, CNXN ^ 0xFFFFFFFF),
    "a payload one byte too long": HEADER.pack(CNXN, VERSION, 4096, MAX_PAYLOAD + 1, 0, CNXN ^ 0xFFFFFFFF),
    "a stream before the handshake": Packet(OPEN, 1, 0, b"shell:id\0").pack(),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_adb_ends_the_connection(peer, name: str) -> None:
    other = peer()
    other.send(BAD[name])
    other.socket.shutdown(socket.SHUT_WR)
    assert other.read(1) == b""


def test_a_payload_cut_short(peer) -> None:
    other = peer()
    other.greet()
    other.send(Packet(OPEN, 1, 0, b"shell:id\0").pack()[:-3])
    other.socket.shutdown(socket.SHUT_WR)
    assert other.read(1) == b""


@pytest.mark.parametrize("service", [b"", b"reboot:", b"tcp:5037", b"nonsense", b"\xff\xfe", b"shell", b"x" * 100_000])
def test_an_unknown_service_is_refused(peer, service: bytes) -> None:
    other = peer()
    other.greet()
    answer = other.open(service, local=7)
    assert (answer.command, answer.arg0, answer.arg1) == (CLSE, 0, 7)


def test_messages_for_streams_that_are_not_there(peer) -> None:
    other = peer()
    other.greet()
    for packet in (
        Packet(OKAY, 5, 99),
        Packet(CLSE, 5, 99),
        Packet(packets.AUTH, 2, 0, b"key"),
        Packet(packets.STLS, 1, 0),
    ):
        other.send(packet)
    other.send(Packet(WRTE, 5, 99, b"data"))
    answer = other.receive()
    assert answer is not None
    assert (answer.command, answer.arg1) == (CLSE, 5)


def test_exec_over_a_bare_connection(peer) -> None:
    other = peer()
    other.greet()
    assert other.run(b"exec:printf 'a\\000b\\r\\n'") == b"a\0b\r\n"


def test_a_small_payload_limit_of_the_peer_is_kept(peer) -> None:
    other = peer()
    other.greet(max_payload=4096)
    opened = other.open(b"exec:head -c 10000 /dev/zero")
    sizes = []
    while (packet := other.receive()) is not None and packet.command != CLSE:
        sizes.append(len(packet.payload))
        other.send(Packet(OKAY, 1, opened.arg0))
    assert sum(sizes) == 10000
    assert max(sizes) <= 4096


def test_old_peers_get_payload_sums(peer) -> None:
    other = peer()
    other.greet(version=0x01000000)
    opened = other.open(b"exec:echo sum")
    header = other.read(HEADER.size)
    command, _, _, length, total, _ = HEADER.unpack(header)
    payload = other.read(length)
    assert (command, payload, total) == (WRTE, b"sum\n", sum(payload))
    assert opened.command == OKAY


def test_nothing_is_sent_before_it_is_acknowledged(peer) -> None:
    other = peer()
    other.greet(max_payload=1000)
    other.open(b"exec:head -c 5000 /dev/zero")
    first = other.receive()
    assert first is not None
    assert len(first.payload) == 1000
    other.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        other.receive()


def test_a_flood_without_waiting_is_cut_off(peer) -> None:
    other = peer()
    other.greet()
    opened = other.open(b"exec:sleep 60")
    block = Packet(WRTE, 1, opened.arg0, bytes(MAX_PAYLOAD)).pack()
    with pytest.raises(ConnectionError):
        _send_all(other, [block] * 64)


def test_too_many_streams_are_refused(peer) -> None:
    other = peer()
    other.greet()
    commands = [other.open(b"sync:", local=number).command for number in range(1, 300)]
    assert commands.count(OKAY) == 256
    assert commands[-1] == CLSE


def _send_all(other: Peer, messages: list[bytes]) -> None:
    for message in messages:
        other.send(message)


def _request(name: bytes, argument: bytes) -> bytes:
    return struct.pack("<4sI", name, len(argument)) + argument


SYNC = {
    "an unknown request": _request(b"NOPE", b"/data"),
    "a path too long": struct.pack("<4sI", b"STAT", 5000) + b"x" * 5000,
    "a length beyond all bounds": struct.pack("<4sI", b"SEND", 0xFFFFFFFF),
    "a send without mode": _request(b"SEND", b"/data/local/tmp/x") + struct.pack("<4sI", b"DONE", 0),
    "a send with a mode that is none": _request(b"SEND", b"/data/local/tmp/x,rwx") + struct.pack("<4sI", b"DONE", 0),
    "a block too long": _request(b"SEND", b"/data/local/tmp/x,33188")
    + struct.pack("<4sI", b"DATA", 65537)
    + bytes(65537),
    "no data message": _request(b"SEND", b"/data/local/tmp/x,33188") + b"WHAT\0\0\0\0",
    "a NUL in the path": _request(b"RECV", b"/data/\0/x"),
    "an empty path": _request(b"RECV", b""),
    "a relative path that leads up": _request(b"RECV", b"../../../../etc/shadow"),
    "a folder": _request(b"RECV", b"/data"),
    "a device": _request(b"RECV", b"/dev/zero"),
}


@pytest.mark.parametrize("name", SYNC)
def test_bad_file_requests_are_answered_with_a_reason(peer, phone: AdbDevice, name: str) -> None:
    other = peer()
    other.greet()
    answer = other.run(b"sync:", SYNC[name] + struct.pack("<4sI", b"QUIT", 0))
    assert answer.startswith(b"FAIL")
    assert phone.stat("/data/local/tmp/x") is None


def test_a_send_that_breaks_off_leaves_nothing(peer, phone: AdbDevice) -> None:
    other = peer()
    other.greet()
    opened = other.open(b"sync:")
    data = _request(b"SEND", b"/data/local/tmp/broken,33188") + struct.pack("<4sI", b"DATA", 1000) + bytes(1000)
    other.send(Packet(WRTE, 1, opened.arg0, data))
    assert other.receive().command == OKAY
    other.socket.close()
    for _ in range(100):
        if phone.stat("/data/local/tmp/broken") is None:
            return
    pytest.fail("half a file stayed")


def test_frames_of_a_shell_that_are_none(peer) -> None:
    other = peer()
    other.greet()
    answer = other.run(
        b"shell,v2,raw:cat",
        struct.pack("<BI", 99, 3) + b"abc" + struct.pack("<BI", 0, 2) + b"ok" + struct.pack("<BI", 4, 0),
    )
    assert answer == struct.pack("<BI", 1, 2) + b"ok" + struct.pack("<BI", 3, 1) + b"\0"
