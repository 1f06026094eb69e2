"""Grouped-query attention, one class for each kind of KV cache."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import nn

from etcli.llama.linear import LayerLinears, linear
from etcli.llama.norm import RMSNorm
from etcli.manifests.bundle import CacheKind
from etcli.manifests.model import ModelConfig
from etcli.ops.attention import rotate

Attended = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Attention(nn.Module):
    """What all kinds share: the projections of multi-head, grouped-query and multi-query (`num_kv_heads == 1`) attention.

    Query, key and value are one linear, taken apart with slices: one product over the same input is faster than three, and a dynamically
    quantised one quantises its input once. In AQLM networks they are three, each with codebooks of its own.
    """

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        hidden, queries, keys = config.hidden_size, self.heads * self.head_dim, self.kv_heads * self.head_dim
        linears, bias = LayerLinears(config, layer), config.attention_bias
        self.fused = config.aqlm is None
        if self.fused:
            self.qkv_proj = linear(hidden, queries + 2 * keys, bias=bias)
        else:
            self.q_proj = linears.make("self_attn.q_proj", hidden, queries, bias=bias)
            self.k_proj = linears.make("self_attn.k_proj", hidden, keys, bias=bias)
            self.v_proj = linears.make("self_attn.v_proj", hidden, keys, bias=bias)
        self.o_proj = linears.make("self_attn.o_proj", queries, hidden, bias=config.attention_output_bias)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps) if config.qk_norm else None

    def project(self, x: torch.Tensor) -> Attended:
        """Query `[1, T, NH * D]`, key and value `[1, T, NKV * D]` of x `[1, T, H]`, query and key normalised where the network does so."""
        query, key, value = self._products(x)
        return _normalised(self.q_norm, query, self.heads), _normalised(self.k_norm, key, self.kv_heads), value

    def _products(self, x: torch.Tensor) -> Attended:
        if not self.fused:
            return self.q_proj(x), self.k_proj(x), self.v_proj(x)
        both = self.qkv_proj(x)
        query_end = self.heads * self.head_dim
        key_end = query_end + self.kv_heads * self.head_dim
        return both[..., :query_end], both[..., query_end:key_end], both[..., key_end:]

    @staticmethod
    def prepare(place: torch.Tensor, rotary: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What `attend` takes after the caches, from a chunk's second and third input; the same for all layers."""
        raise NotImplementedError

    def attend(
        self, x: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, *prepared: torch.Tensor
    ) -> Attended:
        """Mixed values `[1, T, NH * D]`, which `o_proj` is still to take, and both caches as they are after this call."""
        raise NotImplementedError


class ShiftAttention(Attention):
    """Whole caches in, whole caches out, the newest row last (MediaTek's contract)."""

    @staticmethod
    def prepare(place: torch.Tensor, rotary: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The additive mask `[1, 1, T, C+T]`, cache columns first, and the cos and sin planes `[1, 1, T, D]`."""
        return place, rotary[:, 0:1], rotary[:, 1:2]

    def attend(
        self, x: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, *prepared: torch.Tensor
    ) -> Attended:
        """As `Attention.attend`: caches come out with the T new rows at the right end; the T oldest have fallen off the left."""
        mask, cos, sin = prepared
        heads, kv_heads, dim = self.heads, self.kv_heads, self.head_dim
        group, tokens = heads // kv_heads, x.shape[1]
        columns = key_cache.shape[2] + tokens
        query, key, value = self.project(x)
        query = query.view(1, tokens, heads, dim).transpose(1, 2)
        key = key.view(1, tokens, kv_heads, dim).transpose(1, 2)
        value = value.view(1, tokens, kv_heads, dim).transpose(1, 2)

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
        mixed = mixed.transpose(1, 2).reshape(1, tokens, heads * dim)
        return mixed, keys[:, :, tokens:], values[:, :, tokens:]


class SplitShiftAttention(ShiftAttention):
    """The same for chunks that custom operators cut into pieces: those of AQLM.

    XNNPACK's partitioner puts what nobody in the chunk reads, the new caches of `ShiftAttention`, at the very end of the graph, so that
    each layer's keys and values, T + C rows, wait for it in memory of the program's own. Here attention reads the new caches, and the T
    rows that fall off them by themselves: the caches are written where they are made.
    """

    def attend(
        self, x: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, *prepared: torch.Tensor
    ) -> Attended:
        """As `ShiftAttention.attend`."""
        mask, cos, sin = prepared
        heads, kv_heads, dim = self.heads, self.kv_heads, self.head_dim
        group, tokens, slots = heads // kv_heads, x.shape[1], key_cache.shape[2]
        # Before the new caches in the program's order too: who runs it gives them the memory of the old ones.
        old_keys = key_cache[:, :, :tokens].reshape(kv_heads, tokens, dim)
        old_values = value_cache[:, :, :tokens].reshape(kv_heads, tokens, dim)
        query, key, value = self.project(x)
        query = query.view(1, tokens, heads, dim).transpose(1, 2)
        key = key.view(1, tokens, kv_heads, dim).transpose(1, 2)
        value = value.view(1, tokens, kv_heads, dim).transpose(1, 2)

        query = rotate(query, cos, sin) * (1 / math.sqrt(dim))
        keys = torch.cat([key_cache, rotate(key, cos, sin)], dim=2)[:, :, tokens:]
        values = torch.cat([value_cache, value], dim=2)[:, :, tokens:]

        rows = query.reshape(kv_heads, group * tokens, dim)
        scores = torch.cat(
            [
                torch.bmm(rows, old_keys.transpose(1, 2)),
                torch.bmm(rows, keys.reshape(kv_heads, slots, dim).transpose(1, 2)),
            ],
            dim=2,
        )
        scores = scores.view(1, kv_heads, group, tokens, tokens + slots) + mask
        weights = torch.softmax(scores, dim=-1).view(kv_heads, group * tokens, tokens + slots)
        mixed = torch.bmm(weights[..., :tokens], old_values)
        mixed = mixed + torch.bmm(weights[..., tokens:], values.reshape(kv_heads, slots, dim))
        mixed = mixed.view(1, heads, tokens, dim).transpose(1, 2).reshape(1, tokens, heads * dim)
        return mixed, keys, values


class RingAttention(Attention):
    """Caches written in place by one operator a layer, which also does the rotary embedding."""

    @staticmethod
    def prepare(place: torch.Tensor, rotary: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Rotary `[1, 2, T, D]` and position, as the operator takes them."""
        return rotary, place

    def attend(
        self, x: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, *prepared: torch.Tensor
    ) -> Attended:
        """As `Attention.attend`: see `ops.attention.ring_attention`."""
        found: Attended = torch.ops.etcli.ring_attention(*self.project(x), key_cache, value_cache, *prepared)
        return found


ATTENTION: Mapping[CacheKind, type[Attention]] = {"shift": ShiftAttention, "ring": RingAttention}
"""The attention for each kind of cache."""


def attention_class(config: ModelConfig, cache: CacheKind) -> type[Attention]:
    """The attention of a network with this kind of cache."""
    return SplitShiftAttention if config.aqlm is not None and cache == "shift" else ATTENTION[cache]


def _normalised(norm: RMSNorm | None, x: torch.Tensor, heads: int) -> torch.Tensor:
    if norm is None:
        return x
    normalised: torch.Tensor = norm(x.reshape(1, x.shape[1], heads, -1))
    return normalised.reshape(x.shape)
