"""The additive attention mask that a runner gives to every chunk (contract "shift")."""

from __future__ import annotations

import torch

CLOSED = -100.0
"""What is added to a score that must not count: finite, so that a row with nothing open stays a number."""


def additive_mask(tokens: int, cache: int, seen: int, left_padding: int = 0, right_padding: int = 0) -> torch.Tensor:
    """Float32 `[1, 1, tokens, cache + tokens]`: 0 where a row may look, -100 elsewhere.

    Columns `0 .. cache-1` are cache slots, right-aligned: the last `min(cache, seen)` are open to every row. The other columns are the
    tokens of this call, causal. Rows of padding are closed; columns of left padding are closed to all.

    Args:
        tokens: rows of the call, padding included.
        cache: cache slots.
        seen: real tokens of earlier calls.

    Raises:
        ValueError: padding on both sides, or nothing but padding.
    """
    if left_padding and right_padding:
        raise ValueError("a call is padded on one side only")
    if not 0 <= left_padding + right_padding < tokens:
        raise ValueError(f"{left_padding + right_padding} rows of padding in a call of {tokens}")
    row = torch.arange(tokens).unsqueeze(1)
    column = torch.arange(tokens).unsqueeze(0)
    recent = (column <= row) & (column >= left_padding)
    past = (torch.arange(cache) >= cache - min(cache, seen)).expand(tokens, cache)
    real = (row >= left_padding) & (row < tokens - right_padding)
    is_open = torch.cat([past, recent], dim=1) & real
    return torch.where(is_open, 0.0, CLOSED).reshape(1, 1, tokens, cache + tokens)
