"""Which precisions there are, and what each does to a chunk. Adding one is a module and a line here."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping

from torch import nn

from etcli.export.job import PrecisionSettings
from etcli.export.quantizers.base import Quantizer, StoredBlob
from etcli.llama.chunk import Chunk

HEAD = "lm_head"

_CLASSES = {
    "fp32": ("fp32", "Float32"),
    "fp16": ("fp16", "Float16"),
    "8da4w": ("int4_groups", "Int4Groups"),
    "8da8w": ("int8_channels", "Int8Channels"),
    "aqlm": ("aqlm", "Aqlm"),
}


class _Quantizers(Mapping[str, Quantizer]):
    """Imports a precision's module when it is asked for: torchao, which some need, takes longer to import than fp32 chunks take to make."""

    def __getitem__(self, name: str) -> Quantizer:
        return _made(*_CLASSES[name])

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


@functools.cache
def _made(module: str, name: str) -> Quantizer:
    quantizer: Quantizer = getattr(importlib.import_module(f"etcli.export.quantizers.{module}"), name)()
    return quantizer


QUANTIZERS: Mapping[str, Quantizer] = _Quantizers()


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


def is_exact(settings: PrecisionSettings) -> bool:
    """Whether `quantise` leaves every weight of a network as it is."""
    return QUANTIZERS[settings.precision].exact and QUANTIZERS[settings.head].exact


def leaves_alone(chunk: Chunk, settings: PrecisionSettings) -> bool:
    """Whether `quantise` leaves every weight of `chunk` as it is."""
    return all(_quantizer(name, settings).exact for name, _ in _linears(chunk))


def rounds_activations(chunk: Chunk, settings: PrecisionSettings) -> bool:
    """Whether any linear's input is rounded at run time."""
    return any(_quantizer(name, settings).rounds_activations for name, _ in _linears(chunk))


def stored_blobs(chunk: Chunk, settings: PrecisionSettings) -> Iterator[StoredBlob]:
    """Every parameter of a chunk that `quantise` has been through, as XNNPACK's lowering stores it, one after the other."""
    linears = {name: _quantizer(name, settings) for name, _ in _linears(chunk)}
    for name, parameter in chunk.named_parameters():
        owner, _, leaf = name.rpartition(".")
        quantizer = linears[owner] if owner in linears and leaf == "weight" else QUANTIZERS["fp32"]
        for part, tensor in quantizer.blobs(parameter.detach()):
            yield StoredBlob(name, part, tensor)


def _quantizer(name: str, settings: PrecisionSettings) -> Quantizer:
    return QUANTIZERS[settings.head if name == HEAD else settings.precision]


def _linears(chunk: Chunk) -> list[tuple[str, nn.Linear]]:
    return [(name, module) for name, module in chunk.named_modules() if isinstance(module, nn.Linear)]
