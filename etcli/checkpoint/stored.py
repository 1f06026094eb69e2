"""A tensor as it lies in a file: where its bytes are, of what type, in what order; read through a memory map."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from etcli.checkpoint.base import TensorInfo
from etcli.common.errors import CheckpointError

if TYPE_CHECKING:
    import torch

BITS = {
    "C128": 128,
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32", "QI32", "C32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL", "QI8", "QU8"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
"""Bits an element, by the names that safetensors gives to types (with some of PyTorch's that it has no name for)."""

READABLE = ("F32", "F16", "BF16")
"""Types of weights that are read."""

CODE_TYPES = ("I8", "U8")
"""Types of codes of 8 bits: the bytes are the same."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of one file, or a view into what other tensors of the file share.

    `offset` counts bytes from the file's start, `nbytes` is how far its elements reach from there. `strides` counts elements and is None
    for a tensor whose elements follow one another.
    """

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    strides: tuple[int, ...] | None = None
    big_endian: bool = False

    @property
    def info(self) -> TensorInfo:
        """What the header says of it."""
        return TensorInfo(shape=self.shape, dtype=self.dtype, nbytes=self.nbytes)

    @property
    def same_bytes(self) -> tuple[object, ...]:
        """Equal for two names of the same place in the same file, read in the same way."""
        return self.file, self.offset, self.dtype, self.shape, self.strides


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a row-major tensor."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def unmapped(name: str, file: Path, error: Exception) -> CheckpointError:
    """The error of a tensor that its header has and its file no longer."""
    return CheckpointError(
        f"{name} cannot be read from {file.name}: {error}",
        code="checkpoint.truncated",
        hint="The file changed since it was opened, or is on storage that fails. Fetch it again.",
        file=file,
    )


def read_stored(tensor: StoredTensor, rows: npt.NDArray[np.intp] | None = None) -> torch.Tensor:
    """The tensor, or the rows asked for in their order, contiguous, in memory of its own: in float32, or codes in int8.

    Needs one of `READABLE` or `CODE_TYPES`. Unsigned codes from 128 on come out negative, as signed files hold them.

    Raises:
        CheckpointError: `checkpoint.truncated`, the file no longer has its bytes.
    """
    import torch

    try:
        # A map for each read, so that pages of finished tensors do not count as this process's memory. Copy-on-write: PyTorch takes no
        # read-only arrays, and nothing written here may reach the file.
        data = np.memmap(tensor.file, mode="c", offset=tensor.offset, shape=(tensor.nbytes,), dtype=np.uint8)
    except (OSError, ValueError) as error:
        raise unmapped(tensor.name, tensor.file, error) from None
    size = BITS[tensor.dtype] // 8
    flat = np.asarray(data)
    if tensor.big_endian:
        flat = flat.view(f"u{size}").byteswap().view(np.uint8)
    elif tensor.offset % size:
        flat = flat.copy()  # some processors refuse elements that cross their own boundaries
    types = {
        "F32": torch.float32,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
        **dict.fromkeys(CODE_TYPES, torch.int8),
    }
    values = torch.from_numpy(flat).view(types[tensor.dtype])
    shaped = values.as_strided(tensor.shape, tensor.strides or contiguous_strides(tensor.shape))
    if rows is not None:
        first, count = (int(rows[0]), len(rows)) if len(rows) else (0, 0)
        in_order = bool(np.array_equal(rows, np.arange(first, first + count)))
        shaped = shaped[first : first + count] if in_order else shaped[torch.from_numpy(rows)]
    kind = torch.int8 if tensor.dtype in CODE_TYPES else torch.float32
    return shaped.to(kind, copy=True, memory_format=torch.contiguous_format)
