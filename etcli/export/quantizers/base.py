"""The Quantizer interface: what a precision does to a linear, and how its weight stands in a `.pte`.

Norms, rotary embedding, attention and the residual stream stay float32 in every precision: the residual stream of trained networks has
channels in the thousands, whose squares, which RMSNorm adds up, are beyond float16's largest number (65504), and the operators between
the linears cost little time and no weights. So a chunk's inputs and outputs, and with them every runner, are the same in all precisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn


@dataclass(frozen=True)
class StoredBlob:
    """One constant of a chunk as lowering for XNNPACK writes it.

    Attributes:
        parameter: the chunk's parameter that it is (a part) of.
        part: `data`, or `scale` for the scales of a quantised weight.
        tensor: its elements, row-major and little-endian, are the blob's bytes.
    """

    parameter: str
    part: str
    tensor: torch.Tensor

    def data(self) -> bytes:
        """The bytes, little-endian, row-major."""
        return self.tensor.contiguous().view(torch.uint8).numpy().tobytes()


class Quantizer(Protocol):
    """A precision of linears."""

    @property
    def name(self) -> str:
        """As `export.precision` or `export.head` names it."""

    @property
    def grouped(self) -> bool:
        """Whether a scale belongs to a group of weights, so that a group size is needed."""

    @property
    def exact(self) -> bool:
        """Whether the weight stays what was read, so that there is nothing to be lost."""

    @property
    def stored_as_half(self) -> bool:
        """Whether the float32 weight, which holds float16's values alone, is to be written as float16 (`Backend.lower`)."""

    @property
    def rounds_activations(self) -> bool:
        """Whether a linear's input is rounded to few steps at run time, so that a difference in its last bit can move it by a whole step."""

    def quantise(self, linear: nn.Linear, group_size: int | None) -> None:
        """Put the quantised weight in the place of the float32 one, which is free afterwards. A bias stays float32."""

    def blobs(self, weight: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """The parts of a quantised weight as XNNPACK stores them, as `StoredBlob.part` and `tensor`."""
