"""Inputs on which an exported chunk is compared with the eager one."""

from __future__ import annotations

import torch

from etcli.llama.mask import additive_mask
from etcli.llama.rope import rope_table, rotary_input
from etcli.manifests.bundle import Shape
from etcli.manifests.model import ModelConfig


def sample_inputs(config: ModelConfig, layers: int, shape: Shape, *, seed: int) -> tuple[torch.Tensor, ...]:
    """A call of a chunk's method: random hidden states and caches, mask and positions as after half a cache of tokens."""
    generator = torch.Generator().manual_seed(seed)
    seen = min(shape.cache // 2, shape.cache - shape.tokens)
    table = rope_table(config.rope, config.head_dim, shape.cache)
    caches = (
        torch.randn(1, config.num_kv_heads, shape.cache, config.head_dim, generator=generator)
        for _ in range(2 * layers)
    )
    return (
        torch.randn(1, shape.tokens, config.hidden_size, generator=generator),
        additive_mask(shape.tokens, shape.cache, seen),
        rotary_input(table, seen, shape.tokens),
        *caches,
    )
