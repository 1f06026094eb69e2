"""Programs of one operator each."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from etcli.ops import (
    aqlm,
    attention,  # noqa: F401 - registers the operators with PyTorch
)

Tensors = tuple[torch.Tensor, ...]


class RingAttention(torch.nn.Module):
    """The attention operator alone."""

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return torch.ops.etcli.ring_attention(*inputs)


class LastRow(torch.nn.Module):
    """The row operator alone."""

    def forward(self, x: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
        return torch.ops.etcli.last_row(x, pos)


class AqlmProduct(torch.nn.Module):
    """The AQLM operator alone, over weights that a program keeps as constants.

    `codebooks` is their number; codes are random bytes, of which half are negative as stored.
    """

    def __init__(self, codebooks: int, groups: int, outputs: int, *, bias: bool, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.randn(*shape, generator=generator), requires_grad=False)

        self.count = codebooks
        codes = torch.randint(-128, 128, (groups, outputs, codebooks), dtype=torch.int8, generator=generator)
        self.codes = torch.nn.Parameter(codes, requires_grad=False)
        self.codebooks = random(codebooks, 256, 1, 8)
        self.scales = random(outputs, 1, 1, 1)
        self.bias = random(outputs) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return aqlm.lut_matmat(self.count)(x, self.codes, self.codebooks, self.scales, self.bias)

    def exact(self, x: torch.Tensor) -> torch.Tensor:
        """The product in float64, from the weights as the format defines them, one group of inputs after another."""
        weight = torch.zeros(self.codes.shape[1], self.codes.shape[0], 8, dtype=torch.float64)
        for group, rows in enumerate(self.codes.tolist()):
            for output, codes in enumerate(rows):
                for m, code in enumerate(codes):
                    weight[output, group] += self.codebooks[m, code % 256, 0].double()
        weight = weight.flatten(1) * self.scales.flatten(1).double()
        return torch.nn.functional.linear(x.double(), weight, None if self.bias is None else self.bias.double())


class AqlmBetweenLinears(torch.nn.Module):
    """An AQLM product whose input comes from a float linear and whose output goes into one, as in a layer with linears that are kept."""

    def __init__(self, product: AqlmProduct) -> None:
        super().__init__()
        self.product = product
        self.before = torch.nn.Linear(24, product.codes.shape[0] * 8)
        self.after = torch.nn.Linear(product.codes.shape[1], 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(torch.nn.functional.silu(self.product(self.before(x))))


def lowered_with_xnnpack(module: torch.nn.Module, inputs: Tensors) -> bytes:
    """The program of a module with all that XNNPACK takes delegated to it."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(module, inputs)
        return to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch().buffer


def lowered(module: torch.nn.Module, inputs: Tensors, *, in_place: Mapping[int, int] | None = None) -> bytes:
    """The program of a module with graph inputs and outputs left to whoever runs it, as chunks have it.

    With `in_place` the program plans memory for all of them, and gives each output named as key that of the input named as value, which is
    what the runner does with caches.
    """
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.passes import MemoryPlanningPass

    class Planning(MemoryPlanningPass):
        def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
            result = super().run(graph_module, graph_signature)
            nodes = list(graph_module.graph.nodes)
            given = [node.meta["spec"] for node in nodes if node.op == "placeholder"]
            [end] = [node for node in nodes if node.op == "output"]
            for output, source in (in_place or {}).items():
                spec = end.args[0][output].meta["spec"]
                spec.mem_id, spec.mem_offset = given[source].mem_id, given[source].mem_offset
            return result

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        planning = Planning(alloc_graph_input=bool(in_place), alloc_graph_output=bool(in_place))
        exported = torch.export.export(module, inputs)
        return to_edge(exported).to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning)).buffer
