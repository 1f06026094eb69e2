"""Linear layers without storage: weights come from a checkpoint, one at a time."""

from __future__ import annotations

from torch import nn


def linear(inputs: int, outputs: int, *, bias: bool) -> nn.Linear:
    """A linear layer on the meta device: no memory and no random values until its weights are loaded."""
    layer = nn.Linear(inputs, outputs, bias=bias, device="meta")
    layer.requires_grad_(False)
    return layer
