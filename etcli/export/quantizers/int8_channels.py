"""Precision `8da8w`: 8-bit symmetric weights with a scale a row, 8-bit dynamic activations with a scale a token. For the head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Int8Channels:
    """Scales from the largest value of a row: with 256 steps nothing is gained by searching."""

    name: str = "8da8w"
    grouped: bool = False
    exact: bool = False
    stored_as_half: bool = False
    rounds_activations: bool = True

    def quantise(self, linear: nn.Linear, group_size: int | None) -> None:
        """As `Quantizer.quantise`."""
        from torchao.quantization import Int8DynamicActivationIntxWeightConfig
        from torchao.quantization.granularity import PerAxis

        from etcli.export.quantizers.dynamic import put, quantised

        config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int8, weight_granularity=PerAxis(0))
        put(linear, quantised(linear.weight, config))

    def blobs(self, weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """As `Quantizer.blobs`: codes `[out, in]`, scales `[out]` in float32."""
        parts: Any = weight
        yield "data", parts.qdata
        yield "scale", parts.scale.reshape(-1)
