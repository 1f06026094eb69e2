"""The client's side of adb's shell: a program on the device with separate outputs and an exit status.

Since Android 7 the shell protocol carries them: frames of one byte of kind, four of length (little-endian), data; facts from AOSP's
`shell_protocol.h`. Older daemons give one stream of bytes, see `shell_v1.py`, which makes the same frames of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from etcli.common.errors import DeviceError
from etcli.device.base import ShellResult
from etcli.device.wire import Wire

SERVICE = "shell,v2,raw:"
"""Followed by the command's text: no terminal on the device, so that bytes arrive as they were written."""

STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN = range(5)
_FRAME = struct.Struct("<BI")
_MAX_FRAME = 16 << 20
_MAX_OUTPUT = 64 << 20
_MAX_LINE = 1 << 20
_KEPT_STDERR = 1 << 20
_HUNG_UP = 129

Frames = Iterator[tuple[int, bytes]]
"""Kind and data of each frame, until the connection ends or was closed from here. The exit status comes last."""


def frames(wire: Wire, *, close_stdin: bool = True) -> Frames:
    """The frames of the program on `wire`, whose standard input is empty, or with `close_stdin` False stays open and silent.

    Raises:
        DeviceError: the connection broke within a frame, or what came is no frame.
    """
    if close_stdin:
        wire.send(_FRAME.pack(CLOSE_STDIN, 0))
    return _read_frames(wire)


def input_frame(data: bytes) -> bytes:
    """The frame that gives a program `data`."""
    return _FRAME.pack(STDIN, len(data)) + data


def run_to_end(wire: Wire, frames: Frames, serial: str) -> ShellResult:
    """Collect what the program on `wire` prints until it ends.

    Raises:
        DeviceError: the device is gone, the time is up, or more than 64 MiB were printed.
    """
    outputs = {STDOUT: bytearray(), STDERR: bytearray()}
    for kind, data in frames:
        if kind == EXIT:
            out, err = (outputs[name].decode("utf-8", errors="replace") for name in (STDOUT, STDERR))
            return ShellResult(data[0] if data else 0, out, err)
        if kind in outputs:
            outputs[kind] += data
            if len(outputs[kind]) > _MAX_OUTPUT:
                raise DeviceError(
                    f"a command on {serial} printed more than {_MAX_OUTPUT >> 20} MiB", code="device.output_too_long"
                )
    raise wire.gone()


class ShellStream:
    """A program that runs on the device, see `etcli.device.base.Stream`. Of its stderr the last MiB is kept.

    `close` may be called from another thread than the one that reads `lines`, which then end. An old daemon sends stderr at the end.
    """

    def __init__(self, wire: Wire, frames: Frames, feed: Callable[[bytes], bytes] | None = None) -> None:
        """`feed` makes of input what goes over the wire; None where the program's input is empty."""
        self._wire = wire
        self._frames = frames
        self._feed = feed
        self._stderr = bytearray()
        self._code: int | None = None

    def lines(self) -> Iterator[str]:
        """Lines of its stdout as they arrive. One longer than 1 MiB is cut into several.

        Raises:
            DeviceError: the device went away while the program ran.
        """
        pending = bytearray()
        for kind, data in self._frames:
            if kind == STDERR:
                self._stderr += data
                del self._stderr[:-_KEPT_STDERR]
            elif kind == EXIT:
                self._code = data[0] if data else 0
                break
            elif kind == STDOUT:
                pending += data
                if b"\n" in data:  # a line that comes in many small pieces is not looked through again with each
                    *whole, rest = pending.split(b"\n")
                    pending = rest
                    for line in whole:
                        yield _text(line)
                if len(pending) > _MAX_LINE:
                    yield _text(pending)
                    pending = bytearray()
        if pending:
            yield _text(pending)
        if self._code is None:
            if not self._wire.closed:
                raise self._wire.gone()
            self._code = _HUNG_UP

    @property
    def stderr(self) -> str:
        """What it has written to stderr so far."""
        return self._stderr.decode("utf-8", errors="replace")

    @property
    def code(self) -> int:
        """Its exit status; 129 (ended by SIGHUP) when it was closed from here.

        Raises:
            RuntimeError: it still runs.
        """
        if self._code is None:
            if self._wire.closed:
                return _HUNG_UP
            raise RuntimeError("the program has not ended")
        return self._code

    def write(self, data: bytes) -> None:
        """Give it `data` on its standard input.

        Raises:
            DeviceError: the device is gone.
            RuntimeError: it was not opened to be fed.
        """
        if self._feed is None:
            raise RuntimeError("the program's standard input is empty")
        self._wire.send(self._feed(data))

    def close(self) -> None:
        """End the program on the device, if it still runs."""
        self._wire.close()


def _read_frames(wire: Wire) -> Frames:
    while True:
        start = wire.receive(_FRAME.size)
        if not start:
            return
        if len(start) < _FRAME.size:
            start += wire.receive_exactly(_FRAME.size - len(start))
        kind, length = _FRAME.unpack(start)
        if length > _MAX_FRAME:
            raise DeviceError(f"the device sent a frame of {length} bytes", code="device.protocol")
        yield kind, wire.receive_exactly(length)


def _text(line: bytearray) -> str:
    return line.decode("utf-8", errors="replace").removesuffix("\r")
