"""Files of `torch.save`, read without torch and without running their pickle: which tensors there are, and where their bytes lie.

Since PyTorch 1.6 such a file is a zip archive whose members are stored, not compressed: `data.pkl`, one member a storage under `data/`, and
`byteorder`. Before, it was five pickles (magic number, version, system, the value, the keys of its storages) with the storages after them,
each behind its length. Both layouts as in `torch/serialization.py`; in both, tensors can be mapped.
"""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from etcli.checkpoint.foreign import lfs_pointer
from etcli.checkpoint.pickle_values import (
    MAX_BYTES,
    PickleBytes,
    Pickled,
    PickledTensor,
    PickleError,
    Storage,
    UnsafePickle,
    read_pickle,
)
from etcli.checkpoint.stored import BITS, StoredTensor, contiguous_strides
from etcli.common.errors import CheckpointError

_ZIP = b"PK\3\4"
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_VERSION = 1001
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, ..., lengths of the name and of the extra field
_TAR = slice(257, 262)
_QUANTISED = ("torchao.", "bitsandbytes.", "torch._utils._rebuild_qtensor")
_SAVE = "Save it again with torch.save, or as safetensors."


@dataclass(frozen=True)
class TorchFile:
    """What a file of `torch.save` holds: `value` as the pickle has it, its tensors not read. `legacy` is the form before PyTorch 1.6."""

    path: Path
    value: Any
    places: Mapping[str, tuple[int, int]]
    big_endian: bool
    legacy: bool

    def tensor(self, name: str, tensor: PickledTensor) -> StoredTensor:
        """Where `tensor` lies.

        Raises:
            CheckpointError: `checkpoint.pickle`, it reaches beyond its storage.
        """
        size = BITS[tensor.dtype] // 8
        start, length = self.places[tensor.storage.key]
        empty = not math.prod(tensor.shape)
        span = 0 if empty else 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides, strict=True))
        first = tensor.storage.start + tensor.offset
        if (first + span) * size > length:
            raise _damaged(self.path, f"{name[:100]} reaches beyond its storage")
        plain = all(
            stride == wanted or n == 1
            for n, stride, wanted in zip(tensor.shape, tensor.strides, contiguous_strides(tensor.shape), strict=True)
        )
        return StoredTensor(
            self.path,
            name,
            tensor.dtype,
            tensor.shape,
            start + first * size,
            span * size,
            None if plain else tensor.strides,
            self.big_endian,
        )


def starts_as_torch_file(start: bytes) -> bool:
    """Whether a file that begins with `start` (four bytes or more) may be a zip archive or a pickle."""
    return start[: len(_ZIP)] == _ZIP or (start[:1] == b"\x80" and start[1:2] in (b"\2", b"\3", b"\4", b"\5"))


def read_torch_file(path: Path) -> TorchFile:
    """What `path` holds.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: `checkpoint.unsafe_pickle`, `checkpoint.lfs_pointer`, `checkpoint.truncated`, `checkpoint.compressed`, or
            `checkpoint.pickle` for a file that is damaged or nothing of `torch.save`.
    """
    pointer = lfs_pointer(path)
    if pointer is not None:
        raise CheckpointError.many([pointer])
    with path.open("rb") as file:
        start = file.read(512)
        file.seek(0)
        if starts_as_torch_file(start):
            return (_read_zip if start[: len(_ZIP)] == _ZIP else _read_legacy)(path, file)
    if start[_TAR] == b"ustar":
        raise _damaged(path, "it is a tar archive, the form of PyTorch before 0.2")
    text = start.lstrip()[:1] in (b"<", b"{")
    what = "it is text, perhaps an error page" if text else "it starts as neither a zip archive nor a pickle"
    raise _damaged(path, what) if start else _cut(path, "it is empty")


def _read_zip(path: Path, file: BinaryIO) -> TorchFile:
    try:
        with zipfile.ZipFile(file) as archive:
            members = {member.filename: member for member in archive.infolist()}
            if len(members) < len(archive.infolist()):
                raise _damaged(path, "the zip archive has several parts of one name")
            root = next((name.removesuffix("data.pkl") for name in members if _is_pickle(name)), None)
            if root is None:
                raise _damaged(path, "the zip archive has no data.pkl")
            if f"{root}constants.pkl" in members:
                raise _damaged(path, "it is a TorchScript program (torch.jit.save), not a state dict")
            places = {name: _place(path, file, member, archive.start_dir) for name, member in members.items()}
    except zipfile.BadZipFile as error:
        if "not a zip file" in str(error):
            raise _cut(path, "the list of its parts, which stands at the end, is missing") from None
        raise _damaged(path, f"the zip archive is damaged ({str(error)[:80]})") from None
    except (NotImplementedError, UnicodeError, struct.error, ValueError) as error:
        raise _damaged(path, f"the zip archive is damaged ({str(error)[:80]})") from None
    start, length = places[f"{root}data.pkl"]
    if length > MAX_BYTES:
        raise _damaged(path, f"its pickle has {length} bytes, more than that of any network")
    data = PickleBytes(_bytes(file, start, length))
    pickled = _next(path, data)
    order = _bytes(file, *places[f"{root}byteorder"])[:16] if f"{root}byteorder" in places else b"little"
    if order not in (b"little", b"big"):
        raise _damaged(path, f"its byte order is {order!r}")
    found = {}
    for storage in pickled.storages.values():
        name = f"{root}data/{storage.key}"
        if name not in places:
            raise _damaged(path, f"the storage {storage.key[:100]} is missing")
        found[storage.key] = _checked(path, storage, places[name])
    return TorchFile(path, pickled.value, found, order == b"big", legacy=False)


def _is_pickle(name: str) -> bool:
    return name == "data.pkl" or (name.endswith("/data.pkl") and name.count("/") == 1)


def _place(path: Path, file: BinaryIO, member: zipfile.ZipInfo, end: int) -> tuple[int, int]:
    """Where a member's bytes are. The header in front of it has a name and an extra field of its own lengths."""
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        how = "encrypted" if member.flag_bits & 1 else "compressed"
        raise CheckpointError(
            f"{path.name} cannot be mapped into memory: its part {member.filename[:100]} is {how}",
            code="checkpoint.compressed",
            hint=f"Another program packed the archive again. {_SAVE}",
            file=path,
        )
    head = _bytes(file, member.header_offset, _LOCAL_HEADER.size) if member.header_offset >= 0 else b""
    signature, name, extra = _LOCAL_HEADER.unpack(head) if len(head) == _LOCAL_HEADER.size else (b"", 0, 0)
    if signature != _ZIP:
        raise _damaged(path, f"its part {member.filename[:100]} is not where the archive says")
    start = member.header_offset + _LOCAL_HEADER.size + name + extra
    if start + member.file_size > end:
        raise _cut(path, f"its part {member.filename[:100]} reaches beyond the end")
    return start, member.file_size


def _read_legacy(path: Path, file: BinaryIO) -> TorchFile:
    size = file.seek(0, 2)
    data = PickleBytes(_bytes(file, 0, min(size, MAX_BYTES)))
    if _next(path, data).value != _LEGACY_MAGIC:
        raise _damaged(path, "it is a pickle, but none of torch.save")
    if _next(path, data).value != _LEGACY_VERSION:
        raise _damaged(path, "it is of an unknown version of torch.save")
    system, pickled, keys = _next(path, data).value, _next(path, data), _next(path, data).value
    if not isinstance(system, dict) or not isinstance(keys, list) or not all(type(key) is str for key in keys):
        raise _damaged(path, "its header is not that of torch.save")
    known = pickled.storages
    if set(keys) != set(known):
        raise _damaged(path, "its storages are not those that its tensors name")
    found, position = {}, data.tell()
    for key in keys:
        length = known[key].numel * BITS[known[key].dtype] // 8
        if position + 8 + length > size:
            raise _cut(path, f"it should have at least {position + 8 + length} bytes, it has {size}")
        if int.from_bytes(_bytes(file, position, 8), "little") != known[key].numel:
            raise _damaged(path, f"the storage {key[:100]} is not of the length that the header says")
        found[key] = (position + 8, length)
        position += 8 + length
    # Storages are little-endian whatever the machine was.
    return TorchFile(path, pickled.value, found, big_endian=False, legacy=True)


def _next(path: Path, data: PickleBytes) -> Pickled:
    try:
        return read_pickle(data)
    except UnsafePickle as error:
        names = ", ".join(error.names[:5]) + (", ..." if len(error.names) > 5 else "")
        raise CheckpointError(
            f"{path.name} is a pickle that has {names} called when it is loaded: more than tensors; nothing of it was run",
            code="checkpoint.unsafe_pickle",
            hint=_unsafe_hint(error.names),
            file=path,
        ) from None
    except PickleError as error:
        if data.tell() >= len(data.getbuffer()) and len(data.getbuffer()) < MAX_BYTES:
            raise _cut(path, "it ends within its header") from None
        raise _damaged(path, f"its pickle is damaged ({error})") from None


def _unsafe_hint(names: Sequence[str]) -> str:
    if any(name.startswith(_QUANTISED) for name in names):
        return "These look like quantised weights, which are not supported; use the model's unquantised weights."
    return (
        "If you trust its origin, load it there and save the state dict alone (torch.save(model.state_dict(), ...)) or safetensors. "
        "Otherwise delete it: loading such a file can run any program."
    )


def _checked(path: Path, storage: Storage, place: tuple[int, int]) -> tuple[int, int]:
    if place[1] * 8 != storage.numel * BITS[storage.dtype]:
        raise _damaged(path, f"the storage {storage.key[:100]} is not of the length that the pickle says")
    return place


def _bytes(file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)


def _cut(path: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"{path.name} is cut off: {what}",
        code="checkpoint.truncated",
        hint="The download did not finish. Fetch the file again.",
        file=path,
    )


def _damaged(path: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"{path.name} is not a PyTorch file that can be read: {what}",
        code="checkpoint.pickle",
        hint=f"Fetch the file again, and compare its size and sha256 with those its publisher gives. {_SAVE}",
        file=path,
    )
