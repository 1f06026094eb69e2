"""The network's weights for one pass after another: held in memory where they fit, read anew for every pass where they do not."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Protocol

import torch

from etcli.checkpoint.base import Checkpoint
from etcli.checkpoint.layout import expected_shapes
from etcli.common.memory import available_bytes
from etcli.llama.chunk import Chunk
from etcli.llama.weights import load_embedding, load_weights
from etcli.manifests.model import ModelConfig


class Passes(Protocol):
    """What a decoder needs for a pass over the network: rows of the embedding, then chunks of one layer each, the last with the head."""

    def embed(self, ids: list[int]) -> torch.Tensor:
        """Embedding rows, float32 `[1, len(ids), H]`."""

    def chunks(self) -> Iterator[Chunk]:
        """The layers in order. A chunk is only promised to live until the next is asked for."""


class HeldPasses:
    """All weights in float32, read once."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._chunks = [_one_layer(checkpoint, layer) for layer in range(checkpoint.config.num_layers)]
        head = self._chunks[-1].lm_head
        shared = head.weight if head is not None and checkpoint.config.tied_embeddings else None
        self._embedding = load_embedding(checkpoint) if shared is None else shared

    def embed(self, ids: list[int]) -> torch.Tensor:
        """Embedding rows, float32 `[1, len(ids), H]`."""
        return self._embedding[torch.tensor(ids)].unsqueeze(0)

    def chunks(self) -> Iterator[Chunk]:
        """The layers in order."""
        return iter(self._chunks)


class StreamedPasses:
    """One layer in memory at a time: every pass reads the whole checkpoint."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    def embed(self, ids: list[int]) -> torch.Tensor:
        """Embedding rows, float32 `[1, len(ids), H]`."""
        return load_embedding(self._checkpoint)[torch.tensor(ids)].unsqueeze(0)

    def chunks(self) -> Iterator[Chunk]:
        """The layers in order, each gone when the next is asked for."""
        for layer in range(self._checkpoint.config.num_layers):
            yield _one_layer(self._checkpoint, layer)


def float32_bytes(config: ModelConfig) -> int:
    """Memory of all weights in float32; a tied head counts once."""
    return 4 * sum(prod(shape) for shape in expected_shapes(config).values())


def fits_in_memory(config: ModelConfig) -> bool:
    """Whether the float32 weights take at most half of the memory that is free now."""
    return 2 * float32_bytes(config) <= available_bytes()


def _one_layer(checkpoint: Checkpoint, layer: int) -> Chunk:
    chunk = Chunk(checkpoint.config, layer, 1, head=layer == checkpoint.config.num_layers - 1).eval()
    load_weights(chunk, checkpoint)
    return chunk
