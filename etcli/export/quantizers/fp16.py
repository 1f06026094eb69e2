"""Precision `fp16`: weights rounded to float16 and stored so, products in float32.

XNNPACK multiplies float32 activations with float16 weights (`xnn_create_fully_connected_nc_f32_f16`), on every CPU it supports: x86, and
AArch64 with and without half-precision arithmetic. Products in float16 would need a cast before and after each linear, which XNNPACK's
partitioner of ExecuTorch 1.5.1 does not take (`ToDimOrderCopyConfig`), so that a chunk would fall into eight pieces a layer; and a CPU
with half-precision arithmetic. What the precision gives is a file of half the size and float32's accuracy but for the rounding of weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from etcli.common.errors import ExportError

LARGEST = torch.finfo(torch.float16).max


@dataclass(frozen=True)
class Float16:
    """The weight stays a float32 tensor, whose every value float16 holds exactly."""

    name: str = "fp16"
    grouped: bool = False
    exact: bool = False
    stored_as_half: bool = True
    rounds_activations: bool = False

    def quantise(self, linear: nn.Linear, group_size: int | None) -> None:
        """As `Quantizer.quantise`.

        Raises:
            ExportError: `export.not_half`, a weight is beyond float16's range.
        """
        rounded = linear.weight.to(torch.float16)
        if not torch.isfinite(rounded).all():
            raise ExportError(
                f"a weight of {linear.weight.abs().max().item():.3g} is beyond float16, which ends at {LARGEST:.0f}",
                code="export.not_half",
                hint="Use precision fp32 or 8da4w for this network.",
            )
        linear.weight = nn.Parameter(rounded.to(torch.float32), requires_grad=False)

    def blobs(self, weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """As `Quantizer.blobs`."""
        yield "data", weight.to(torch.float16)
