"""The header of a safetensors file, read without torch: names, types, shapes and where the bytes are, all checked against the file.

Format: https://github.com/huggingface/safetensors#format: eight bytes with the length of a JSON header, the header, the tensors back to back.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from etcli.checkpoint.foreign import lfs_pointer
from etcli.checkpoint.stored import BITS, StoredTensor
from etcli.common.errors import CheckpointError, EtcliError

__all__ = ["StoredTensor", "read_safetensors_header"]

_MAX_HEADER = 100_000_000  # the library's own bound


def read_safetensors_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of `path` by name.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: `checkpoint.lfs_pointer`, `checkpoint.truncated`, or `checkpoint.safetensors` for a header that is wrong.
    """
    pointer = lfs_pointer(path)
    if pointer is not None:
        raise EtcliError.many([pointer])
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER):
            raise (
                _cut(path, size, 8 + length)
                if size >= 8 and length <= _MAX_HEADER
                else _wrong(path, "it has no header")
            )
        data = file.read(length)
    try:
        header: Any = json.loads(data)
        tensors = {
            name: _tensor(path, name, entry, 8 + length) for name, entry in header.items() if name != "__metadata__"
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _wrong(path, f"its header is damaged ({str(error)[:100]})") from None
    end = 8 + length
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.offset):
        if tensor.offset != end:
            raise _wrong(path, f"{tensor.name} does not stand where the one before it ends")
        end += tensor.nbytes
    if size < end:
        raise _cut(path, size, end)
    if size > end:
        raise _wrong(path, f"it has {size - end} bytes too many")
    return tensors


def _tensor(path: Path, name: str, entry: dict[str, Any], start: int) -> StoredTensor:
    dtype, shape, (first, last) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    numbers = (*shape, first, last)
    if dtype not in BITS or any(type(number) is not int or number < 0 for number in numbers):
        raise ValueError(f"{name}: {dtype} {list(shape)}")
    bits = math.prod(shape) * BITS[dtype]
    if bits % 8 or last - first != bits // 8:
        raise ValueError(f"{name}: {last - first} bytes for {dtype} {list(shape)}")
    return StoredTensor(path, name, dtype, shape, start + first, last - first)


def _cut(path: Path, size: int, wanted: int) -> CheckpointError:
    return CheckpointError(
        f"{path.name} is cut off: it should have {wanted} bytes, it has {size}",
        code="checkpoint.truncated",
        hint="The download did not finish. Fetch the file again.",
        file=path,
    )


def _wrong(path: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"{path.name} is not a safetensors file that can be read: {what}",
        code="checkpoint.safetensors",
        hint="Fetch the file again, and compare its size and sha256 with those its publisher gives.",
        file=path,
    )
