"""What the precisions with 8-bit dynamic activations share: weights quantised by torchao, a block of rows at a time. Imports torchao."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torchao.quantization import (
    Int8DynamicActivationIntxWeightConfig,
    IntxUnpackedToInt8Tensor,
    quantize_,
)

BLOCK = 1 << 18
"""Weights quantised at once: the search for scales makes half a dozen float32 copies, which then stay in a core's cache."""


def quantised(weight: torch.Tensor, config: Int8DynamicActivationIntxWeightConfig) -> IntxUnpackedToInt8Tensor:
    """`weight` `[out, in]`, float32, quantised as `config` says: the tensor whose linears torch.export writes as dynamically quantised.

    The scales of a row depend on that row alone (but for where the search for them ends), so blocks of rows, always of the same size, are
    quantised one after the other.
    """
    rows = max(1, BLOCK // weight.shape[1])
    pieces = [_block(block, config) for block in torch.split(weight, rows)]
    return rebuilt(
        pieces[0],
        qdata=torch.cat([piece.qdata for piece in pieces]),
        scale=torch.cat([piece.scale for piece in pieces]),
        zero_point=torch.cat([piece.zero_point for piece in pieces]),
    )


def rebuilt(like: IntxUnpackedToInt8Tensor, **parts: torch.Tensor) -> IntxUnpackedToInt8Tensor:
    """`like` with other `qdata`, `scale` or `zero_point`."""
    fields: dict[str, Any] = {name: parts.get(name, getattr(like, name)) for name in like.tensor_data_names}
    return IntxUnpackedToInt8Tensor(**fields, **{name: getattr(like, name) for name in like.tensor_attribute_names})


def put(linear: nn.Linear, weight: IntxUnpackedToInt8Tensor) -> None:
    """Make `weight` that of `linear`."""
    linear.weight = nn.Parameter(weight, requires_grad=False)


def _block(rows: torch.Tensor, config: Int8DynamicActivationIntxWeightConfig) -> IntxUnpackedToInt8Tensor:
    linear = nn.Linear(rows.shape[1], rows.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(rows, requires_grad=False)
    quantize_(linear, config)
    found: Any = linear.weight
    return found if isinstance(found, IntxUnpackedToInt8Tensor) else found.data
