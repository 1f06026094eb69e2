"""Which precisions there are, and what each does to a chunk. Adding one is a module and a line here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import nn

from etcli.export.job import PrecisionSettings
from etcli.export.quantizers.base import Quantizer, StoredBlob
from etcli.export.quantizers.fp16 import Float16
from etcli.export.quantizers.fp32 import Float32
from etcli.export.quantizers.int4_groups import Int4Groups
from etcli.export.quantizers.int8_channels import Int8Channels
from etcli.llama.chunk import Chunk

HEAD = "lm_head"

QUANTIZERS: Mapping[str, Quantizer] = {
    quantizer.name: quantizer for quantizer in (Float32(), Float16(), Int4Groups(), Int8Channels())
}


def quantise(chunk: Chunk, settings: PrecisionSettings) -> None:
    """Quantise every linear of `chunk` in place, one at a time, each float32 weight freed before the next.

    Raises:
        ExportError: a weight that the precision cannot hold.
    """
    for name, linear in _linears(chunk):
        _quantizer(name, settings).quantise(linear, settings.group_size)


def half_weights(chunk: Chunk, settings: PrecisionSettings) -> frozenset[str]:
    """The parameters that `Backend.lower` is to write as float16."""
    return frozenset(f"{name}.weight" for name, _ in _linears(chunk) if _quantizer(name, settings).stored_as_half)


def stored_blobs(chunk: Chunk, settings: PrecisionSettings) -> Iterator[StoredBlob]:
    """Every parameter of a chunk that `quantise` has been through, as XNNPACK's lowering stores it, one after the other."""
    linears = {name: _quantizer(name, settings) for name, _ in _linears(chunk)}
    for name, parameter in chunk.named_parameters():
        owner, _, leaf = name.rpartition(".")
        quantizer = linears[owner] if owner in linears and leaf == "weight" else QUANTIZERS["fp32"]
        for part, tensor in quantizer.blobs(parameter.detach()):
            yield StoredBlob(name, part, tensor, named=owner in linears)


def _quantizer(name: str, settings: PrecisionSettings) -> Quantizer:
    return QUANTIZERS[settings.head if name == HEAD else settings.precision]


def _linears(chunk: Chunk) -> list[tuple[str, nn.Linear]]:
    return [(name, module) for name, module in chunk.named_modules() if isinstance(module, nn.Linear)]
