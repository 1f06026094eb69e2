"""Reading a flatbuffer that nobody vouches for: every offset is checked, and the total work is bounded.

The `flatbuffers` package trusts its input (a negative offset reads from the end, tables may share children without limit), so this
module reads the encoding itself. The encoding is that of https://flatbuffers.dev/internals: little-endian; a table starts with a signed
offset back to its vtable; a vtable is its own size, the table's size, then one 16-bit field offset each, 0 for an absent field.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final


class Malformed(Exception):
    """The bytes are not the flatbuffer they claim to be."""


class Buffer:
    """The bytes of one flatbuffer, and how much of the allowance for reading them is left.

    A whole program has fewer elements than bytes; the allowance of a few times its size lets honest files share strings and vtables but
    ends a file whose vectors point at one another.
    """

    def __init__(self, data: memoryview) -> None:
        self.data: Final = data
        self._allowance = 8 * len(data) + 4096

    def spend(self, amount: int) -> None:
        """Take `amount` bytes off the allowance.

        Raises:
            Malformed: it is used up.
        """
        self._allowance -= amount
        if self._allowance < 0:
            raise Malformed("it refers to the same parts far too often")

    def number(self, code: str, position: int) -> int:
        """The little-endian integer of `struct` code `code` at `position`.

        Raises:
            Malformed: it would lie outside the buffer.
        """
        layout = struct.Struct("<" + code)
        if position < 0 or position + layout.size > len(self.data):
            raise Malformed(f"an offset leads outside the program, to byte {position}")
        self.spend(layout.size)
        value: int = layout.unpack_from(self.data, position)[0]
        return value

    def follow(self, position: int) -> int:
        """Where the unsigned 32-bit offset at `position` leads."""
        step = self.number("I", position)
        if step == 0:
            raise Malformed("an offset leads to itself")
        return position + step

    def root(self) -> Table:
        """The root table."""
        return Table(self, self.follow(0))


class Table:
    """A table at `position`. Fields are numbered from 0 in the order of the schema."""

    def __init__(self, buffer: Buffer, position: int) -> None:
        self._buffer = buffer
        self._position = position
        self._vtable = position - buffer.number("i", position)
        self._slots = (buffer.number("H", self._vtable) - 4) // 2

    def _field(self, index: int) -> int | None:
        if index >= self._slots:
            return None
        offset = self._buffer.number("H", self._vtable + 4 + 2 * index)
        return self._position + offset if offset else None

    def number(self, index: int, code: str, default: int = 0) -> int:
        """An integer field of `struct` code `code`."""
        position = self._field(index)
        return default if position is None else self._buffer.number(code, position)

    def has(self, index: int) -> bool:
        """Whether the field is there."""
        return self._field(index) is not None

    def table(self, index: int) -> Table | None:
        """A field that is a table, or None where it is absent."""
        position = self._field(index)
        return None if position is None else Table(self._buffer, self._buffer.follow(position))

    def text(self, index: int) -> str:
        """A string field, empty where it is absent; bytes that are not UTF-8 become replacement characters."""
        start, length = self._vector(index, 1)
        return bytes(self._buffer.data[start : start + length]).decode(errors="replace")

    def length(self, index: int) -> int:
        """Number of elements of a vector of bytes, 0 where it is absent."""
        position = self._field(index)
        return 0 if position is None else self._buffer.number("I", self._buffer.follow(position))

    def numbers(self, index: int, code: str) -> tuple[int, ...]:
        """A vector of integers of `struct` code `code`, empty where it is absent."""
        start, length = self._vector(index, struct.calcsize("<" + code))
        return struct.unpack_from(f"<{length}{code}", self._buffer.data, start) if length else ()

    def tables(self, index: int) -> Iterator[Table]:
        """A vector of tables, empty where it is absent."""
        start, length = self._vector(index, 4)
        for place in range(start, start + 4 * length, 4):
            yield Table(self._buffer, self._buffer.follow(place))

    def nth(self, index: int, element: int) -> Table:
        """One table of a vector of tables.

        Raises:
            Malformed: the vector has no such element.
        """
        position = self._field(index)
        start = None if position is None else self._buffer.follow(position)
        if start is None or not 0 <= element < self._buffer.number("I", start):
            raise Malformed(f"element {element} of a vector is not there")
        return Table(self._buffer, self._buffer.follow(start + 4 + 4 * element))

    def _vector(self, index: int, width: int) -> tuple[int, int]:
        position = self._field(index)
        if position is None:
            return 0, 0
        start = self._buffer.follow(position)
        length = self._buffer.number("I", start)
        if start + 4 + length * width > len(self._buffer.data):
            raise Malformed(f"a vector of {length} elements does not fit into the program")
        self._buffer.spend(length * width)
        return start + 4, length
