"""Precision `8da4w`: 4-bit symmetric weights with a scale a group, 8-bit dynamic activations with a scale a token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

LOWEST, HIGHEST = -8, 7


@dataclass(frozen=True)
class Int4Groups:
    """Scales by half-quadratic search, which keeps more of a network than the largest value of a group does (benchmarks/quality.py)."""

    name: str = "8da4w"
    grouped: bool = True
    exact: bool = False
    stored_as_half: bool = False
    rounds_activations: bool = True

    def quantise(self, linear: nn.Linear, group_size: int | None) -> None:
        """As `Quantizer.quantise`. Scales are rounded to bfloat16, which XNNPACK stores, before the codes are chosen for good."""
        # here and not above: importing torchao takes seconds, which float precisions need not spend
        from torchao.quantization import Int8DynamicActivationIntxWeightConfig
        from torchao.quantization.granularity import PerGroup
        from torchao.quantization.quant_primitives import quantize_affine
        from torchao.quantization.quantize_.workflows.intx.intx_choose_qparams_algorithm import (
            IntxChooseQParamsAlgorithm,
        )

        from etcli.export.quantizers.dynamic import put, quantised, rebuilt

        if group_size is None:
            raise ValueError("8da4w needs a group size")
        config = Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4,  # type: ignore[attr-defined]
            weight_granularity=PerGroup(group_size),
            intx_choose_qparams_algorithm=IntxChooseQParamsAlgorithm.HQQ_SCALE_ONLY,
        )
        found = quantised(linear.weight, config)
        scale = found.scale.to(torch.bfloat16).to(torch.float32)
        codes = quantize_affine(
            linear.weight,
            (1, group_size),
            scale,
            found.zero_point,
            output_dtype=torch.int8,
            quant_min=LOWEST,
            quant_max=HIGHEST,
        )
        put(linear, rebuilt(found, qdata=codes, scale=scale))

    def blobs(self, weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """As `Quantizer.blobs`: two codes a byte, the first in the low half, each plus 8; scales `[out, in / group]` in bfloat16."""
        parts: Any = weight
        codes = (parts.qdata + 8).to(torch.uint8)
        yield "data", codes[:, 0::2] | (codes[:, 1::2] << 4)
        yield "scale", parts.scale.to(torch.bfloat16)
