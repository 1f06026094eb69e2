"""Precision `aqlm`: weights that the checkpoint holds as codes already. `AqlmLinear`, which has them, is no linear that is left to quantise.

What a checkpoint keeps from AQLM in its layers stays as it is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from etcli.export.quantizers.fp32 import Float32


@dataclass(frozen=True)
class Aqlm(Float32):
    """As fp32, for the linears that are none of AQLM's."""

    name: str = "aqlm"
