"""The files of the simulated NPU: compiled networks and the weights that several of them share.

No vendor's format: `native/neuron_sim` reads them and nothing else does. All integers are little-endian; every part begins at a multiple of
16 bytes from the beginning of its file, with zeros before it.

A compiled network:

    "ETCLINPU" | u32 version = 1 | u32 size of the header | header, JSON in UTF-8 | program | parts of constants

    {"simulated": true, "platform": "mt6991", "options": ["--relax-fp32", ...],
     "inputs": [{"dtype": "float32", "shape": [1, 32, 64]}, ...], "outputs": [...],
     "program": PART,
     "constants": [{"name": ..., "dtype": ..., "shape": [...], "sha256": of the stored bytes,
                    "stored": {"dtype": ..., "offset": ..., "size": ..., "scales": PART | null, "zero_points": PART | null, "axis": n | null}}, ...],
     "shared": false}

    PART = {"offset": from the beginning of the file, "size": bytes, "sha256": hex}

The program is an ExecuTorch program with one method `forward`, whose inputs, outputs and constants are those of the header, in that order, the
constants by name and outside of the program. `scales` are float32 and `zero_points` int32: one of each, or one per index along `axis`. A
constant that has them holds (stored - zero_point) * scale, in float32; the other ones are stored as they are.

Shared weights:

    "ETCLISHR" | u32 version = 1 | u32 size of the header | header, JSON in UTF-8 | weights

    {"simulated": true, "weights": {sha256: {"offset": ..., "size": ...}, ...}}

In the networks they were taken from, "shared" is true and `stored` has {"key": sha256, "size": bytes} in place of offset and size.

Plain Python without numpy or torch: workers of any interpreter import it, and whatever else looks into these files.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

NETWORK_MAGIC = b"ETCLINPU"
SHARED_MAGIC = b"ETCLISHR"
VERSION = 1

ITEM_BYTES: Mapping[str, int] = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "float32": 4,
    "int64": 8,
    "float64": 8,
}
"""Bytes of one element, by dtype."""

QUANTISED = ("uint8", "int8", "int16", "int32")
"""What a constant with scales may be stored as."""

_HEAD = struct.Struct("<8sII")
_ALIGNMENT = 16
_KEY = re.compile(r"[0-9a-f]{64}")

Bytes = bytes | bytearray | memoryview


class BlobError(ValueError):
    """What is given is no whole file of the simulated NPU, or cannot be written as one."""


@dataclass(frozen=True)
class Tensor:
    """An input or output."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Constant:
    """A constant of the program.

    `dtype` and `shape` are those it has in the program, `stored` the dtype of its bytes here. `data` is None where the bytes are in the
    shared weights, then under `sha256`. `scales` (float32) and `zero_points` (int32) are bytes, for stored integers alone.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    stored: str
    sha256: str
    data: Bytes | None
    scales: bytes | None = None
    zero_points: bytes | None = None
    axis: int | None = None

    @property
    def size(self) -> int:
        """Bytes of it as it is stored."""
        return math.prod(self.shape) * ITEM_BYTES[self.stored]


@dataclass(frozen=True)
class Network:
    """A compiled network; `shared` is whether the weights are in a file of their own."""

    platform: str
    options: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    program: bytes
    constants: tuple[Constant, ...]
    shared: bool = False


def make_constant(
    name: str,
    dtype: str,
    shape: Sequence[int],
    data: Bytes,
    *,
    stored: str | None = None,
    scales: Sequence[float] = (),
    zero_points: Sequence[int] = (),
    axis: int | None = None,
) -> Constant:
    """A constant from its bytes; `stored` is their dtype where it is another one, then with `scales` and perhaps `zero_points`.

    Raises:
        BlobError: the bytes are too few or too many, or the scales do not go with the shape.
    """
    constant = Constant(
        name,
        dtype,
        tuple(shape),
        stored or dtype,
        hashlib.sha256(data).hexdigest(),
        data,
        struct.pack(f"<{len(scales)}f", *scales) if scales else None,
        struct.pack(f"<{len(zero_points)}i", *zero_points) if zero_points else None,
        axis,
    )
    _check_constant(constant)
    return constant


def write_blob(network: Network) -> bytes:
    """The file of a compiled network.

    Raises:
        BlobError: a constant is not as its dtype and shape want, or two have one name.
    """
    names = [constant.name for constant in network.constants]
    if len(set(names)) != len(names):
        raise BlobError("two constants have one name")
    parts = _Parts()
    program = parts.add(network.program)
    constants = [_described(constant, parts) for constant in network.constants]
    header = {
        "simulated": True,
        "platform": network.platform,
        "options": list(network.options),
        "inputs": [{"dtype": one.dtype, "shape": list(one.shape)} for one in network.inputs],
        "outputs": [{"dtype": one.dtype, "shape": list(one.shape)} for one in network.outputs],
        "program": program,
        "constants": constants,
        "shared": network.shared,
    }
    return parts.file(NETWORK_MAGIC, header)


def read_blob(blob: Bytes) -> Network:
    """The compiled network in a file; the data of its constants are views into it.

    Raises:
        BlobError: it is damaged, or something else.
    """
    view = memoryview(blob).cast("B")
    header = _header(view, NETWORK_MAGIC)
    try:
        program = _part(view, header["program"])
        inputs, outputs = (
            tuple(Tensor(_dtype(one["dtype"]), _shape(one["shape"])) for one in header[key])
            for key in ("inputs", "outputs")
        )
        constants = tuple(_constant(view, one) for one in header["constants"])
        return Network(
            platform=str(header["platform"]),
            options=tuple(str(option) for option in header["options"]),
            inputs=inputs,
            outputs=outputs,
            program=bytes(program),
            constants=constants,
            shared=header["shared"] is True,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise BlobError(f"the header of the simulated network is not as it has to be: {error!r}") from None


def extract_shared(blobs: Iterable[Bytes]) -> tuple[bytes, list[bytes]]:
    """Take the weights of every network out, once each: the file that holds them, and the networks without, in their order.

    Raises:
        BlobError: one is damaged, or shares its weights already.
    """
    weights: dict[str, Bytes] = {}
    slim = []
    for blob in blobs:
        network = read_blob(blob)
        if network.shared:
            raise BlobError("the weights of a simulated network were taken out before")
        for constant in network.constants:
            if constant.data is not None:
                weights.setdefault(constant.sha256, constant.data)
        constants = tuple(replace(constant, data=None) for constant in network.constants)
        slim.append(write_blob(replace(network, constants=constants, shared=True)))
    parts = _Parts()
    places = {}
    for key in sorted(weights):
        places[key] = parts.add(weights[key])
        del places[key]["sha256"]
    return parts.file(SHARED_MAGIC, {"simulated": True, "weights": places}), slim


def read_shared(blob: Bytes) -> dict[str, memoryview]:
    """The shared weights of a file by the SHA-256 of their bytes, as views into it.

    Raises:
        BlobError: it is damaged, or something else.
    """
    view = memoryview(blob).cast("B")
    header = _header(view, SHARED_MAGIC)
    try:
        return {key: _part(view, {**place, "sha256": key}) for key, place in header["weights"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise BlobError(f"the header of the simulated shared weights is not as it has to be: {error!r}") from None


class _Parts:
    """Parts of a file under construction. Their descriptions are dicts whose offsets are filled in when the header's size is known."""

    def __init__(self) -> None:
        self._parts: list[tuple[dict[str, Any], Bytes]] = []

    def add(self, data: Bytes) -> dict[str, Any]:
        size = memoryview(data).nbytes
        place = {"offset": 0, "size": size, "sha256": hashlib.sha256(data).hexdigest()}
        self._parts.append((place, data))
        return place

    def file(self, magic: bytes, header: dict[str, Any]) -> bytes:
        # Offsets are longer once they are known, and a longer header moves them: the room that they may take is fixed first.
        base = _HEAD.size + len(_json(header)) + 20 * len(self._parts)
        end = base = base + -base % _ALIGNMENT
        for place, _ in self._parts:
            place["offset"] = end
            end += place["size"] + -place["size"] % _ALIGNMENT
        text = _json(header)
        head = _HEAD.pack(magic, VERSION, len(text)) + text
        pieces: list[Bytes] = [head, bytes(base - len(head))]
        for _, data in self._parts:
            pieces += [data, bytes(-memoryview(data).nbytes % _ALIGNMENT)]
        return b"".join(pieces)


def _described(constant: Constant, parts: _Parts) -> dict[str, Any]:
    _check_constant(constant)
    # The parts' own dicts stand in the header, since their offsets come later.
    stored: dict[str, Any] = {"key": constant.sha256, "size": constant.size} if constant.data is None else {}
    if constant.data is not None:
        stored = parts.add(constant.data)
        if stored.pop("sha256") != constant.sha256:
            raise BlobError(f"the constant {constant.name} does not have the SHA-256 that it says")
    stored["dtype"] = constant.stored
    stored["scales"] = None if constant.scales is None else parts.add(constant.scales)
    stored["zero_points"] = None if constant.zero_points is None else parts.add(constant.zero_points)
    stored["axis"] = constant.axis
    return {
        "name": constant.name,
        "dtype": constant.dtype,
        "shape": list(constant.shape),
        "sha256": constant.sha256,
        "stored": stored,
    }


def _check_constant(constant: Constant) -> None:
    where = f"the constant {constant.name}"
    _dtype(constant.dtype)
    _dtype(constant.stored)
    if constant.data is not None and memoryview(constant.data).nbytes != constant.size:
        raise BlobError(f"{where} has {memoryview(constant.data).nbytes} bytes, its shape wants {constant.size}")
    if constant.scales is None:
        if constant.stored != constant.dtype or constant.zero_points is not None or constant.axis is not None:
            raise BlobError(f"{where} is {constant.dtype} and stored as {constant.stored} without scales")
        return
    if constant.dtype != "float32" or constant.stored not in QUANTISED:
        raise BlobError(f"{where} has scales, and is {constant.dtype} stored as {constant.stored}")
    if constant.axis is not None and not 0 <= constant.axis < len(constant.shape):
        raise BlobError(f"{where} has no axis {constant.axis}")
    wanted = 4 if constant.axis is None else 4 * constant.shape[constant.axis]
    for what, data in (("scales", constant.scales), ("zero_points", constant.zero_points)):
        if data is not None and len(data) != wanted:
            raise BlobError(f"{where}: {what} have {len(data)} bytes, its shape wants {wanted}")


def _constant(view: memoryview, one: dict[str, Any]) -> Constant:
    stored = one["stored"]
    sha256 = one["sha256"]
    key = stored.get("key")
    if key is not None and key != sha256:
        raise BlobError(f"the constant {one['name']} has two different hashes")
    data = None if key is not None else _part(view, {**stored, "sha256": sha256})
    scales, zero_points = (
        None if stored[what] is None else bytes(_part(view, stored[what])) for what in ("scales", "zero_points")
    )
    constant = Constant(
        name=str(one["name"]),
        dtype=_dtype(one["dtype"]),
        shape=_shape(one["shape"]),
        stored=_dtype(stored["dtype"]),
        sha256=sha256,
        data=data,
        scales=scales,
        zero_points=zero_points,
        axis=stored["axis"],
    )
    _check_constant(constant)
    return constant


def _header(view: memoryview, magic: bytes) -> dict[str, Any]:
    if view.nbytes < _HEAD.size:
        raise BlobError(f"{view.nbytes} bytes are no file of the simulated NPU")
    found, version, size = _HEAD.unpack_from(view)
    if found != magic:
        raise BlobError(f"it begins with {found!r}, a file of the simulated NPU of this kind with {magic!r}")
    if version != VERSION:
        raise BlobError(f"it is of version {version}, this etcli reads {VERSION}")
    if size > view.nbytes - _HEAD.size:
        raise BlobError(f"its header has {size} bytes, the whole file {view.nbytes}")
    try:
        header = json.loads(bytes(view[_HEAD.size : _HEAD.size + size]))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BlobError(f"its header is no JSON: {error}") from None
    if not isinstance(header, dict) or header.get("simulated") is not True:
        raise BlobError("its header does not say that it is simulated")
    return header


def _part(view: memoryview, place: Mapping[str, Any]) -> memoryview:
    offset, size, sha256 = place["offset"], place["size"], place["sha256"]
    if not (isinstance(offset, int) and isinstance(size, int)) or min(offset, size) < 0 or offset + size > view.nbytes:
        raise BlobError(f"a part of {size} bytes at {offset} is not inside the file of {view.nbytes} bytes")
    data = view[offset : offset + size]
    if not _KEY.fullmatch(sha256) or hashlib.sha256(data).hexdigest() != sha256:
        raise BlobError(f"the {size} bytes at {offset} do not have the SHA-256 that its header says")
    return data


def _dtype(name: Any) -> str:
    if name not in ITEM_BYTES:
        raise BlobError(f"there is no dtype {name!r}")
    return str(name)


def _shape(sizes: Any) -> tuple[int, ...]:
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        raise BlobError(f"{sizes!r} is no shape")
    return tuple(sizes)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
