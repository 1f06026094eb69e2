"""The operators of a chunk with `cache: ring`: attention over caches written in place, and the choice of the last valid row.

Importing this module registers `etcli::ring_attention` and `etcli::last_row` with PyTorch: schemas, fake kernels for `torch.export`, and
eager kernels in plain PyTorch that the compiled ones in `native/attention` are held to. The schemas are functional, caches go in and come
out, so that exported programs hold no hidden state; who runs the program gives each cache output the memory of its input, and the
compiled kernel then writes the new rows alone.
"""

from __future__ import annotations

import math
from typing import Any

import torch

NAMESPACE = "etcli"
RING_ATTENTION = f"{NAMESPACE}::ring_attention"
LAST_ROW = f"{NAMESPACE}::last_row"

_library: Any = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call] # PyTorch leaves it so
_ATTENTION_INPUTS = (
    "Tensor query, Tensor key, Tensor value, Tensor key_cache, Tensor value_cache, Tensor rotary, Tensor pos"
)
_library.define(f"ring_attention({_ATTENTION_INPUTS}) -> (Tensor, Tensor, Tensor)")
_library.define(
    f"ring_attention.out({_ATTENTION_INPUTS}, *, Tensor(a!) out, Tensor(b!) new_key_cache, Tensor(c!) new_value_cache)"
    " -> (Tensor(a!), Tensor(b!), Tensor(c!))"
)
_library.define("last_row(Tensor x, Tensor pos) -> Tensor")
_library.define("last_row.out(Tensor x, Tensor pos, *, Tensor(a!) out) -> Tensor(a!)")

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding in the rotate-half convention: x `[..., T, D]`; cos and sin, with each half written twice, broadcast to it."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * sin


def ring_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    rotary: torch.Tensor,
    pos: torch.Tensor,
) -> Triple:
    """Causal grouped-query attention of T new tokens, of which the first m count, to themselves and to the tokens in the caches.

    Args:
        query: `[1, T, NH * D]`, before rotary embedding.
        key, value: `[1, T, NKV * D]`, before rotary embedding.
        key_cache: `[1, NKV, C, D]`, whose memory holds rotated keys as `[NKV][D][C]`; the token at position p is in slot p mod C.
        value_cache: `[1, NKV, C, D]`, values as `[NKV][C][D]`.
        rotary: `[1, 2, T, D]`, cos plane then sin plane.
        pos: int64 `[2]`: position of the first token, and m.

    Returns:
        The mixed values `[1, T, NH * D]` with zeros in the rows from m on, and both caches with the m new rows written.

    Raises:
        ValueError: a position below 0, m outside 1..T, or more positions than slots: in a cache that is full, a call of several
            tokens would overwrite rows that its first tokens still look at, so runners stop before (`cache_full`).
    """
    _, kv_heads, slots, dim = key_cache.shape
    tokens, heads = query.shape[1], query.shape[2] // dim
    position, valid = (int(number) for number in pos)
    if position < 0 or not 1 <= valid <= tokens:
        raise ValueError(f"{valid} tokens from position {position} in a call of {tokens}")
    if position + valid > slots:
        raise ValueError(f"{valid} tokens from position {position} in caches of {slots}")
    seen = position
    cos, sin = rotary[0, 0, :valid], rotary[0, 1, :valid]
    rotated = rotate(query[0, :valid].view(valid, heads, dim).transpose(0, 1), cos, sin)
    new_keys = rotate(key[0, :valid].view(valid, kv_heads, dim).transpose(0, 1), cos, sin)
    new_values = value[0, :valid].view(valid, kv_heads, dim).transpose(0, 1)

    old_keys = key_cache.reshape(kv_heads, dim, slots)
    keys = torch.cat([old_keys[:, :, :seen], new_keys.transpose(1, 2)], dim=2)  # [NKV, D, seen + m]
    values = torch.cat([value_cache[0, :, :seen], new_values], dim=1)
    rows = rotated.reshape(kv_heads, heads // kv_heads * valid, dim) * (1 / math.sqrt(dim))
    scores = torch.bmm(rows, keys).view(kv_heads, heads // kv_heads, valid, seen + valid)
    later = torch.ones(valid, valid, dtype=torch.bool, device=scores.device).triu(1)
    scores[..., seen:].masked_fill_(later, -math.inf)
    weights = torch.softmax(scores, dim=-1).view(kv_heads, -1, seen + valid)
    mixed = torch.bmm(weights, values).view(heads, valid, dim)
    out = torch.zeros_like(query)
    out[0, :valid] = mixed.transpose(0, 1).reshape(valid, heads * dim)

    key_out, value_out = key_cache.clone(), value_cache.clone()
    key_out.view(kv_heads, dim, slots)[:, :, seen : seen + valid] = new_keys.transpose(1, 2)
    value_out[0][:, seen : seen + valid] = new_values
    return out, key_out, value_out


def last_row(x: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
    """Row m - 1 of x `[1, T, H]` as `[1, 1, H]`; `pos` as in `ring_attention`.

    Raises:
        ValueError: m outside 1..T.
    """
    valid = int(pos[1])
    if not 1 <= valid <= x.shape[1]:
        raise ValueError(f"row {valid - 1} of {x.shape[1]}")
    return x[:, valid - 1 : valid].clone()


def _ring_attention_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    rotary: torch.Tensor,
    pos: torch.Tensor,
    *,
    out: torch.Tensor,
    new_key_cache: torch.Tensor,
    new_value_cache: torch.Tensor,
) -> Triple:
    found = ring_attention(query, key, value, key_cache, value_cache, rotary, pos)
    for target, source in zip((out, new_key_cache, new_value_cache), found, strict=True):
        target.copy_(source)
    return out, new_key_cache, new_value_cache


def _last_row_out(x: torch.Tensor, pos: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return out.copy_(last_row(x, pos))


def _fake_ring_attention(
    query: torch.Tensor,
    _key: torch.Tensor,
    _value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    *_places: torch.Tensor,
) -> Triple:
    return torch.empty_like(query), torch.empty_like(key_cache), torch.empty_like(value_cache)


def _fake_last_row(x: torch.Tensor, _pos: torch.Tensor) -> torch.Tensor:
    return x.new_empty(1, 1, x.shape[2])


_library.impl("ring_attention", ring_attention, "CompositeExplicitAutograd")
_library.impl("ring_attention.out", _ring_attention_out, "CompositeExplicitAutograd")
_library.impl("last_row", last_row, "CompositeExplicitAutograd")
_library.impl("last_row.out", _last_row_out, "CompositeExplicitAutograd")
torch.library.register_fake(RING_ATTENTION, _fake_ring_attention, lib=_library)
torch.library.register_fake(LAST_ROW, _fake_last_row, lib=_library)
