"""The native runner's loop in Python over eager chunks, for comparisons of what chunks compute with what transformers computes."""

from __future__ import annotations

import torch

from etcli.checkpoint.base import Checkpoint
from etcli.llama.caches import clear_left_padding, empty_caches
from etcli.llama.chunk import Chunk
from etcli.llama.mask import additive_mask
from etcli.llama.prefill import split_prompt
from etcli.llama.rope import rope_table, rotary_input
from etcli.llama.weights import load_embedding, load_weights
from etcli.manifests.bundle import CacheKind


class RunnerInPython:
    """The cache contract of the native runner over eager chunks: left-padded first call, caches fed back, chunk by chunk."""

    CACHE: CacheKind = "shift"

    def __init__(self, checkpoint: Checkpoint, chunks: int, cache: int) -> None:
        config = checkpoint.config
        layers = config.num_layers // chunks
        self.chunks = [
            Chunk(config, k * layers, layers, head=k == chunks - 1, cache=self.CACHE).eval() for k in range(chunks)
        ]
        for chunk in self.chunks:
            load_weights(chunk, checkpoint)
        self.caches: list[tuple[torch.Tensor, ...]] = [empty_caches(config, layers, cache) for _ in self.chunks]
        self.embedding = load_embedding(checkpoint)
        self.table = rope_table(config.rope, config.head_dim, cache)
        self.cache, self.seen = cache, 0

    def call(self, ids: list[int], padding: int = 0) -> torch.Tensor:
        """Logits of the real rows."""
        tokens = padding + len(ids)
        hidden = self.embedding[torch.tensor([0] * padding + ids)].unsqueeze(0)
        mask = additive_mask(tokens, self.cache, self.seen, left_padding=padding)
        rotary = rotary_input(self.table, self.seen, tokens, left_padding=padding)
        for index, chunk in enumerate(self.chunks):
            hidden, *caches = chunk(hidden, mask, rotary, *self.caches[index])
            self.caches[index] = tuple(cache.contiguous() for cache in caches)
            clear_left_padding(self.caches[index], tokens, padding)
        self.seen += len(ids)
        return hidden[0, padding:]

    def prefill(self, ids: list[int], shapes: list[int]) -> torch.Tensor:
        rows, start = [], 0
        for call in split_prompt(len(ids), shapes):
            rows.append(self.call(ids[start : start + call.real], call.padding))
            start += call.real
        return torch.cat(rows)


class RingRunnerInPython(RunnerInPython):
    """The same over ring caches: calls padded on the right, logits of the last real row alone."""

    CACHE: CacheKind = "ring"

    def call(self, ids: list[int], padding: int = 0) -> torch.Tensor:
        """Logits of the last real row, `[1, V]`."""
        tokens = padding + len(ids)
        hidden = self.embedding[torch.tensor(ids + [0] * padding)].unsqueeze(0)
        rotary = torch.zeros(1, 2, tokens, self.table.shape[2])
        rotary[:, :, : len(ids)] = rotary_input(self.table, self.seen, len(ids))
        for index, chunk in enumerate(self.chunks):
            hidden, *caches = chunk(hidden, torch.tensor([self.seen, len(ids)]), rotary, *self.caches[index])
            self.caches[index] = tuple(caches)
        self.seen += len(ids)
        assert hidden.shape[1] == 1
        return hidden[0]
