"""The header of a GGUF file: metadata and the table of tensors, every length checked against the file before it is believed.

The `gguf` package supplies the format's tables (types and block sizes). Its own reader is not used for the header: it keeps two numpy
views for each of a vocabulary's strings (1.7 s to open a 49k-token file, against 0.1 s here) and walks as far as a damaged count
says. Layout: ggml's `docs/gguf.md`, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import functools
import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etcli.common.errors import CheckpointError
from etcli.common.gguf_parts import MAGIC as MAGIC

if TYPE_CHECKING:
    from gguf.constants import GGMLQuantizationType

_MAX_DIMENSIONS = 4
_ALIGNMENT = 32
_MAX_KEYS = 1 << 16
_MAX_TENSORS = 1 << 20
_MAX_NAME = 512
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class GgufTensor:
    """One entry of the tensor table. `shape` is row-major (the reverse of GGUF's order), `offset` counts bytes from the start of `file`."""

    file: Path
    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    nbytes: int

    @property
    def row_bytes(self) -> int:
        """Stored bytes of one row, that is along the last axis."""
        from gguf.constants import GGML_QUANT_SIZES

        block, size = GGML_QUANT_SIZES[self.type]
        return self.shape[-1] // int(block) * int(size)


@dataclass(frozen=True)
class GgufHeader:
    """What the file says of itself. `data_end` is where its last tensor ends, `size` the file's true size, both in bytes."""

    path: Path
    version: int
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]
    size: int

    @property
    def data_end(self) -> int:
        """Size in bytes that the tensor table promises."""
        return max((tensor.offset + tensor.nbytes for tensor in self.tensors.values()), default=0)


def read_gguf_header(path: Path) -> GgufHeader:
    """The header of `path`, without a byte of its tensors.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: `checkpoint.gguf`, not a GGUF file that can be read, or cut off within its header.
    """
    stat = path.stat()
    return _read(path, (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns))


@functools.lru_cache(maxsize=1)
def _read(path: Path, _: tuple[int, ...]) -> GgufHeader:
    """The header; a verb looks at the same unchanged file several times, and a vocabulary takes a tenth of a second to read."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < 24:
            raise _broken(path, f"{size} bytes are too few for a GGUF header")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _Cursor(path, data, size).header()
            except struct.error:
                raise _broken(path, "it ends within its header") from None


def _broken(path: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"{path.name} is not a GGUF file that can be read: {what}",
        code="checkpoint.gguf",
        hint="Fetch the file again, and compare its size and sha256 with those its publisher gives.",
        file=path,
    )


class _Cursor:
    def __init__(self, path: Path, data: mmap.mmap, size: int) -> None:
        self.path, self.data, self.size, self.at = path, data, size, 0

    def header(self) -> GgufHeader:
        if self.data[:4] != MAGIC:
            raise _broken(self.path, "it does not start with the letters GGUF")
        self.at = 4
        version = self.scalar("I")
        if version not in (2, 3):
            swapped = version and version & 0xFFFF == 0
            raise _broken(self.path, "it is big-endian" if swapped else f"its format version is {version}, not 2 or 3")
        tensor_count, key_count = self.scalar("Q"), self.scalar("Q")
        if tensor_count > _MAX_TENSORS or key_count > _MAX_KEYS:
            raise _broken(self.path, f"it claims {tensor_count} tensors and {key_count} keys")
        metadata: dict[str, Any] = {}
        for _ in range(key_count):
            key = self.name()
            if key in metadata:
                raise _broken(self.path, f"the key {key} stands twice")
            metadata[key] = self.value(self.scalar("I"))
        table = [self.entry() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise _broken(self.path, f"its alignment is {alignment!r}, not a power of two")
        start = -(-self.at // alignment) * alignment
        tensors: dict[str, GgufTensor] = {}
        for name, kind, shape, offset in table:
            if name in tensors:
                raise _broken(self.path, f"the tensor {name} stands twice")
            tensors[name] = self.tensor(name, kind, shape, start + offset)
        return GgufHeader(self.path, version, metadata, tensors, self.size)

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self) -> str:
        length = self.scalar("Q")
        self.need(length)
        self.at += length
        return self.data[self.at - length : self.at].decode("utf-8", "replace")

    def strings(self, count: int) -> list[str]:
        """`count` of them: as `string` reads them, without its calls, for vocabularies of a hundred thousand."""
        data, size, at = self.data, self.size, self.at
        length_at = struct.Struct("<Q").unpack_from
        found = []
        for _ in range(count):
            (length,) = length_at(data, at)
            at += 8
            if length > size - at:
                raise _broken(self.path, "it ends within its header")
            found.append(data[at : at + length].decode("utf-8", "replace"))
            at += length
        self.at = at
        return found

    def name(self) -> str:
        """A key or a tensor's name, which in a damaged file may be all that follows."""
        found = self.string()
        if len(found) > _MAX_NAME:
            raise _broken(self.path, f"it has a name of {len(found):,} characters")
        return found

    def need(self, count: int) -> None:
        if count > self.size - self.at:
            raise _broken(self.path, "it ends within its header")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind != _ARRAY:
            raise _broken(self.path, f"it has a value of the unknown type {kind}")
        kind, count = self.scalar("I"), self.scalar("Q")
        if kind == _STRING:
            self.need(count * 8)
            return self.strings(count)
        if kind not in _SCALARS:
            raise _broken(self.path, f"it has an array of the type {kind}")
        layout = struct.Struct(f"<{count if count < self.size else self.size + 1}{_SCALARS[kind]}")
        self.need(layout.size)
        values = list(layout.unpack_from(self.data, self.at))
        self.at += layout.size
        return values

    def entry(self) -> tuple[str, int, tuple[int, ...], int]:
        name = self.name()
        dimensions = self.scalar("I")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise _broken(self.path, f"the tensor {name} has {dimensions} dimensions")
        shape = tuple(self.scalar("Q") for _ in range(dimensions))
        return name, self.scalar("I"), shape[::-1], self.scalar("Q")

    def tensor(self, name: str, kind: int, shape: tuple[int, ...], offset: int) -> GgufTensor:
        # imported where a GGUF file is read: it takes a quarter of a second, and most checkpoints are none
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        try:
            type_ = GGMLQuantizationType(kind)
            block, size = GGML_QUANT_SIZES[type_]
        except (ValueError, KeyError):
            raise _broken(self.path, f"the tensor {name} is of the type {kind}, which the gguf package lacks") from None
        if shape[-1] % block:
            raise _broken(
                self.path, f"rows of {name} hold {shape[-1]} values, {type_.name} needs a multiple of {block}"
            )
        return GgufTensor(self.path, name, type_, shape, offset, math.prod(shape) // block * size)
