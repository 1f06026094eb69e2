"""Inputs on which an exported chunk is compared with the eager one."""

from __future__ import annotations

import torch

from etcli.llama.mask import additive_mask
from etcli.llama.rope import rope_table, rotary_input
from etcli.manifests.bundle import CacheKind, Shape
from etcli.manifests.model import ModelConfig


def sample_inputs(
    config: ModelConfig, layers: int, shape: Shape, cache: CacheKind, *, seed: int
) -> tuple[torch.Tensor, ...]:
    """A call of a chunk's method: random hidden states and caches, and a place as after half a cache of tokens.

    With cache `ring`, a quarter of the rows of a prompt call are padding, so that the comparison sees what a padded call gives.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens = shape.tokens
    seen = min(shape.cache // 2, shape.cache - tokens)
    table = rope_table(config.rope, config.head_dim, shape.cache)
    rotary = rotary_input(table, seen, tokens)
    if cache == "ring":
        valid = tokens - tokens // 4
        place = torch.tensor([seen, valid])
        rotary[:, :, valid:] = 0
    else:
        place = additive_mask(tokens, shape.cache, seen)
    caches = (
        torch.randn(1, config.num_kv_heads, shape.cache, config.head_dim, generator=generator)
        for _ in range(2 * layers)
    )
    return (torch.randn(1, tokens, config.hidden_size, generator=generator), place, rotary, *caches)
