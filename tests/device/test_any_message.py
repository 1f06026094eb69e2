"""Whatever a peer sends, the virtual device's daemon answers or hangs up: no other exception, no file outside the tree, no message it did not check."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etcli.device.virtual import packets
from etcli.device.virtual.packets import HEADER, MalformedPacket, Packet, read_packet
from etcli.device.virtual.shell_service import parse_shell
from etcli.device.virtual.sync_service import SyncService
from etcli.device.virtual.transport import Stream, StreamClosed, Transport
from etcli.device.virtual.tree import Tree

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SLOWER = settings(QUICK, max_examples=60)

WORDS = st.one_of(st.integers(0, 0xFFFFFFFF), st.sampled_from([0, 1, 2, 0x01000000, 0x01000001, 1 << 20, 0xFFFFFFFF]))
COMMANDS = st.sampled_from(
    [packets.CNXN, packets.OPEN, packets.OKAY, packets.WRTE, packets.CLSE, packets.AUTH, packets.STLS]
)
SERVICES = st.sampled_from([b"echo:\0", b"sync:\0", b"nothing:\0", b"", b"\xff\xfe\0", b"broken:\0"])
PACKETS = st.builds(Packet, COMMANDS, WORDS, WORDS, st.one_of(st.binary(max_size=40), SERVICES))


class Source:
    """Gives bytes as a connection does: as many as were asked for, fewer at its end. It remembers the most that was asked for at once."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.most = 0

    def read(self, count: int) -> bytes:
        self.most = max(self.most, count)
        part, self.data = self.data[:count], self.data[count:]
        return part


@QUICK
@given(
    packet=PACKETS, version=st.sampled_from([packets.VERSION, packets.VERSION_WITH_SUMS]), rest=st.binary(max_size=9)
)
def test_a_message_is_read_as_it_was_written(packet: Packet, version: int, rest: bytes) -> None:
    source = Source(packet.pack(version=version) + rest)
    assert read_packet(source.read, check_sum=version == packets.VERSION_WITH_SUMS) == packet
    assert source.data == rest


@QUICK
@given(
    data=st.one_of(
        st.binary(max_size=200), st.lists(PACKETS, max_size=4).map(lambda all: b"".join(p.pack() for p in all))
    ),
    cut=st.integers(0, 250),
    most=st.integers(0, 64),
)
def test_any_bytes_are_messages_or_refused(data: bytes, cut: int, most: int) -> None:
    source = Source(data[:cut])
    with contextlib.suppress(MalformedPacket):
        while (packet := read_packet(source.read, most=most)) is not None:
            assert len(packet.payload) <= most
    assert source.most <= max(most, HEADER.size), "memory is taken for no more than is allowed"


@QUICK
@given(packet=PACKETS, place=st.integers(0, HEADER.size - 1), change=st.integers(1, 255))
def test_a_header_with_a_wrong_byte_is_another_message_or_none(packet: Packet, place: int, change: int) -> None:
    data = bytearray(packet.pack(version=packets.VERSION_WITH_SUMS))
    data[place] ^= change
    try:
        found = read_packet(Source(bytes(data)).read, check_sum=True)
    except MalformedPacket:
        found = None
    if not 4 <= place < 12:  # the two arguments mean whatever they are
        assert found is None


@QUICK
@given(
    service=st.one_of(
        st.text(max_size=30),
        st.lists(st.sampled_from(["shell", "exec", ",", "v2", "raw", "pty", ":", "TERM=x", "\0", "ls"])).map("".join),
    )
)
def test_any_service_name_is_a_command_or_not(service: str) -> None:
    for old in (False, True):
        request = parse_shell(service, old=old)
        if request is not None:
            assert service.startswith(("shell", "exec"))
            assert service.endswith(request.text)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    root = tmp_path / "root"
    (root / "data").mkdir(parents=True)
    (root / "data" / "file").write_text("inside")
    (root / "data" / "up").symlink_to("../../outside")
    (root / "data" / "absolute").symlink_to("/etc")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY)
    yield Tree(descriptor)
    os.close(descriptor)


class Recorded:
    """A stream that gives what a peer sent, and keeps what it was answered."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.answer = b""

    def read_exactly(self, count: int) -> bytes:
        if len(self._data) < count:
            raise StreamClosed
        part, self._data = self._data[:count], self._data[count:]
        return part

    def write(self, data: bytes) -> None:
        self.answer += data


def message(name: bytes, data: bytes, length: int | None = None) -> bytes:
    return struct.pack("<4sI", name, len(data) if length is None else length) + data


PATHS = st.one_of(
    st.lists(
        st.sampled_from(
            [b"/", b"data", b"..", b".", b"up", b"absolute", b"file", b"new", b"secret", b"\0", b"\xff", b"outside"]
        ),
        max_size=7,
    ).map(b"/".join),
    st.binary(max_size=20),
)
MODES = st.one_of(
    st.integers(0, 1 << 70).map(lambda mode: str(mode).encode()),
    st.sampled_from([b"33188", b"41471", b"16877", b"-1", b"rwx", b"", b"9" * 900, b"\xd9\xa3"]),
)
REQUESTS = st.one_of(
    st.builds(
        message,
        st.sampled_from([b"STAT", b"LST2", b"STA2", b"LIST", b"LIS2", b"RECV", b"SND2", b"RCV2", b"QUIT", b"NOPE"]),
        PATHS,
    ),
    st.builds(lambda path, mode: message(b"SEND", path + b"," + mode), PATHS, MODES),
    st.builds(message, st.sampled_from([b"DATA", b"DONE"]), st.binary(max_size=12), st.one_of(st.none(), WORDS)),
    st.builds(struct.Struct("<4sII").pack, st.just(b"SND2"), WORDS, st.sampled_from([0, 0, 0, 1])),
    st.builds(struct.Struct("<4sI").pack, st.just(b"RCV2"), st.sampled_from([0, 0, 1])),
    st.binary(max_size=20),
)


@settings(QUICK, max_examples=250)
@given(requests=st.lists(REQUESTS, max_size=6).map(b"".join), old=st.booleans())
def test_any_sync_requests_are_answered_and_stay_inside(requests: bytes, old: bool, tree: Tree, tmp_path: Path) -> None:
    stream = Recorded(requests)
    with contextlib.suppress(StreamClosed):  # how a stream ends
        SyncService(stream, tree, old=old).serve()  # type: ignore[arg-type]
    assert b"secret" not in stream.answer.replace(b"unknown sync command b'secr'", b"")
    assert {path.name for path in tmp_path.iterdir()} == {"root", "outside"}
    assert {path.name for path in (tmp_path / "outside").iterdir()} == {"secret"}
    assert (tmp_path / "outside" / "secret").read_text() == "secret"
    for path in (tmp_path / "root").iterdir():  # back to where it began, for the next example
        if path.name != "data":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@SLOWER
@given(sent=st.lists(st.one_of(PACKETS, PACKETS, st.binary(max_size=30)), max_size=12), greet=st.booleans())
def test_a_connection_ends_whatever_was_sent(sent: list[Packet | bytes], greet: bool, tree: Tree) -> None:
    broken = []

    def echo(stream: Stream) -> None:
        while data := stream.read():
            stream.write(data)

    def fails(stream: Stream) -> None:
        raise ZeroDivisionError

    def service(name: str) -> object:
        return {"echo:": echo, "sync:": lambda stream: SyncService(stream, tree).serve(), "broken:": fails}.get(name)

    ours, theirs = socket.socketpair()
    transport = Transport(ours, banner=b"device::", open_service=service)  # type: ignore[arg-type]

    def run() -> None:
        try:
            transport.run()
        except BaseException as error:
            broken.append(error)

    before = set(threading.enumerate())
    logging.disable(logging.CRITICAL)  # a service that fails is logged with its traceback
    try:
        thread = threading.Thread(target=run)
        thread.start()
        with theirs:
            theirs.settimeout(20)
            first = Packet(packets.CNXN, packets.VERSION, packets.MAX_PAYLOAD, b"host::").pack() if greet else b""
            with contextlib.suppress(OSError):
                theirs.sendall(first + b"".join(one if isinstance(one, bytes) else one.pack() for one in sent))
                theirs.shutdown(socket.SHUT_WR)
            while theirs.recv(1 << 16):
                pass
        thread.join(20)
        for left in set(threading.enumerate()) - before:
            left.join(20)
            assert not left.is_alive(), "a service goes on after its connection"
    finally:
        logging.disable(logging.NOTSET)
    assert not thread.is_alive()
    assert broken == []
