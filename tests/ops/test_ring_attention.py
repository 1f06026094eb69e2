"""The eager ring operators against attention written out in float64, and what they refuse."""

from __future__ import annotations

import math

import pytest
import torch

import etcli.ops.attention  # noqa: F401 - registers the operators


def literal(query, key, value, keys, values, rotary, position: int, valid: int):
    """Attention of each row alone, over lists of rotated keys and values by position; `keys` and `values` are extended."""
    heads, kv_heads, dim = query.shape[1], key.shape[1], query.shape[2]
    rows = []
    for row in range(valid):
        cos, sin = rotary[0, row], rotary[1, row]

        def turn(x, cos=cos, sin=sin):
            half = dim // 2
            first = x[:half] * cos[:half] - x[half:] * sin[:half]
            return torch.cat([first, x[half:] * cos[half:] + x[:half] * sin[half:]])

        keys.append([turn(key[row, head]) for head in range(kv_heads)])
        values.append([value[row, head] for head in range(kv_heads)])
        mixed = []
        for head in range(heads):
            owner = head * kv_heads // heads
            turned = turn(query[row, head])
            scores = torch.stack([turned @ past[owner] for past in keys]) / math.sqrt(dim)
            weights = torch.softmax(scores, 0)
            mixed.append(sum(weight * past[owner] for weight, past in zip(weights, values, strict=True)))
        rows.append(torch.cat(mixed))
    return torch.stack(rows)


@pytest.mark.parametrize(("heads", "kv_heads", "dim", "slots"), [(4, 2, 8, 16), (3, 3, 6, 11), (5, 1, 2, 9)])
def test_calls_one_after_another_match_attention_written_out(heads: int, kv_heads: int, dim: int, slots: int) -> None:
    generator = torch.Generator().manual_seed(heads)
    caches = [torch.full((1, kv_heads, slots, dim), math.nan) for _ in range(2)]  # what was not written must not count
    keys: list = []
    values: list = []
    position = 0
    for tokens, valid in ((4, 3), (1, 1), (4, 4), (1, 1)):
        query, key, value = (
            torch.randn(1, tokens, count * dim, generator=generator) for count in (heads, kv_heads, kv_heads)
        )
        angles = (
            torch.arange(position, position + tokens).double().outer(torch.rand(dim // 2, generator=generator).double())
        )
        rotary = torch.stack([torch.cat([f(angles)] * 2, 1) for f in (torch.cos, torch.sin)])
        expected = literal(
            query[0].double().view(tokens, heads, dim),
            key[0].double().view(tokens, kv_heads, dim),
            value[0].double().view(tokens, kv_heads, dim),
            keys,
            values,
            rotary,
            position,
            valid,
        )
        pos = torch.tensor([position, valid])
        out, *caches = torch.ops.etcli.ring_attention(query, key, value, *caches, rotary.float()[None], pos)
        torch.testing.assert_close(out[0, :valid].double(), expected, atol=1e-5, rtol=1e-5)
        assert not out[0, valid:].any()
        position += valid
    # the contract's places: [NKV][D][C] for keys, [NKV][C][D] for values
    for slot in range(position):
        for head in range(kv_heads):
            stored = caches[0].view(kv_heads, dim, slots)[head, :, slot]
            torch.testing.assert_close(stored.double(), keys[slot][head], atol=1e-6, rtol=1e-5)
            assert caches[1][0, head, slot].double().equal(values[slot][head])
    assert caches[1][0, :, position:].isnan().all()


def call(position: int, valid: int, tokens: int = 2):
    return torch.ops.etcli.ring_attention(
        torch.ones(1, tokens, 4),
        torch.ones(1, tokens, 2),
        torch.arange(tokens).float().view(1, tokens, 1).expand(1, tokens, 2),
        torch.zeros(1, 1, 3, 2),
        torch.zeros(1, 1, 3, 2),
        torch.zeros(1, 2, tokens, 2),
        torch.tensor([position, valid]),
    )


@pytest.mark.parametrize(("position", "valid"), [(-1, 1), (0, 0), (0, 3), (2, 2), (3, 1)])
def test_places_that_there_are_not_are_refused(position: int, valid: int) -> None:
    with pytest.raises(ValueError, match=f"{valid} tokens from position {position}"):
        call(position, valid)


@pytest.mark.parametrize("valid", [1, 2, 3])
def test_last_row_is_the_last_that_counts(valid: int) -> None:
    x = torch.arange(6.0).view(1, 3, 2)
    assert torch.ops.etcli.last_row(x, torch.tensor([7, valid])).equal(x[:, valid - 1 : valid])


@pytest.mark.parametrize("valid", [0, 4])
def test_last_row_refuses_rows_that_there_are_not(valid: int) -> None:
    with pytest.raises(ValueError, match="of 3"):
        torch.ops.etcli.last_row(torch.zeros(1, 3, 2), torch.tensor([0, valid]))
