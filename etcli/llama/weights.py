"""Filling a module's parameters from a checkpoint, one tensor at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from etcli.checkpoint.base import Checkpoint
from etcli.checkpoint.layout import EMBEDDING, layout_problems
from etcli.common.errors import CheckpointError

if TYPE_CHECKING:
    from etcli.llama.chunk import Chunk


def load_weights(chunk: Chunk, checkpoint: Checkpoint) -> None:
    """Fill every parameter of `chunk` in float32.

    Headers are compared first, those of the whole network, so nothing is read when something does not fit.

    Raises:
        CheckpointError: naming every tensor that is missing or of another shape, or the one that cannot be read.
    """
    problems = list(layout_problems(chunk.config, checkpoint.tensors, checkpoint.path))
    if problems:
        raise CheckpointError.many(problems)
    for name, canonical in chunk.canonical_names().items():
        owner, _, leaf = name.rpartition(".")
        tensor = checkpoint.read(canonical).to(torch.float32)
        setattr(chunk.get_submodule(owner), leaf, nn.Parameter(tensor, requires_grad=False))


def load_embedding(checkpoint: Checkpoint) -> torch.Tensor:
    """The token embedding, float32 `[V, H]`.

    Raises:
        CheckpointError: it is missing or cannot be read.
    """
    return checkpoint.read(EMBEDDING).to(torch.float32)
