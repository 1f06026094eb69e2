"""The constants of a chunk as a program stores them, for making templates and filling them. Imports torch: workers only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import torch
from torch.export import ExportedProgram

from etcli.export.quantizers.base import StoredBlob
from etcli.export.templates.cutting import Constant
from etcli.llama.chunk import Chunk


def buffer_blobs(chunk: Chunk) -> Iterator[StoredBlob]:
    """Every constant that no weight determines."""
    for name, buffer in chunk.named_buffers():
        yield StoredBlob(name, "data", buffer)


def constants(blobs: Iterable[StoredBlob]) -> Iterator[Constant]:
    """What `cutting.cut` looks for. One blob at a time is held."""
    for blob in blobs:
        data = blob.data()
        yield Constant(blob.parameter, blob.part, len(data), hashlib.sha256(data).hexdigest())


def number_blobs(programs: Iterable[ExportedProgram]) -> Iterator[StoredBlob]:
    """Every number written in the graphs: lowering makes constants of those that are factors and addends."""
    numbers = {
        float(argument)
        for program in programs
        for node in program.graph.nodes
        for argument in node.args
        if isinstance(argument, int | float)
    }
    for number in sorted(numbers):
        yield StoredBlob(repr(number), "number", torch.tensor([number], dtype=torch.float32))
