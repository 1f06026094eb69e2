"""Text out of ids one at a time: what was given out never changes, and all of it together is what `decode` gives."""

from __future__ import annotations

import codecs
import functools
import re
from collections.abc import Callable, Collection, Sequence

_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class ByteStream:
    """For byte-level BPE, whose tokens are runs of bytes: bytes of an unfinished character wait for the rest of it.

    Args:
        piece: the bytes of an id, None for one that gives no text: a special token, or an id that the vocabulary lacks.
    """

    def __init__(self, piece: Callable[[int], bytes | None]) -> None:
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """See `TextStream.push`."""
        piece = self._piece(token)
        return self._decoder.decode(piece) if piece else ""

    def finish(self) -> str:
        """See `TextStream.finish`."""
        return self._decoder.decode(b"", final=True)


class WindowStream:
    """For every other decoder: decodes the ids since the last whole piece of text behind those before, and gives out the difference.

    A run of byte tokens (`<0xE6>`) is held back until it ends, since its last byte decides how all of it is shown.

    Args:
        decode: text of ids.
        piece: the vocabulary's text of an id, None for an id it lacks.
        skipped: ids that give no text (special tokens).
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], piece: Callable[[int], str | None], skipped: Collection[int]
    ) -> None:
        self._decode, self._piece, self._skipped = decode, piece, skipped
        self._before: list[int] = []
        self._pending: list[int] = []

    def push(self, token: int) -> str:
        """See `TextStream.push`."""
        piece = None if token < 0 or token in self._skipped else self._piece(token)
        if piece is None:
            return ""
        whole = not _BYTE_TOKEN.fullmatch(piece)
        text = ""
        if whole and self._pending:
            text = self._give()
        self._pending.append(token)
        return text + (self._give() if whole else "")

    def finish(self) -> str:
        """See `TextStream.finish`."""
        return self._give() if self._pending else ""

    def _give(self) -> str:
        start = len(self._decode(self._before)) if self._before else 0
        text = self._decode(self._before + self._pending)[start:]
        self._before, self._pending = self._pending, []
        return text


@functools.lru_cache(maxsize=1)
def byte_of_char() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes: those that print as themselves, and from U+0100 on the rest in order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    return table | {chr(256 + index): byte for index, byte in enumerate(others)}


def piece_bytes(piece: str) -> bytes:
    """As the `ByteLevel` decoder of the tokenizers package does: a token with any other character stands for its own letters."""
    table = byte_of_char()
    if all(char in table for char in piece):
        return bytes(table[char] for char in piece)
    return piece.encode()
