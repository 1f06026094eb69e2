"""Filling a module's parameters from a checkpoint, one tensor at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from etcli.checkpoint.base import Checkpoint
from etcli.checkpoint.layout import EMBEDDING, layout_problems
from etcli.checkpoint.sizes import CODES
from etcli.common.errors import CheckpointError

if TYPE_CHECKING:
    from etcli.llama.chunk import Chunk


def load_weights(chunk: Chunk, checkpoint: Checkpoint) -> None:
    """Fill every parameter of `chunk`: in float32, and AQLM's codes as they are, with inputs before outputs.

    Headers are compared first, those of the whole network, so nothing is read when something does not fit.

    Raises:
        CheckpointError: naming every tensor that is missing or of another shape, or the one that cannot be read or is not finite.
    """
    problems = list(layout_problems(chunk.config, checkpoint.tensors, checkpoint.path))
    if problems:
        raise CheckpointError.many(problems)
    for name, sources in chunk.sources().items():
        owner, _, leaf = name.rpartition(".")
        if name.endswith(CODES):
            # the checkpoint's [out, in / 8, M], turned once for the kernels, which go over the outputs of one group of inputs
            tensor = checkpoint.read(sources[0]).transpose(0, 1).contiguous()
        else:
            tensor = _stacked(checkpoint, sources, chunk.get_parameter(name).shape)
        setattr(chunk.get_submodule(owner), leaf, nn.Parameter(tensor, requires_grad=False))


def load_embedding(checkpoint: Checkpoint) -> torch.Tensor:
    """The token embedding, float32 `[V, H]`.

    Raises:
        CheckpointError: it is missing, cannot be read or is not finite.
    """
    return _finite(checkpoint, EMBEDDING)


def load_embedding_blocks(checkpoint: Checkpoint, rows: int) -> Iterator[torch.Tensor]:
    """The token embedding as consecutive blocks `[rows, H]` (the last may be shorter), without the others in memory where the format allows.

    Raises:
        CheckpointError: as `load_embedding`.
    """
    count = checkpoint.config.vocab_size
    for start in range(0, count, rows):
        stop = min(start + rows, count)
        yield _checked(checkpoint, EMBEDDING, checkpoint.read_rows(EMBEDDING, start, stop), first_row=start)


def load_embedding_rows(checkpoint: Checkpoint, ids: Sequence[int]) -> torch.Tensor:
    """Rows of the token embedding, float32 `[len(ids), H]`, without reading the others where the format allows.

    Raises:
        CheckpointError: as `load_embedding`.
    """
    rows = {
        token: _checked(checkpoint, EMBEDDING, checkpoint.read_rows(EMBEDDING, token, token + 1), first_row=token)
        for token in set(ids)
    }
    return torch.cat([rows[token] for token in ids])


def _stacked(checkpoint: Checkpoint, names: tuple[str, ...], shape: torch.Size) -> torch.Tensor:
    """Tensors one below the other, read one at a time into their place."""
    if len(names) == 1:
        return _finite(checkpoint, names[0])
    whole, row = torch.empty(shape), 0
    for name in names:
        tensor = _finite(checkpoint, name)
        whole[row : row + tensor.shape[0]] = tensor
        row += tensor.shape[0]
    return whole


def _finite(checkpoint: Checkpoint, name: str) -> torch.Tensor:
    """A tensor in float32 without infinities and NaN, which no training leaves and one of which spoils every answer that meets it."""
    return _checked(checkpoint, name, checkpoint.read(name).to(torch.float32))


def _checked(checkpoint: Checkpoint, name: str, tensor: torch.Tensor, first_row: int | None = None) -> torch.Tensor:
    # smallest and largest, either of them NaN if any is: unlike isfinite they need no memory of the tensor's size
    if tensor.numel() and not torch.isfinite(torch.stack(torch.aminmax(tensor))).all():
        count = int((~torch.isfinite(tensor)).sum())
        rows = "" if first_row is None else f" in rows {first_row} to {first_row + tensor.shape[0] - 1}"
        raise CheckpointError(
            f"{name} holds infinities or NaN: {count} of {tensor.numel()} numbers{rows}",
            code="checkpoint.not_finite",
            hint="The tensor is damaged or was converted wrongly: fetch the checkpoint again, and compare its sha256.",
            file=checkpoint.path,
        )
    return tensor
