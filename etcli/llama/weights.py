"""Filling a module's parameters from a checkpoint, one tensor at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from etcli.checkpoint.base import Checkpoint
from etcli.common.errors import CheckpointError, Problems

if TYPE_CHECKING:
    from etcli.llama.chunk import Chunk


def load_weights(chunk: Chunk, checkpoint: Checkpoint) -> None:
    """Fill every parameter of `chunk` in float32.

    Headers are compared first, so nothing is read when something does not fit, and every such tensor is named.

    Raises:
        CheckpointError: tensors are missing, of another shape, or cannot be read.
    """
    names = chunk.canonical_names()
    parameters = dict(chunk.named_parameters())
    problems = Problems()
    for name, parameter in parameters.items():
        _check(names[name], tuple(parameter.shape), checkpoint, problems)
    problems.raise_if_any()
    for name in parameters:
        owner, _, leaf = name.rpartition(".")
        tensor = checkpoint.read(names[name]).to(torch.float32)
        setattr(chunk.get_submodule(owner), leaf, nn.Parameter(tensor, requires_grad=False))


def load_embedding(checkpoint: Checkpoint) -> torch.Tensor:
    """The token embedding, float32 `[V, H]`.

    Raises:
        CheckpointError: it is missing, of another shape, or cannot be read.
    """
    config = checkpoint.config
    problems = Problems()
    _check("model.embed_tokens.weight", (config.vocab_size, config.hidden_size), checkpoint, problems)
    problems.raise_if_any()
    return checkpoint.read("model.embed_tokens.weight").to(torch.float32)


def _check(name: str, shape: tuple[int, ...], checkpoint: Checkpoint, problems: Problems) -> None:
    info = checkpoint.tensors.get(name)
    if info is None:
        problems.add(
            CheckpointError.problem(
                f"the checkpoint has no tensor {name}, which the network of its configuration needs",
                code="checkpoint.missing_tensor",
                hint="the download may be incomplete, or the configuration belongs to another model",
                file=checkpoint.path,
            )
        )
    elif tuple(info.shape) != shape:
        problems.add(
            CheckpointError.problem(
                f"{name} is {list(info.shape)}, the configuration asks for {list(shape)}",
                code="checkpoint.tensor_shape",
                hint="the configuration belongs to another model, or the tensor was converted wrongly",
                file=checkpoint.path,
            )
        )
