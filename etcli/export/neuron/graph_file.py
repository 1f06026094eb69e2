"""Quantised graphs as `.pt2` files: written by PyTorch, read without running anything that a file holds.

`torch.export.load` unpickles, evaluates expressions of symbolic sizes with sympy's `eval`, executes guards as Python code and looks operators up
by any dotted name below `torch`. A bundle may come from somebody else, so a file is looked through before PyTorch's deserialiser gets its graph:
pickled tensors, custom objects and guards are refused, expressions may be sums and products of sizes alone, and operators must be of
the few kinds that a quantised chunk has. Weights are read here, memory-mapped, from the archive.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram

from etcli.common.errors import ExportError
from etcli.common.files import atomic_writer
from etcli.export.neuron.stored_weights import integers_of, restore

_MODEL = "models/model.json"
_WEIGHTS = "data/weights/model_weights_config.json"
_CONSTANTS = "data/constants/model_constants_config.json"
_WEIGHT = "data/weights/{}"

_OPERATOR = re.compile(
    r"torch\.ops\.(?:aten|quantized_decomposed)\.[a-z0-9_]+\.[A-Za-z0-9_]+|_operator\.(?:add|mul|sub|floordiv|getitem)"
)

_SYMBOL = r"Symbol\('s\d+', positive=True, integer=True\)"
# Powers of one symbol alone: a tower of a few digits would keep sympy busy for ever. One digit at a time, or a long number would keep `re` so.
_EXPRESSION = re.compile(
    rf"(?:Pow\({_SYMBOL}, Integer\([2-4]\)\)|{_SYMBOL}|(?:Add|Mul|Integer|FloorDiv|Mod|Max|Min)(?=\()"
    r"|\bs\d+\*\*[2-4](?![\d*])|\bs\d+\b|[0-9]|[-+(), ]|(?<!\*)\*(?!\*))*"
)
_WEIGHT_NAME = re.compile(r"weight_\d+")
_LARGEST_JSON = 1 << 30
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")


def save_graph(program: ExportedProgram, path: Path) -> None:
    """Write `program` to `path`. It loses where its nodes come from, its guards and its example inputs, which nobody reads; and weights that it
    rounds are written, and left in it, as integers (see `stored_weights`)."""
    for node in program.graph.nodes:
        for key in ("from_node", "nn_module_stack", "source_fn_stack", "stack_trace", "torch_fn"):
            node.meta.pop(key, None)
    program._guards_code = []
    program.example_inputs = None
    for name, integers in integers_of(program).items():
        program.state_dict[name] = torch.nn.Parameter(integers, requires_grad=False)
    with atomic_writer(path) as file:
        torch.export.save(program, file)


def load_graph(path: Path) -> torch.fx.GraphModule:
    """The graph in `path`, ready to be called. Weights that are stored as float32 are mapped, those that are stored as integers are float32 again.

    Raises:
        ExportError: `neuron.graph_file`: it is not there, no file that `save_graph` writes, or holds what may not be run.
    """
    # registers the operators of quantised graphs
    import torch.ao.quantization.fx._decomposed
    from torch._export.serde import schema
    from torch._export.serde.serialize import ExportedProgramDeserializer, _bytes_to_dataclass

    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(archive)
            text = _read(archive, members, _MODEL)
            model = json.loads(text)
            _check_model(model)
            if json.loads(_read(archive, members, _CONSTANTS))["config"]:
                raise _Refused("it holds constants that are no weights")
            weights = _weights(path, archive, members)
        restore(model, weights)
        program = ExportedProgramDeserializer().deserialize(
            _bytes_to_dataclass(schema.ExportedProgram, text), weights, {}
        )
        found = program.module(check_guards=False)
    except FileNotFoundError:
        raise _wrong(path, "it is missing") from None
    except (_Refused, zipfile.BadZipFile, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _wrong(path, str(error) or type(error).__name__) from error
    except Exception as error:  # whatever else PyTorch's deserialiser raises
        raise _wrong(
            path, f"PyTorch cannot read it: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        ) from error
    assert isinstance(found, torch.fx.GraphModule)  # noqa: S101 - torch declares a plain module
    return found


class _Refused(Exception):
    pass


def _wrong(path: Path, why: str) -> ExportError:
    return ExportError(
        f"the quantised graph {path.name} cannot be used: {why}",
        code="neuron.graph_file",
        hint="Export again. If the bundle is not your own, do not trust it.",
        file=path,
    )


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """What is in the archive by its name without the first folder."""
    found: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.partition("/")[2]
        if name in found:
            raise _Refused(f"two parts have the name {name}")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise _Refused("it is compressed or encrypted")
        found[name] = info
    return found


def _read(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], name: str) -> bytes:
    if name not in members:
        raise _Refused(f"it has no {name}")
    if members[name].file_size > _LARGEST_JSON:
        raise _Refused(f"{name} is larger than any true one")
    return archive.read(members[name])


def _check_model(model: Mapping[str, Any]) -> None:
    """Refuse what would be run or evaluated."""
    if model.get("guards_code"):
        raise _Refused("it holds guards, which are Python code")
    graph = model["graph_module"]["graph"]
    for node in graph["nodes"]:
        target = node["target"]
        if not isinstance(target, str) or not _OPERATOR.fullmatch(target) or target.split(".")[3:4] == ["from_file"]:
            raise _Refused(f"it calls {str(target)[:80]!r}, which no quantised chunk does")
        if node["metadata"]:
            raise _Refused("its nodes say where they come from")
    for name in model["range_constraints"]:
        _check_expression(name)
    for key, value in _entries(model):
        if key == "expr_str":
            _check_expression(value)
        elif key in ("as_graph", "as_custom_obj", "as_operator", "as_string") and value is not None:
            raise _Refused(f"it holds an argument of the kind {key}")
    if graph.get("custom_obj_values"):
        raise _Refused("it holds custom objects")
    if model["graph_module"].get("treespec_namedtuple_fields"):
        raise _Refused("it holds named tuples")


def _check_expression(text: Any) -> None:
    if not isinstance(text, str) or len(text) > 10_000 or not _EXPRESSION.fullmatch(text):
        raise _Refused(f"it holds {str(text)[:80]!r}, which is no sum of products of sizes")


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield from one.items()
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def _weights(path: Path, archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]) -> dict[str, torch.Tensor]:
    from torch._export.serde.serialize import _SERIALIZE_TO_TORCH_DTYPE

    found: dict[str, torch.Tensor] = {}
    for name, entry in json.loads(_read(archive, members, _WEIGHTS))["config"].items():
        if entry["use_pickle"]:
            raise _Refused(f"its weight {name[:80]} is pickled")
        if not _WEIGHT_NAME.fullmatch(entry["path_name"]):
            raise _Refused(f"its weight {name[:80]} is in no part of the archive")
        meta = entry["tensor_meta"]
        dtype = _SERIALIZE_TO_TORCH_DTYPE[meta["dtype"]]
        shape = [int(size["as_int"]) for size in meta["sizes"]]
        strides = [int(stride["as_int"]) for stride in meta["strides"]]
        offset = int(meta["storage_offset"]["as_int"])
        data = _mapped(path, members[_WEIGHT.format(entry["path_name"])])
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
        fits = min((*shape, *strides, offset), default=0) >= 0 and last * dtype.itemsize <= len(data)
        if math.prod(shape) and not fits:
            raise _Refused(f"its weight {name[:80]} is larger than its part of the archive")
        flat = torch.from_numpy(data[: len(data) // dtype.itemsize * dtype.itemsize]).view(dtype)
        tensor = torch.as_strided(flat, shape, strides, offset)
        if dtype.is_floating_point and not tensor.sum().isfinite():  # one pass that keeps nothing
            raise _Refused(f"its weight {name[:80]} holds values that are no numbers")
        found[name] = torch.nn.Parameter(tensor, requires_grad=False) if entry["is_param"] else tensor
    return found


def _mapped(path: Path, info: zipfile.ZipInfo) -> Any:
    """The bytes of a stored part, copy-on-write: nothing ever reaches the file."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        header = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        start = info.header_offset + _LOCAL_HEADER.size + header[-2] + header[-1]
        if header[0] != b"PK\3\4" or start + info.file_size > file.seek(0, 2):
            raise _Refused("it is truncated")
    if not info.file_size:
        return np.empty(0, np.uint8)
    with contextlib.suppress(ValueError):
        return np.memmap(path, np.uint8, "c", start, (info.file_size,))
    raise _Refused("it is truncated")
