"""The network's weights for one pass after another: held in memory where they fit, read anew for every pass where they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

from etcli.checkpoint.base import Checkpoint
from etcli.checkpoint.layout import expected_shapes
from etcli.checkpoint.sizes import loaded_bytes
from etcli.common.memory import available_bytes
from etcli.llama.chunk import Chunk
from etcli.llama.weights import load_embedding, load_embedding_rows, load_weights
from etcli.manifests.model import ModelConfig


class Passes(Protocol):
    """What a decoder needs for a pass over the network: rows of the embedding, then chunks of one layer each, the last with the head."""

    def embed(self, ids: list[int]) -> torch.Tensor:
        """Embedding rows, float32 `[1, len(ids), H]`."""

    def chunks(self) -> Iterator[Chunk]:
        """The layers in order. A chunk is only promised to live until the next is asked for."""


@dataclass(frozen=True)
class Rounding:
    """What a precision does to the weights.

    Attributes:
        quantise: changes a chunk with float32 weights in place.
        rows: gives float32 embedding rows `[n, H]` as they are after they were stored.
    """

    quantise: Callable[[Chunk], None]
    rows: Callable[[torch.Tensor], torch.Tensor]


class HeldPasses:
    """All weights, read once; in float32 where there is no `rounding`."""

    def __init__(self, checkpoint: Checkpoint, rounding: Rounding | None = None) -> None:
        self._rounding = rounding
        self._chunks = [_one_layer(checkpoint, layer, rounding) for layer in range(checkpoint.config.num_layers)]
        head = self._chunks[-1].lm_head
        tied = head is not None and checkpoint.config.tied_embeddings
        # a rounded head is no longer what the embedding is
        self._embedding = head.weight if tied and head is not None and rounding is None else load_embedding(checkpoint)

    def embed(self, ids: list[int]) -> torch.Tensor:
        """Embedding rows, float32 `[1, len(ids), H]`."""
        return _rounded(self._embedding[torch.tensor(ids)], self._rounding)

    def chunks(self) -> Iterator[Chunk]:
        """The layers in order."""
        return iter(self._chunks)


class StreamedPasses:
    """One layer in memory at a time: every pass reads the whole checkpoint."""

    def __init__(self, checkpoint: Checkpoint, rounding: Rounding | None = None) -> None:
        self._checkpoint, self._rounding = checkpoint, rounding

    def embed(self, ids: list[int]) -> torch.Tensor:
        """Embedding rows, float32 `[1, len(ids), H]`."""
        return _rounded(load_embedding_rows(self._checkpoint, ids), self._rounding)

    def chunks(self) -> Iterator[Chunk]:
        """The layers in order, each gone when the next is asked for."""
        for layer in range(self._checkpoint.config.num_layers):
            yield _one_layer(self._checkpoint, layer, self._rounding)


def held_bytes(config: ModelConfig) -> int:
    """Memory of all weights as they are read, float32 but for AQLM's codes; a tied head counts once."""
    return sum(loaded_bytes(name, shape) for name, shape in expected_shapes(config).items())


def fits_in_memory(config: ModelConfig) -> bool:
    """Whether the weights as they are read take at most half of the memory that is free now."""
    return 2 * held_bytes(config) <= available_bytes()


def _rounded(rows: torch.Tensor, rounding: Rounding | None) -> torch.Tensor:
    return (rows if rounding is None else rounding.rows(rows)).unsqueeze(0)


def _one_layer(checkpoint: Checkpoint, layer: int, rounding: Rounding | None) -> Chunk:
    chunk = Chunk(checkpoint.config, layer, 1, head=layer == checkpoint.config.num_layers - 1).eval()
    load_weights(chunk, checkpoint)
    if rounding is not None:
        rounding.quantise(chunk)
    return chunk
