"""The simulated NPU for tests of what is compiled for it: its format's words carried out in NumPy, and ExecuTorch's Python runtime.

Shares no code with `native/neuron_sim`; the constants are restored as docs/neuron-simulator.md says.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Delegated:
    """A method that is one call of a delegate: what the delegate gets, and which of the method's tensors its own are."""

    method: str
    backend: str
    specs: Mapping[str, bytes]
    payload: bytes
    shared: Mapping[str, bytes]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def head(self) -> tuple[int, int, int, int]:
        """Version, inputs, outputs and size of the network, as the delegate reads them."""
        version, inputs, outputs, size = struct.unpack_from("<BIII", self.payload)
        return version, inputs, outputs, size

    @property
    def blob(self) -> bytes:
        """The compiled network."""
        return self.payload[13:]


def delegated(program: bytes) -> dict[str, Delegated]:
    """The methods of a `.pte` that are each one call of a delegate and nothing else, by name."""
    from executorch.exir._serialize._program import deserialize_pte_binary
    from executorch.exir.schema import DelegateCall

    file = deserialize_pte_binary(program)
    named = file.named_data
    shared = (
        {}
        if named is None
        else {key: bytes(named.buffers[entry.buffer_index]) for key, entry in named.pte_data.items()}
    )
    methods = {}
    for plan in file.program.execution_plan:
        (chain,) = plan.chains
        (call,) = (one.instr_args for one in chain.instructions)
        assert isinstance(call, DelegateCall)
        delegate = plan.delegates[call.delegate_index]
        count = struct.unpack_from("<I", _processed(file.program, delegate), 1)[0]
        methods[plan.name] = Delegated(
            plan.name,
            delegate.id,
            {spec.key: bytes(spec.value) for spec in delegate.compile_specs},
            _processed(file.program, delegate),
            shared,
            tuple(plan.inputs.index(value) for value in call.args[:count]),
            tuple(plan.outputs.index(value) for value in call.args[count:]),
        )
    return methods


def _processed(program: Any, delegate: Any) -> bytes:
    return bytes(program.backend_delegate_data[delegate.processed.index].data)


def header_of(blob: bytes) -> dict[str, Any]:
    """The header of a file of the simulated NPU."""
    size = struct.unpack_from("<I", blob, 12)[0]
    header = json.loads(blob[16 : 16 + size])
    assert isinstance(header, dict)
    return header


def run_network(blob: bytes, shared: bytes | None, inputs: Sequence[torch.Tensor], folder: Path) -> list[torch.Tensor]:
    """What a network computes from its own inputs, its own outputs in its own order."""
    import executorch.kernels.quantized  # noqa: F401  (loads the kernels)
    from executorch.extension.pybindings import _C

    header = header_of(blob)
    weights = {} if shared is None else header_of(shared)["weights"]
    constants = {one["name"]: _restored(one, blob, shared, weights) for one in header["constants"]}
    program, data = folder / "network.pte", folder / "constants.ptd"
    program.write_bytes(_part(blob, header["program"]))
    data.write_bytes(_data_file(constants))
    loaded = _C._load_program(str(program), data_path=str(data))
    return [output.clone() for output in loaded.load_method("forward")(list(inputs))]


def _restored(
    one: Mapping[str, Any], blob: bytes, shared: bytes | None, weights: Mapping[str, Any]
) -> np.ndarray[Any, Any]:
    stored = one["stored"]
    if "key" in stored:
        assert shared is not None
        data = _part(shared, weights[stored["key"]])
    else:
        data = _part(blob, stored)
    assert hashlib.sha256(data).hexdigest() == one["sha256"]
    values = np.frombuffer(data, np.dtype(stored["dtype"])).reshape(one["shape"])
    if stored["scales"] is None:
        return values
    shape = [1] * values.ndim
    if stored["axis"] is not None:
        shape[stored["axis"]] = -1
    scales = np.frombuffer(_part(blob, stored["scales"]), np.float32).reshape(shape)
    whole = values.astype(np.float32)
    if stored["zero_points"] is not None:
        whole -= np.frombuffer(_part(blob, stored["zero_points"]), np.int32).astype(np.float32).reshape(shape)
    return whole * scales


def _part(data: bytes, place: Mapping[str, int]) -> bytes:
    part = data[place["offset"] : place["offset"] + place["size"]]
    assert len(part) == place["size"]
    return part


def _data_file(constants: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    from executorch.exir._serialize.data_serializer import DataEntry, DataPayload
    from executorch.exir.scalar_type import ScalarType
    from executorch.exir.tensor_layout import TensorLayout
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

    types = {"float32": ScalarType.FLOAT, "int64": ScalarType.LONG, "int32": ScalarType.INT, "bool": ScalarType.BOOL}
    entries = {
        name: DataEntry(index, 16, TensorLayout(types[str(value.dtype)], list(value.shape), list(range(value.ndim))))
        for index, (name, value) in enumerate(constants.items())
    }
    payload = DataPayload([value.tobytes() for value in constants.values()], entries)
    return bytes(FlatTensorSerializer().serialize(payload))
