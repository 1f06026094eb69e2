"""SIMULATED: stands in for MediaTek's converter. What it converts, only the simulated `mtk_neuron` compiles."""

from __future__ import annotations

from ._converter import PyTorchV2Converter
from ._refused import ConversionError

__version__ = "0+simulated"

__all__ = ["ConversionError", "PyTorchV2Converter"]
