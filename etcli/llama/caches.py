"""Key and value caches of the contract "shift": whole caches in and out of every call, newest row last."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from etcli.manifests.model import ModelConfig


def empty_caches(config: ModelConfig, layers: int, cache: int) -> tuple[torch.Tensor, ...]:
    """Zero caches for a chunk: `2 * layers` float32 tensors `[1, NKV, cache, D]`, keys then values."""
    shape = (1, config.num_kv_heads, cache, config.head_dim)
    return tuple(torch.zeros(shape) for _ in range(2 * layers))


def clear_left_padding(caches: Iterable[torch.Tensor], tokens: int, padding: int) -> None:
    """Zero, in place, the rows that the padding of a left-padded call of `tokens` rows left in each cache."""
    for cache in caches:
        start = cache.shape[2] - tokens
        cache[:, :, start : start + padding].zero_()
