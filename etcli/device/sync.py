"""The client's side of adb's sync service: files sent and received in 64 KiB blocks, with the device's own words for what fails.

adbutils' own push sends 4 KiB blocks and drops the reason of a refusal, so the requests are made here. Facts from AOSP's `SYNC.TXT` and
`file_sync_protocol.h`. Version 1 of the requests is every daemon's; `STAT` has sizes of 32 bits, so a size is never taken from it.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO

from etcli.common.errors import DeviceError
from etcli.device.base import RemoteStat
from etcli.device.wire import Wire

SERVICE = "sync:"
_BLOCK = 64 * 1024
_BLOCKS = 4
"""Blocks that go to the socket at once."""
_HEAD = struct.Struct("<4sI")
_SEND_V2 = struct.Struct("<4sII")
_STAT_V1 = struct.Struct("<4sIII")
_STAT_V2 = struct.Struct("<4sIQQIIIIQqqq")
_NOT_THERE = (2, 20)  # ENOENT, ENOTDIR: the errno numbers of every Linux
_REGULAR = 0o100000
_MAX_REASON = 1 << 16


class Refused(Exception):
    """The device refused a request; the text is its own reason."""


def send_file(
    wire: Wire,
    source: BinaryIO,
    remote: str,
    *,
    mode: int,
    mtime: int,
    v2: bool = False,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write `source` to `remote`, whose parents the device makes; `progress` gets the bytes of each piece that went.

    Args:
        v2: make the request that devices with the feature `sendrecv_v2` know, whose path may hold anything.

    Raises:
        Refused: with the device's reason, as soon as it is known.
        DeviceError: the device is gone.
        OSError: `source` cannot be read.
    """
    if v2:
        _request(wire, b"SND2", remote)
        wire.send(_SEND_V2.pack(b"SND2", _REGULAR | mode, 0))
    else:
        _request(wire, b"SEND", f"{remote},{_REGULAR | mode}")
    try:
        for piece, size in _framed(source):
            if wire.has_answer():
                break
            wire.send(piece)
            if progress is not None:
                progress(size)
        else:
            wire.send(_HEAD.pack(b"DONE", mtime & 0xFFFFFFFF))
    except DeviceError as error:
        # A device that gives up may close before it has read everything; its reason is then still there to be read.
        with contextlib.suppress(DeviceError):
            _check_answer(wire)
        raise error
    _check_answer(wire)


def _framed(source: BinaryIO) -> Iterator[tuple[memoryview, int]]:
    """The file as DATA messages, several at once, with the bytes of the file in them. A piece is overwritten by the next one."""
    whole = _HEAD.size + _BLOCK
    buffer = memoryview(bytearray(_BLOCKS * whole))
    ended = False
    while not ended:
        filled = size = 0
        while filled < len(buffer):
            count = _fill(source, buffer[filled + _HEAD.size : filled + whole])
            if not count:
                ended = True
                break
            _HEAD.pack_into(buffer, filled, b"DATA", count)
            filled += _HEAD.size + count
            size += count
        if filled:
            yield buffer[:filled], size


def _fill(source: BinaryIO, space: memoryview) -> int:
    """Read into `space` until it is full or the file ends; the bytes read."""
    count = 0
    while count < len(space):
        more = source.readinto(space[count:])  # type: ignore[attr-defined]
        if not more:
            break
        count += more
    return count


def receive_file(wire: Wire, remote: str, sink: BinaryIO) -> None:
    """Copy `remote` into `sink`.

    Raises:
        Refused: with the device's reason.
        DeviceError: the device is gone.
        OSError: `sink` cannot be written.
    """
    _request(wire, b"RECV", remote)
    while True:
        name, length = _HEAD.unpack(wire.receive_exactly(_HEAD.size))
        if name == b"DATA" and length <= _BLOCK:
            sink.write(wire.receive_exactly(length))
        elif name == b"DONE":
            return
        else:
            raise _refusal(wire, name, length)


def lstat_mode(wire: Wire, remote: str) -> int | None:
    """The `st_mode` of the file itself by version 1 of the protocol; None where there is none that can be looked at.

    Raises:
        DeviceError: the device is gone.
    """
    _request(wire, b"STAT", remote)
    name, mode, _, _ = _STAT_V1.unpack(wire.receive_exactly(_STAT_V1.size))
    if name != b"STAT":
        raise DeviceError(f"the device answered {name!r} to a request for a file's state", code="device.protocol")
    return mode or None


def lstat(wire: Wire, remote: str) -> RemoteStat | None:
    """The file itself, with a size of 64 bits; None when there is none.

    Raises:
        Refused: it is there but cannot be looked at.
        DeviceError: the device is gone.
    """
    _request(wire, b"LST2", remote)
    name, number, _, _, mode, _, _, _, size, *_ = _STAT_V2.unpack(wire.receive_exactly(_STAT_V2.size))
    if name != b"LST2":
        raise DeviceError(f"the device answered {name!r} to a request for a file's state", code="device.protocol")
    if number in _NOT_THERE:
        return None
    if number:
        raise Refused(f"errno {number}")
    return RemoteStat(mode, size)


def _request(wire: Wire, name: bytes, argument: str) -> None:
    encoded = argument.encode("utf-8", errors="surrogateescape")
    wire.send(_HEAD.pack(name, len(encoded)) + encoded)


def _check_answer(wire: Wire) -> None:
    name, length = _HEAD.unpack(wire.receive_exactly(_HEAD.size))
    if name != b"OKAY":
        raise _refusal(wire, name, length)


def _refusal(wire: Wire, name: bytes, length: int) -> Exception:
    if name == b"FAIL" and length <= _MAX_REASON:
        return Refused(wire.receive_exactly(length).decode("utf-8", errors="replace"))
    return DeviceError(f"the device answered {name!r} to a file request", code="device.protocol")
