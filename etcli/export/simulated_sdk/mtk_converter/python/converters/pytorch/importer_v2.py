"""SIMULATED: which nodes of a graph the converter takes; ExecuTorch's MediaTek partitioner asks."""

from __future__ import annotations

import torch

from ...._operators import DTYPES, OPERATORS


def is_fx_node_supported(node: torch.fx.Node) -> bool:
    """Whether a node can be in a partition: a known operator of the edge dialect, static tensors of known types in and out."""
    if node.op != "call_function" or getattr(node.target, "__name__", None) not in OPERATORS:
        return False
    return all(_is_tensor_for_us(value) for one in (node, *node.all_input_nodes) for value in _values(one))


def _values(node: torch.fx.Node) -> tuple[object, ...]:
    value = node.meta.get("val")
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _is_tensor_for_us(value: object) -> bool:
    # A network is compiled for one shape; numbers that are computed at run time are none of its tensors.
    return isinstance(value, torch.Tensor) and value.dtype in DTYPES and all(type(size) is int for size in value.shape)
