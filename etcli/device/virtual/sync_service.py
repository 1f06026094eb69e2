"""The service `sync:`: files sent, received, examined and listed.

Requests are a four-letter id, a length (32 bits, little-endian) and a path; facts from AOSP's `SYNC.TXT` and `file_sync_protocol.h`. `SND2`
and `RCV2` are followed by a second message with the file's mode and flags; no compression is offered, so flags are 0.
After a failed SEND the rest of its data is read and dropped, as clients send it without waiting.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from collections.abc import Callable

from etcli.device.virtual.transport import Stream, StreamClosed
from etcli.device.virtual.tree import Tree

_BLOCK = 64 * 1024
_MAX_PATH = 1024
_HEAD = struct.Struct("<4sI")
_STAT_V1 = struct.Struct("<4sIII")
_DENT_V1 = struct.Struct("<4sIIII")
_STAT_V2 = struct.Struct("<4sIQQIIIIQqqq")
_DENT_V2 = struct.Struct("<4sIQQIIIIQqqqI")
_SEND_V2 = struct.Struct("<4sII")
_RECEIVE_V2 = struct.Struct("<4sI")
_MAX_LINK = 4096
_MAX_MODE = 0xFFFFFFFF


class SyncService:
    """Serves one sync stream over the files of `tree`; a sync stream takes any number of requests. An `old` service knows those of version 1."""

    def __init__(self, stream: Stream, tree: Tree, *, old: bool = False) -> None:
        self._stream = stream
        self._tree = tree
        self._mtime = 0
        self._complete = True
        self._requests: dict[bytes, Callable[[str], None]] = {
            b"STAT": self._stat_v1,
            b"LIST": self._list_v1,
            b"SEND": self._send_v1,
            b"RECV": self._receive,
        }
        if not old:
            self._requests |= {
                b"LST2": self._lstat_v2,
                b"STA2": self._stat_v2,
                b"LIS2": self._list_v2,
                b"SND2": self._send_v2,
                b"RCV2": self._receive_v2,
            }

    def serve(self) -> None:
        """Answer requests until QUIT, the end of the stream, or one that is none."""
        while True:
            try:
                name, length = _HEAD.unpack(self._stream.read_exactly(_HEAD.size))
            except StreamClosed:
                return
            if name == b"QUIT":
                return
            if name not in self._requests or length > _MAX_PATH:
                self._fail("invalid path" if name in self._requests else f"unknown sync command {name!r}")
                return
            path = os.fsdecode(self._stream.read_exactly(length))
            self._requests[name](path)

    def _fail(self, reason: str) -> None:
        text = os.fsencode(reason)
        self._stream.write(_HEAD.pack(b"FAIL", len(text)) + text)

    def _stat_v1(self, path: str) -> None:
        found = None
        with contextlib.suppress(OSError):
            found = self._tree.lstat(path)
        mode, size, mtime = (found.st_mode, found.st_size, int(found.st_mtime)) if found else (0, 0, 0)
        self._stream.write(_STAT_V1.pack(b"STAT", mode, size & 0xFFFFFFFF, mtime & 0xFFFFFFFF))

    def _lstat_v2(self, path: str) -> None:
        self._answer_stat(b"LST2", self._tree.lstat, path)

    def _stat_v2(self, path: str) -> None:
        self._answer_stat(b"STA2", self._tree.stat, path)

    def _answer_stat(self, name: bytes, look: Callable[[str], os.stat_result], path: str) -> None:
        try:
            fields = _fields_v2(look(path))
        except OSError as error:
            self._stream.write(_STAT_V2.pack(name, error.errno or errno.EIO, *(0,) * 10))
        else:
            self._stream.write(_STAT_V2.pack(name, 0, *fields))

    def _list_v1(self, path: str) -> None:
        with contextlib.suppress(OSError):
            for name, found in self._tree.entries(path):
                encoded = os.fsencode(name)
                head = _DENT_V1.pack(
                    b"DENT", found.st_mode, found.st_size & 0xFFFFFFFF, int(found.st_mtime) & 0xFFFFFFFF, len(encoded)
                )
                self._stream.write(head + encoded)
        self._stream.write(_DENT_V1.pack(b"DONE", 0, 0, 0, 0))

    def _list_v2(self, path: str) -> None:
        with contextlib.suppress(OSError):
            for name, found in self._tree.entries(path):
                encoded = os.fsencode(name)
                self._stream.write(_DENT_V2.pack(b"DNT2", 0, *_fields_v2(found), len(encoded)) + encoded)
        self._stream.write(_DENT_V2.pack(b"DONE", *(0,) * 12))

    def _receive(self, path: str) -> None:
        try:
            file = self._tree.open_read(path)
        except OSError as error:
            self._fail(f"open failed: {error.strerror}")
            return
        try:
            while data := os.read(file, _BLOCK):
                self._stream.write(_HEAD.pack(b"DATA", len(data)) + data)
        except OSError as error:
            self._fail(f"read failed: {error.strerror}")
            return
        finally:
            os.close(file)
        self._stream.write(_HEAD.pack(b"DONE", 0))

    def _receive_v2(self, path: str) -> None:
        name, flags = _RECEIVE_V2.unpack(self._stream.read_exactly(_RECEIVE_V2.size))
        if name != b"RCV2" or flags:
            self._fail("unsupported flags of RCV2")
            raise StreamClosed
        self._receive(path)

    def _send_v1(self, request: str) -> None:
        path, comma, mode_text = request.rpartition(",")
        well_formed = comma and mode_text.isascii() and mode_text.isdigit()
        mode = int(mode_text) if well_formed else None
        self._send(path, mode if mode is None or mode <= _MAX_MODE else None)

    def _send_v2(self, path: str) -> None:
        name, mode, flags = _SEND_V2.unpack(self._stream.read_exactly(_SEND_V2.size))
        if name != b"SND2" or flags:
            self._fail("unsupported flags of SND2")
            raise StreamClosed
        self._send(path, mode)

    def _send(self, path: str, mode: int | None) -> None:
        self._complete = False
        failure: str | None = "missing , in path"
        try:
            if mode is not None:
                failure = self._receive_link(path) if stat.S_ISLNK(mode) else self._receive_file(path, mode & 0o777)
            if failure is None:
                self._stream.write(_HEAD.pack(b"OKAY", 0))
                return
            self._fail(failure)
            while not self._complete:
                self._next_block()
        except ValueError as error:
            self._fail(str(error))
            raise StreamClosed from None

    def _next_block(self) -> bytes | None:
        """The next piece of a file being sent, or None after the last, whose time is then in `self._mtime`.

        Raises:
            ValueError: the data is not framed.
        """
        name, length = _HEAD.unpack(self._stream.read_exactly(_HEAD.size))
        if name == b"DONE":
            self._mtime = length
            self._complete = True
            return None
        if name != b"DATA" or length > _BLOCK:
            raise ValueError("invalid data message")
        return self._stream.read_exactly(length)

    def _receive_file(self, path: str, mode: int) -> str | None:
        """Take a file's data; returns why it failed, nothing of it then left in the tree."""
        try:
            file = self._tree.create(path, mode)
        except OSError as error:
            return f"couldn't create file: {error.strerror}"
        whole = False
        try:
            while (data := self._next_block()) is not None:
                view = memoryview(data)
                while view:
                    view = view[os.write(file, view) :]
            os.utime(file, (self._mtime, self._mtime))
            whole = True
        except OSError as error:
            return f"write failed: {error.strerror}"
        finally:
            os.close(file)
            if not whole:
                with contextlib.suppress(OSError):
                    self._tree.remove(path)
        return None

    def _receive_link(self, path: str) -> str | None:
        target = b""
        try:
            while (data := self._next_block()) is not None:
                target += data
                if len(target) > _MAX_LINK:
                    return "the link's target is too long"
            self._tree.link(os.fsdecode(target.rstrip(b"\0")), path)
        except OSError as error:
            return f"couldn't create symlink: {error.strerror}"
        return None


def _fields_v2(found: os.stat_result) -> tuple[int, ...]:
    """dev, ino, mode, nlink, uid, gid, size, atime, mtime, ctime; times in seconds."""
    return (
        found.st_dev,
        found.st_ino,
        found.st_mode,
        found.st_nlink & 0xFFFFFFFF,
        found.st_uid,
        found.st_gid,
        found.st_size,
        int(found.st_atime),
        int(found.st_mtime),
        int(found.st_ctime),
    )
