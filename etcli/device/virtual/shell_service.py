"""The services `shell` and `exec`: a command of the device with its outputs and status carried over one stream.

`shell,v2` frames them: one byte of kind, four of length (little-endian), then the data (facts from AOSP's `shell_protocol.h`).
`exec:` and `shell:` without v2 are raw bytes, both outputs in one, the status not told.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import select
import signal
import struct
import termios
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from etcli.device.virtual.sandbox import Command, CommandFailed, Sandbox
from etcli.device.virtual.transport import Stream, StreamClosed

_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN, _WINDOW_SIZE = range(6)
_FRAME = struct.Struct("<BI")
_BLOCK = 64 * 1024
_MAX_FRAME = 16 << 20

_GRACE_SECONDS = 0.5
"""From SIGHUP to SIGKILL when a stream closes."""
_RAW_GRACE_SECONDS = 10.0
"""From the end of a raw stream to SIGHUP: closing it is how `adb exec-in` says that its data is complete."""
_LOOK_SECONDS = 0.5
"""How often a stream that is silent is looked at for having been closed."""


@dataclass(frozen=True)
class ShellRequest:
    """What a shell service name asks for."""

    text: str
    framed: bool
    terminal: bool


def parse_shell(service: str, *, old: bool = False) -> ShellRequest | None:
    """The request of a service named `shell[,OPTION...]:TEXT` or `exec:TEXT`, or None for another service.

    Options are `v2`, `raw`, `pty` and `TERM=...`; an empty text is an interactive shell, on a terminal unless `raw` is asked for. An `old`
    daemon knows no options and gives every shell a terminal, which ends lines with a carriage return too.
    """
    head, colon, text = service.partition(":")
    kind, *options = head.split(",")
    if not colon or kind not in ("shell", "exec") or (options and (old or kind == "exec")):
        return None
    if old:
        return ShellRequest(text, False, kind == "shell")
    terminal = kind == "shell" and ("pty" in options or (not text and "raw" not in options))
    return ShellRequest(text, "v2" in options, terminal)


def serve_shell(stream: Stream, sandbox: Sandbox, request: ShellRequest) -> None:
    """Run the command until it has ended or the stream closes, which ends it and everything it started."""
    wires = _terminal_wires() if request.terminal else _pipe_wires(separate=request.framed)
    with wires:
        try:
            command = sandbox.start(request.text, wires.inside, terminal=request.terminal)
        except CommandFailed as error:
            _refuse(stream, request, str(error))
            return
        wires.close_inside()
        try:
            _relay(stream, request, wires, command)
        finally:
            sandbox.forget(command)


class _Wires(contextlib.ExitStack):
    """The descriptors of a command: three for it, one that feeds it, and those that it writes to, by kind of frame."""

    def __init__(self, inside: tuple[int, int, int], feed: int, outputs: dict[int, int]) -> None:
        super().__init__()
        self.inside = inside
        self.feed = feed
        self.outputs = outputs
        for descriptor in outputs:
            self.callback(os.close, descriptor)
        self._inside = contextlib.ExitStack()
        for descriptor in set(inside):
            self._inside.callback(os.close, descriptor)
        self.push(self._inside)

    def close_inside(self) -> None:
        """Leave the command's ends to the command."""
        self._inside.close()


def _pipe_wires(*, separate: bool) -> _Wires:
    their_in, feed = os.pipe()
    out, their_out = os.pipe()
    outputs = {out: _STDOUT}
    their_err = their_out
    if separate:
        err, their_err = os.pipe()
        outputs[err] = _STDERR
    return _Wires((their_in, their_out, their_err), feed, outputs)


def _terminal_wires() -> _Wires:
    ours, theirs = os.openpty()
    return _Wires((theirs, theirs, theirs), os.dup(ours), {ours: _STDOUT})


def _relay(stream: Stream, request: ShellRequest, wires: _Wires, command: Command) -> None:
    patience = 0.0 if request.framed or request.terminal else _RAW_GRACE_SECONDS
    closing = _Closing(stream, command, patience)
    feed = functools.partial(_feed_frames, terminal=request.terminal) if request.framed else _feed_bytes
    threading.Thread(target=feed, args=(stream, wires.feed), daemon=True).start()
    with contextlib.suppress(StreamClosed):
        for kind, data in _outputs(wires.outputs, closing):
            stream.write(_FRAME.pack(kind, len(data)) + data if request.framed else data)
        while (status := command.wait(_LOOK_SECONDS)) is None and not closing.due:
            pass
        if request.framed and status is not None:
            stream.write(_FRAME.pack(_EXIT, 1) + bytes([status & 0xFF]))
    if stream.closed:
        closing.finish()


class _Closing:
    """What follows when the other side closes the stream: `patience` seconds later the command is ended."""

    def __init__(self, stream: Stream, command: Command, patience: float) -> None:
        self._command = command
        self._patience = patience
        self._since: float | None = None
        stream.on_close(self._closed)

    @property
    def due(self) -> bool:
        """Whether nobody waits for the command any more."""
        return self._since is not None and time.monotonic() - self._since >= self._patience

    def finish(self) -> None:
        """Wait out the patience, then end the command's tree."""
        while not self.due and self._command.wait(_LOOK_SECONDS) is None:
            pass
        if not self._patience or self._command.wait(0) is None:
            self._command.signal(signal.SIGHUP)
            time.sleep(_GRACE_SECONDS)
            self._command.signal(signal.SIGKILL)

    def _closed(self) -> None:
        self._since = time.monotonic()
        if not self._patience:
            self._command.signal(signal.SIGHUP)


def _outputs(outputs: dict[int, int], closing: _Closing) -> Iterator[tuple[int, bytes]]:
    """What the command writes, with the kind of frame, until it has closed every output or nobody waits for it."""
    poll = select.poll()
    for descriptor in outputs:
        poll.register(descriptor, select.POLLIN)
    left = len(outputs)
    while left and not closing.due:
        for descriptor, _ in poll.poll(_LOOK_SECONDS * 1000):
            try:
                data = os.read(descriptor, _BLOCK)
            except OSError:  # EIO: nobody holds the other side of a terminal any more
                data = b""
            if data:
                yield outputs[descriptor], data
            else:
                poll.unregister(descriptor)
                left -= 1


def _feed_frames(stream: Stream, feed: int, *, terminal: bool) -> None:
    open_ = True
    try:
        while True:
            kind, size = _FRAME.unpack(stream.read_exactly(_FRAME.size))
            if size > _MAX_FRAME:
                return
            data = stream.read_exactly(size)
            if kind == _STDIN and open_:
                open_ = _write_all(feed, data)
            elif kind == _CLOSE_STDIN and open_ and not terminal:
                open_ = False
                os.close(feed)
                feed = -1
            elif kind == _WINDOW_SIZE and terminal:
                _resize(feed, data)
    except StreamClosed:
        pass
    finally:
        if feed >= 0:
            os.close(feed)


def _feed_bytes(stream: Stream, feed: int) -> None:
    open_ = True
    try:
        while data := stream.read():
            open_ = open_ and _write_all(feed, data)
    finally:
        os.close(feed)


def _write_all(descriptor: int, data: bytes) -> bool:
    """Write `data`; False when the command does not read any more."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        return False
    return True


def _resize(terminal: int, data: bytes) -> None:
    """Give a terminal the size in `data`: `ROWSxCOLUMNS,XPIXELSxYPIXELS`."""
    with contextlib.suppress(ValueError, OSError, struct.error):
        rows, columns = data.rstrip(b"\0").split(b",")[0].split(b"x")
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", int(rows), int(columns), 0, 0))


def _refuse(stream: Stream, request: ShellRequest, reason: str) -> None:
    line = f"{reason}\n".encode()
    if request.framed:
        stream.write(_FRAME.pack(_STDERR, len(line)) + line + _FRAME.pack(_EXIT, 1) + bytes([126]))
    else:
        stream.write(line)
