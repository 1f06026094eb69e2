"""Grouped-query attention over a cache that the model itself shifts (contract "shift": whole caches in, whole caches out)."""

from __future__ import annotations

import math

import torch
from torch import nn

from etcli.llama.linear import linear
from etcli.manifests.model import ModelConfig


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding in the rotate-half convention: x `[1, heads, T, D]`, cos and sin `[1, 1, T, D]` with each half written twice."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * sin


class Attention(nn.Module):
    """Multi-head (`num_kv_heads == num_heads`), grouped-query or multi-query (`num_kv_heads == 1`) attention."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        bias = config.attention_bias
        self.q_proj = linear(config.hidden_size, self.heads * self.head_dim, bias=bias)
        self.k_proj = linear(config.hidden_size, self.kv_heads * self.head_dim, bias=bias)
        self.v_proj = linear(config.hidden_size, self.kv_heads * self.head_dim, bias=bias)
        self.o_proj = linear(self.heads * self.head_dim, config.hidden_size, bias=bias)

    def forward(
        self,
        x: torch.Tensor,
        mask: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Attend to the cache and to the tokens of this call.

        Args:
            x: `[1, T, H]`.
            mask: additive `[1, 1, T, C+T]`, cache columns first.
            cos, sin: `[1, 1, T, D]`.
            key_cache, value_cache: `[1, NKV, C, D]`, keys rotated already, newest row last.

        Returns:
            The output `[1, T, H]` and both caches with the T new rows at the right end; the T oldest rows have fallen off the left.
        """
        heads, kv_heads, dim = self.heads, self.kv_heads, self.head_dim
        group, tokens = heads // kv_heads, x.shape[1]
        columns = key_cache.shape[2] + tokens
        query = self.q_proj(x).view(1, tokens, heads, dim).transpose(1, 2)
        key = self.k_proj(x).view(1, tokens, kv_heads, dim).transpose(1, 2)
        value = self.v_proj(x).view(1, tokens, kv_heads, dim).transpose(1, 2)

        query = rotate(query, cos, sin) * (1 / math.sqrt(dim))
        keys = torch.cat([key_cache, rotate(key, cos, sin)], dim=2)
        values = torch.cat([value_cache, value], dim=2)

        # The query heads of a group are rows of one 3-D product with their KV head, so keys and values are never repeated,
        # and XNNPACK, which multiplies 3-D batches, takes both products.
        rows = query.reshape(kv_heads, group * tokens, dim)
        scores = torch.bmm(rows, keys.view(kv_heads, columns, dim).transpose(1, 2))
        scores = scores.view(1, kv_heads, group, tokens, columns) + mask
        weights = torch.softmax(scores, dim=-1).view(kv_heads, group * tokens, columns)
        mixed = torch.bmm(weights, values.view(kv_heads, columns, dim)).view(1, heads, tokens, dim)
        output = self.o_proj(mixed.transpose(1, 2).reshape(1, tokens, heads * dim))
        return output, keys[:, :, tokens:], values[:, :, tokens:]
