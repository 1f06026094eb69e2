"""Runs what was compiled for the simulated NPU on this machine: each network's nested program through ExecuTorch's Python runtime."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from etcli.common.errors import ExportError
from etcli.export.simulated_sdk._blob import Constant, read_blob, read_shared

_HEAD = struct.Struct("<BIII")
"""Version, inputs, outputs and size of the network, before it in a delegate's blob."""

_ALIGNMENT = 16


def run_methods(
    path: Path, calls: Mapping[str, Sequence[torch.Tensor]], folder: Path
) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """What each method of the program in `path` gives for its inputs in `calls`, in the method's order.

    Args:
        folder: where files are written for the while.

    Raises:
        ExportError: `neuron.partitions`, a method is not one network, so that it cannot be run here.
    """
    from executorch.exir._serialize._program import deserialize_pte_binary
    from executorch.exir.schema import DelegateCall

    file = deserialize_pte_binary(path.read_bytes())
    named = file.named_data
    entries = {} if named is None else named.pte_data
    for plan in file.program.execution_plan:
        instructions = [one.instr_args for chain in plan.chains for one in chain.instructions]
        if len(instructions) != 1 or not isinstance(instructions[0], DelegateCall):
            raise ExportError(
                f"method {plan.name} is not one network: the NPU's partitioner left {len(instructions)} pieces",
                code="neuron.partitions",
                hint="This is a fault of etcli or of the ExecuTorch version; please report it with the recipe.",
            )
        (call,) = instructions
        delegate = plan.delegates[call.delegate_index]
        payload = file.program.backend_delegate_data[delegate.processed.index].data
        _, count, _, size = _HEAD.unpack_from(payload)
        keys = [bytes(spec.value).decode() for spec in delegate.compile_specs if spec.key == "ExtractSharedBlobKey"]
        shared = bytes(named.buffers[entries[keys[0]].buffer_index]) if keys and named is not None else None
        inputs = [calls[plan.name][plan.inputs.index(value)] for value in call.args[:count]]
        found = _run(memoryview(payload)[_HEAD.size : _HEAD.size + size], shared, inputs, folder)
        by_value = dict(zip(call.args[count:], found, strict=True))
        yield plan.name, [by_value[value] for value in plan.outputs]


def _run(blob: memoryview, shared: bytes | None, inputs: Sequence[torch.Tensor], folder: Path) -> list[torch.Tensor]:
    """What a network computes from its own inputs, its own outputs in its own order."""
    import executorch.kernels.quantized  # noqa: F401  (loads the kernels)
    from executorch.extension.pybindings import _C

    network = read_blob(blob)
    weights = {} if shared is None else read_shared(shared)
    with tempfile.TemporaryDirectory(prefix="network-", dir=folder) as place:
        program, data = Path(place) / "network.pte", Path(place) / "constants.ptd"
        program.write_bytes(network.program)
        data.write_bytes(_data_file({one.name: _restored(one, weights) for one in network.constants}))
        loaded = _C._load_program(str(program), data_path=str(data))
        return [output.clone() for output in loaded.load_method("forward")(list(inputs))]


def _restored(constant: Constant, weights: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """A constant as the program takes it: `(stored - zero_point) * scale` where it has scales."""
    data = weights[constant.sha256] if constant.data is None else constant.data
    values = np.frombuffer(data, np.dtype(constant.stored)).reshape(constant.shape)
    if constant.scales is None:
        return values
    shape = [1] * values.ndim
    if constant.axis is not None:
        shape[constant.axis] = -1
    whole = values.astype(np.float32)
    if constant.zero_points is not None:
        whole -= np.frombuffer(constant.zero_points, np.int32).astype(np.float32).reshape(shape)
    whole *= np.frombuffer(constant.scales, np.float32).reshape(shape)
    return whole


def _data_file(constants: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """A `.ptd` file of these tensors."""
    from executorch.exir._serialize.data_serializer import DataEntry, DataPayload
    from executorch.exir.scalar_type import ScalarType
    from executorch.exir.tensor_layout import TensorLayout
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

    types = {
        "float32": ScalarType.FLOAT,
        "int64": ScalarType.LONG,
        "int32": ScalarType.INT,
        "int16": ScalarType.SHORT,
        "int8": ScalarType.CHAR,
        "uint8": ScalarType.BYTE,
        "bool": ScalarType.BOOL,
    }
    entries = {
        name: DataEntry(
            index, _ALIGNMENT, TensorLayout(types[str(value.dtype)], list(value.shape), list(range(value.ndim)))
        )
        for index, (name, value) in enumerate(constants.items())
    }
    payload = DataPayload([value.tobytes() for value in constants.values()], entries)
    return bytes(FlatTensorSerializer().serialize(payload))
