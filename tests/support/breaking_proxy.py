"""A cable between the adb server and a device: it counts what goes to the device, and breaks or garbles it where a test wants."""

from __future__ import annotations

import contextlib
import socket
import threading


class BreakingProxy:
    """Relays a loopback port of its own to `port`.

    `break_at` are counts of bytes to the device at which every connection is cut, for good with `for_good`; `garble_at` is a count at which one
    byte is changed.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.to_device = 0
        self.break_at: list[int] = []
        self.garble_at: int | None = None
        self.for_good = False
        self.seen: list[bytes] | None = None
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def serial(self) -> str:
        """adb's serial of the device behind it."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """End everything."""
        self._listener.close()
        self.cut()

    def mend(self) -> None:
        """Take connections again, after a break for good."""
        self.for_good = False
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End every connection."""
        if self.for_good:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                server, _ = self._listener.accept()
            except OSError:
                return
            device = socket.create_connection(("127.0.0.1", self._target))
            for end in (server, device):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.append(end)
            threading.Thread(target=self._relay, args=(server, device, True), daemon=True).start()
            threading.Thread(target=self._relay, args=(device, server, False), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket, to_device: bool) -> None:
        try:
            while data := source.recv(1 << 14):
                if to_device:
                    data = self._meddle(data)
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)  # which the other thread notices; of a close it would not
                end.close()

    def _meddle(self, data: bytes) -> bytes:
        before, self.to_device = self.to_device, self.to_device + len(data)
        if self.seen is not None:
            self.seen.append(data)
        if self.garble_at is not None and self.to_device > self.garble_at:
            place = max(0, min(len(data) - 1, self.garble_at - before))
            data = data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]
            self.garble_at = None
        if self.break_at and self.to_device > self.break_at[0]:
            self.break_at.pop(0)
            self.cut()
            raise OSError
        return data
