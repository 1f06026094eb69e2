"""Programs of one operator each."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from etcli.ops import attention  # noqa: F401 - registers the operators with PyTorch

Tensors = tuple[torch.Tensor, ...]


class RingAttention(torch.nn.Module):
    """The attention operator alone."""

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return torch.ops.etcli.ring_attention(*inputs)


class LastRow(torch.nn.Module):
    """The row operator alone."""

    def forward(self, x: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
        return torch.ops.etcli.last_row(x, pos)


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
