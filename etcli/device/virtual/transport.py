"""One connection of an adb server to the device: the handshake and the streams that share it.

A thread reads the connection, each stream's service runs in a thread of its own. Every WRTE is answered by an OKAY before the next one
may come, in both directions, so that a slow reader holds back its own stream and no other.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable

from etcli.device.virtual.packets import (
    CLSE,
    CNXN,
    MAX_PAYLOAD,
    OKAY,
    OPEN,
    VERSION,
    VERSION_WITH_SUMS,
    WRTE,
    MalformedPacket,
    Packet,
    read_packet,
)

_log = logging.getLogger(__name__)
_MAX_STREAMS = 256
_MAX_AHEAD = 16 << 20
"""Bytes of one stream kept unread. One message at a time is the rule, but when its client hangs up, the stock adb server sends what
it has left without waiting."""

Service = Callable[["Stream"], None]
"""What serves one stream; it returns when it is done, and the stream is closed after it."""


class StreamClosed(Exception):
    """The other side closed the stream, or the connection is gone."""


class Stream:
    """A two-way byte stream inside a connection."""

    def __init__(self, transport: Transport, local: int, remote: int) -> None:
        self._transport = transport
        self._local = local
        self._remote = remote
        self._changed = threading.Condition()
        self._arrived: deque[bytes] = deque()
        self._pending = b""
        self._may_send = True
        self._closed = False
        self._on_close: list[Callable[[], None]] = []

    def read(self) -> bytes:
        """The next bytes that arrive, in pieces as they were sent; empty when the stream is closed and everything was read."""
        if self._pending:
            data, self._pending = self._pending, b""
            return data
        with self._changed:
            while not self._arrived:
                if self._closed:
                    return b""
                self._changed.wait()
            data = self._arrived.popleft()
            alive = not self._closed
        if alive:
            self._transport.send(Packet(OKAY, self._local, self._remote))
        return data

    def read_exactly(self, count: int) -> bytes:
        """Exactly `count` bytes.

        Raises:
            StreamClosed: the stream ended before.
        """
        parts = []
        while count > 0:
            data = self.read()
            if not data:
                raise StreamClosed
            parts.append(data[:count])
            self._pending = data[count:]
            count -= len(parts[-1])
        return b"".join(parts)

    def write(self, data: bytes) -> None:
        """Send all of `data`, waiting until the other side has taken what was sent before.

        Raises:
            StreamClosed: the other side is gone.
        """
        size = self._transport.max_payload
        for start in range(0, len(data), size):
            with self._changed:
                while not self._may_send and not self._closed:
                    self._changed.wait()
                if self._closed:
                    raise StreamClosed
                self._may_send = False
            self._transport.send(Packet(WRTE, self._local, self._remote, data[start : start + size]))

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the other side closes the stream, at once if it already has."""
        with self._changed:
            if not self._closed:
                self._on_close.append(callback)
                return
        callback()

    @property
    def closed(self) -> bool:
        """Whether the other side closed the stream."""
        return self._closed

    def data_arrived(self, data: bytes) -> None:
        """For the connection's reader: take a payload.

        Raises:
            MalformedPacket: more was sent than the protocol allows before it is acknowledged.
        """
        with self._changed:
            if sum(map(len, self._arrived)) > _MAX_AHEAD:
                raise MalformedPacket("data is sent without waiting for acknowledgements")
            self._arrived.append(data)
            self._changed.notify_all()

    def acknowledged(self) -> None:
        """For the connection's reader: the other side takes more."""
        with self._changed:
            self._may_send = True
            self._changed.notify_all()

    def shut(self) -> None:
        """For the connection's reader: the other side closed the stream, or the connection ended."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            callbacks, self._on_close = self._on_close, []
            self._changed.notify_all()
        for callback in callbacks:
            callback()


class Transport:
    """A connection from handshake to end.

    Args:
        banner: what the device says of itself in its CNXN message.
        open_service: maps a service name to what serves it; None refuses it.
        version: the newest transport version that is spoken. At 0x01000000 payloads bear sums, which are checked.
        max_payload: bytes of the largest message that is sent and taken.
    """

    def __init__(
        self,
        connection: socket.socket,
        *,
        banner: bytes,
        open_service: Callable[[str], Service | None],
        version: int = VERSION,
        max_payload: int = MAX_PAYLOAD,
    ) -> None:
        self.max_payload = max_payload
        self._own_version, self._own_max_payload = version, max_payload
        self._connection = connection
        self._banner = banner
        self._open_service = open_service
        self._version = version
        self._greeted = False
        self._sending = threading.Lock()
        self._lock = threading.Lock()
        self._streams: dict[int, Stream] = {}
        self._last_id = 0

    def run(self) -> None:
        """Serve the connection until it ends. A malformed message ends it; nothing that a peer sends raises from here."""
        with self._connection, self._connection.makefile("rb", buffering=1 << 16) as source:
            try:
                while (packet := self._next(source.read)) is not None:
                    self._handle(packet)
            except MalformedPacket as error:
                _log.warning("connection dropped: %s", error)
            except OSError as error:
                _log.info("connection lost: %s", error)
            finally:
                self._close_streams()

    def drop(self) -> None:
        """End the connection from another thread; nothing is sent over it any more."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def send(self, packet: Packet) -> None:
        """Send a message; if the connection is gone the reader notices, and nothing happens here."""
        data = packet.pack(version=self._version)
        with self._sending, contextlib.suppress(OSError):
            self._connection.sendall(data)

    def _next(self, read: Callable[[int], bytes]) -> Packet | None:
        # The first message is the peer's CNXN, which may be as long as it likes; whoever speaks 0x01000000 adds sums to every message.
        most = self._own_max_payload if self._greeted else MAX_PAYLOAD
        return read_packet(read, most=most, check_sum=self._own_version <= VERSION_WITH_SUMS and self._greeted)

    def _handle(self, packet: Packet) -> None:
        if packet.command == CNXN:
            self._greet(packet)
        elif not self._greeted:
            raise MalformedPacket("no CNXN came first")
        elif packet.command == OPEN:
            self._open(packet)
        elif packet.command in (OKAY, WRTE, CLSE):
            self._pass_on(packet)
        else:
            _log.info("message %#x ignored: neither keys nor TLS are asked for", packet.command)

    def _greet(self, packet: Packet) -> None:
        self._close_streams()
        self._version = min(packet.arg0, self._own_version)
        self.max_payload = min(max(packet.arg1, 1), self._own_max_payload)
        self._greeted = True
        self.send(Packet(CNXN, self._own_version, self._own_max_payload, self._banner))

    def _open(self, packet: Packet) -> None:
        name = packet.payload.rstrip(b"\0").decode("utf-8", errors="surrogateescape")
        service = self._open_service(name) if packet.arg0 != 0 else None
        with self._lock:
            if service is not None and len(self._streams) < _MAX_STREAMS:
                self._last_id = local = self._last_id % 0x7FFFFFFF + 1
                stream = self._streams[local] = Stream(self, local, packet.arg0)
            else:
                service = None
        if service is None:
            _log.info("service refused: %.200r", name)
            self.send(Packet(CLSE, 0, packet.arg0))
            return
        self.send(Packet(OKAY, local, packet.arg0))
        threading.Thread(target=self._serve, args=(service, stream, local, packet.arg0), daemon=True).start()

    def _serve(self, service: Service, stream: Stream, local: int, remote: int) -> None:
        try:
            service(stream)
        except StreamClosed:
            pass
        except Exception:
            _log.exception("a service failed")
        with self._lock:
            self._streams.pop(local, None)
        if not stream.closed:
            self.send(Packet(CLSE, local, remote))
            stream.shut()

    def _pass_on(self, packet: Packet) -> None:
        with self._lock:
            stream = self._streams.get(packet.arg1)
        if stream is None:
            if packet.command == WRTE:
                self.send(Packet(CLSE, 0, packet.arg0))
        elif packet.command == WRTE:
            stream.data_arrived(packet.payload)
        elif packet.command == OKAY:
            stream.acknowledged()
        else:
            stream.shut()

    def _close_streams(self) -> None:
        with self._lock:
            streams = list(self._streams.values())
            self._streams.clear()
        for stream in streams:
            stream.shut()
