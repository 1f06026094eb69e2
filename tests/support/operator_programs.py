"""Programs of one operator each."""

from __future__ import annotations

import warnings

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


def lowered(module: torch.nn.Module, inputs: Tensors) -> bytes:
    """The program of a module with graph inputs and outputs left to whoever runs it, as chunks have it."""
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.passes import MemoryPlanningPass

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
        exported = torch.export.export(module, inputs)
        return to_edge(exported).to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning)).buffer
