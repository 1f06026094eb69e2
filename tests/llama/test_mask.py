"""The additive mask, against a literal reading of the cache contract, entry by entry."""

from __future__ import annotations

import pytest
import torch

from etcli.llama.mask import additive_mask


def literal(tokens: int, cache: int, seen: int, left: int, right: int) -> torch.Tensor:
    """The contract's sentences as loops."""
    rows = torch.full((tokens, cache + tokens), -100.0)
    for row in range(left, tokens - right):
        for column in range(cache - min(cache, seen), cache):
            rows[row, column] = 0
        for column in range(cache + left, cache + row + 1):
            rows[row, column] = 0
    return rows.reshape(1, 1, tokens, cache + tokens)


@pytest.mark.parametrize("tokens", [1, 2, 5])
@pytest.mark.parametrize("cache", [5, 9])
@pytest.mark.parametrize("seen", [0, 1, 4, 9, 30])
def test_every_entry(tokens: int, cache: int, seen: int) -> None:
    for padding in range(tokens):
        assert additive_mask(tokens, cache, seen, left_padding=padding).equal(literal(tokens, cache, seen, padding, 0))
        assert additive_mask(tokens, cache, seen, right_padding=padding).equal(literal(tokens, cache, seen, 0, padding))


@pytest.mark.parametrize(("left", "right"), [(1, 1), (4, 0), (0, 4), (-1, 0)])
def test_impossible_padding_is_refused(left: int, right: int) -> None:
    with pytest.raises(ValueError, match="padd"):
        additive_mask(4, 8, 0, left, right)
