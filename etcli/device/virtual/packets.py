"""The messages of the ADB transport: 24-byte headers, payloads, and what makes one malformed.

Facts are from AOSP's protocol description (`packages/modules/adb/protocol.txt`): six little-endian words (command, two arguments,
payload length, payload sum, command with all bits inverted). From version 0x01000001 on the sum is not checked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

VERSION_WITH_SUMS = 0x01000000
VERSION = 0x01000001
MAX_PAYLOAD = 1 << 20
"""Bytes; the largest payload that current adb sends and takes."""
OLD_MAX_PAYLOAD = 4096
"""The same of daemons before Android 6."""

HEADER = struct.Struct("<6I")


def _word(name: bytes) -> int:
    return int.from_bytes(name, "little")


CNXN = _word(b"CNXN")
OPEN = _word(b"OPEN")
OKAY = _word(b"OKAY")
WRTE = _word(b"WRTE")
CLSE = _word(b"CLSE")
AUTH = _word(b"AUTH")
STLS = _word(b"STLS")
_KNOWN = frozenset((CNXN, OPEN, OKAY, WRTE, CLSE, AUTH, STLS))


class MalformedPacket(Exception):
    """The other side does not speak the ADB transport protocol; the connection cannot go on."""


@dataclass(frozen=True)
class Packet:
    """One message."""

    command: int
    arg0: int
    arg1: int
    payload: bytes = b""

    def pack(self, *, version: int = VERSION) -> bytes:
        """The message as bytes for a peer of `version`."""
        total = sum(self.payload) & 0xFFFFFFFF if version <= VERSION_WITH_SUMS else 0
        header = HEADER.pack(self.command, self.arg0, self.arg1, len(self.payload), total, self.command ^ 0xFFFFFFFF)
        return header + self.payload


def read_packet(read: Callable[[int], bytes], *, most: int = MAX_PAYLOAD, check_sum: bool = False) -> Packet | None:
    """The next message, or None when the connection ended between two.

    Args:
        read: gives exactly that many bytes, or fewer at the end of the connection.
        most: bytes of the largest payload that is taken.
        check_sum: compare the payload with its sum, as daemons of version 0x01000000 do.

    Raises:
        MalformedPacket: a header that is no header, an unknown command, a payload too long, cut short or of another sum.
    """
    header = read(HEADER.size)
    if not header:
        return None
    if len(header) < HEADER.size:
        raise MalformedPacket("the connection ended inside a header")
    command, arg0, arg1, length, total, inverted = HEADER.unpack(header)
    if command ^ 0xFFFFFFFF != inverted or command not in _KNOWN:
        raise MalformedPacket(f"not an ADB message: {header[:4]!r}")
    if length > most:
        raise MalformedPacket(f"a payload of {length} bytes, at most {most} are allowed")
    payload = read(length) if length else b""
    if len(payload) < length:
        raise MalformedPacket("the connection ended inside a payload")
    if check_sum and sum(payload) & 0xFFFFFFFF != total:
        raise MalformedPacket("a payload of another sum than its header says")
    return Packet(command, arg0, arg1, payload)
