"""Small compiled networks for the simulated NPU, with what they have to compute: made here by ExecuTorch alone, of nothing that etcli exports."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from etcli.export.simulated_sdk._blob import Constant, Network, Tensor, extract_shared, make_constant, write_blob

OPTIONS = ("--relax-fp32", "--opt=3", "--platform-config=mt6991")


@dataclass(frozen=True)
class Quantised:
    """Integers and how they are read: `values`, float32 `scales` and perhaps `zero_points` along `axis`."""

    values: torch.Tensor
    scales: torch.Tensor
    zero_points: torch.Tensor | None
    axis: int | None

    def floats(self) -> torch.Tensor:
        """What they stand for, in float32."""
        shape = [1] * self.values.dim()
        if self.axis is not None:
            shape[self.axis] = -1
        zero_points = torch.zeros(1) if self.zero_points is None else self.zero_points.to(torch.float32)
        return (self.values.to(torch.float32) - zero_points.view(shape)) * self.scales.view(shape)


class Chunk(torch.nn.Module):
    """As a chunk of a language model is: a cache that moves on by `tokens` rows, and a linear of a quantised activation.

    Inputs are x [tokens, 4] and the cache [1, 6, 4], outputs the new cache and a matrix [tokens, 3], which the old cache is in as well.
    `weights` are those of `quantised_weights`.
    """

    mixed: torch.Tensor
    tail: torch.Tensor
    offset: torch.Tensor
    columns: torch.Tensor

    def __init__(self, weights: Mapping[str, Quantised]) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.linear.weight = torch.nn.Parameter(weights["linear.weight"].floats())
        self.linear.bias = torch.nn.Parameter(weights["linear.bias"].floats())
        self.register_buffer("mixed", weights["mixed"].floats())
        self.register_buffer("tail", weights["tail"].floats())
        self.register_buffer("offset", torch.tensor([10.0, 20.0, 30.0]))
        self.register_buffer("columns", torch.tensor([2, 0, 1]))

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scheme = (2.0**-12, 0, -32768, 32767, torch.int16)
        quantised = torch.ops.quantized_decomposed.quantize_per_tensor.default(x, *scheme)
        rounded = torch.ops.quantized_decomposed.dequantize_per_tensor.default(quantised, *scheme)
        new_cache = torch.cat([cache, rounded.unsqueeze(0)], 1)[:, -6:]
        # Read after the new cache is written, which may be where the old one is.
        old = cache.sum(1)[:, :3]
        constants = self.offset + self.mixed.sum((0, 2)) * self.tail.sum(0)
        return new_cache, (self.linear(rounded) + constants)[:, self.columns] + old


def quantised_weights(seed: int) -> dict[str, Quantised]:
    """Constants of a Chunk, one of every dtype that integers are stored as, with scales along every kind of axis and without one."""
    random = torch.Generator().manual_seed(seed)
    weight = torch.randint(-128, 128, (3, 4), generator=random, dtype=torch.int8)
    bias = torch.randint(-32768, 32768, (3,), generator=random, dtype=torch.int16)
    mixed = torch.randint(0, 256, (2, 3, 2), generator=random, dtype=torch.uint8)
    tail = torch.randint(-(2**20), 2**20, (2, 3), generator=random, dtype=torch.int32)
    scales = torch.rand(3, generator=random) / 64 + 2**-10
    zero_points = torch.randint(-8, 8, (3,), generator=random, dtype=torch.int32)
    return {
        "mixed": Quantised(mixed, scales / 8, zero_points + 128, 1),
        "tail": Quantised(tail, torch.tensor([2.0**-20] * 3) * scales, None, 1),
        "linear.weight": Quantised(weight, scales, zero_points, 0),
        "linear.bias": Quantised(bias, torch.tensor([2.0**-14]), None, None),
    }


def compiled(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], quantised: Mapping[str, Quantised]) -> Network:
    """The module as the simulated compiler has to write it: a program with its constants outside, those of `quantised` as integers."""
    import executorch.kernels.quantized  # noqa: F401  (the operators' out variants)
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
    from executorch.exir.passes import MemoryPlanningPass

    edge = to_edge(torch.export.export(module, inputs, strict=True), compile_config=EdgeCompileConfig())
    constants = edge.exported_program().state_dict
    program = edge.to_executorch(
        ExecutorchBackendConfig(
            external_constants=True,
            memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False),
        )
    ).buffer
    outputs = module(*inputs)
    return Network(
        platform="mt6991",
        options=OPTIONS,
        inputs=tuple(_tensor(one) for one in inputs),
        outputs=tuple(_tensor(one) for one in outputs),
        program=program,
        constants=tuple(_constant(name, value, quantised.get(name)) for name, value in constants.items()),
    )


def write_networks(folder: Path) -> None:
    """The files that `native/neuron_sim/tests` read: networks, shared weights, one example with its results, and an ordinary program."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = quantised_weights(seed=1)
    chunk = Chunk(weights).eval()
    cache = torch.linspace(-3, 3, 24).view(1, 6, 4)
    blobs = []
    for tokens in (2, 1):
        inputs = (torch.linspace(-1, 2, 4 * tokens).view(tokens, 4), cache)
        blobs.append(write_blob(compiled(chunk, inputs, weights)))
        (folder / f"network_{tokens}.bin").write_bytes(blobs[-1])
        _write_tensors(folder, f"input_{tokens}", inputs)
        _write_tensors(folder, f"output_{tokens}", chunk(*inputs))
    shared, slim = extract_shared(blobs)
    (folder / "shared.bin").write_bytes(shared)
    for tokens, blob in zip((2, 1), slim, strict=True):
        (folder / f"slim_{tokens}.bin").write_bytes(blob)
    others = quantised_weights(seed=2)
    other = compiled(Chunk(others).eval(), inputs, others)
    (folder / "other_shared.bin").write_bytes(extract_shared([write_blob(other)])[0])
    (folder / "ordinary.pte").write_bytes(_ordinary(chunk, inputs))


def _ordinary(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> bytes:
    """The module's float part as our runner runs programs: XNNPACK and portable operators, constants inside, memory of the caller's."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes import MemoryPlanningPass

    linear = module.linear
    assert isinstance(linear, torch.nn.Linear)
    exported = torch.export.export(torch.nn.Sequential(linear, torch.nn.Softmax(-1)), inputs[:1], strict=True)
    plan = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    program = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=plan)).buffer
    assert isinstance(program, bytes)
    return program


def _tensor(tensor: torch.Tensor) -> Tensor:
    return Tensor(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def _constant(name: str, value: torch.Tensor, quantised: Quantised | None) -> Constant:
    spec = _tensor(value)
    if quantised is None:
        return make_constant(name, spec.dtype, spec.shape, _bytes(value))
    return make_constant(
        name,
        spec.dtype,
        spec.shape,
        _bytes(quantised.values),
        stored=_tensor(quantised.values).dtype,
        scales=quantised.scales.tolist(),
        zero_points=[] if quantised.zero_points is None else quantised.zero_points.tolist(),
        axis=quantised.axis,
    )


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().numpy().tobytes()


def _write_tensors(folder: Path, name: str, tensors: tuple[torch.Tensor, ...]) -> None:
    for index, tensor in enumerate(tensors):
        values = tensor.detach().flatten().tolist()
        (folder / f"{name}_{index}.bin").write_bytes(struct.pack(f"<{len(values)}f", *values))


if __name__ == "__main__":
    import sys

    write_networks(Path(sys.argv[1]))
