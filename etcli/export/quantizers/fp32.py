"""Precision `fp32`: weights as they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Float32:
    """Nothing is done."""

    name: str = "fp32"
    grouped: bool = False
    exact: bool = True
    stored_as_half: bool = False
    rounds_activations: bool = False

    def quantise(self, linear: nn.Linear, group_size: int | None) -> None:
        """As `Quantizer.quantise`."""

    def blobs(self, weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """As `Quantizer.blobs`."""
        yield "data", weight
