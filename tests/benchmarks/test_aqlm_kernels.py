"""What the benchmark of AQLM kernels holds its results against."""

from __future__ import annotations

import pytest
import torch
from aqlm_contenders import Product
from aqlm_kernels import ROTATED_BYTES, Example, _compared, _in_turn


def looked_up(example: Example, dtype: torch.dtype) -> torch.Tensor:
    """The product as the format describes it: entry by entry."""
    codes = example.next().to(torch.int64) & 0xFF
    books, inputs = example.codebooks.to(dtype), example.input.to(dtype)
    out = torch.zeros(inputs.shape[0], codes.shape[1], dtype=dtype)
    for group, of_group in enumerate(codes):
        for book in range(2):
            out += inputs[:, 8 * group : 8 * group + 8] @ books[book, of_group[:, book], 0].T
    return out * example.scales.view(-1).to(dtype)


@pytest.mark.parametrize("outliers", [False, True])
def test_the_error_is_that_of_the_worst_token(outliers: bool) -> None:
    example = Example(2048, 600, 3, rotated=False, outliers=outliers)
    exact = looked_up(example, torch.float64)
    example.out.copy_(exact)
    assert example.error() < 1e-7
    example.out[1] *= 1.25
    assert example.error() == pytest.approx(0.25, rel=1e-5)
    example.out.copy_(exact)
    example.out[2, 5] += 0.5 * exact[2].abs().max()
    assert example.error() == pytest.approx(0.5, rel=1e-5)


def test_the_dense_matrix_gives_the_same_product() -> None:
    example = Example(64, 520, 2, rotated=False)
    matrix = torch.cat(list(example.dense(torch.float32)))
    assert matrix.shape == (520, 64)
    torch.testing.assert_close(example.input @ matrix.T, looked_up(example, torch.float32), rtol=1e-4, atol=1e-3)


def test_codes_take_turns_over_more_than_caches_hold() -> None:
    example = Example(4096, 14336, 1, rotated=True)
    seen = {example.next().data_ptr() for _ in range(20)}
    assert len(seen) * 4096 // 8 * 14336 * 2 >= ROTATED_BYTES


def test_contenders_are_called_in_turn_and_must_agree() -> None:
    example = Example(16, 8, 1, rotated=False)
    calls = []

    def contender(name: str, result: float) -> Product:
        def product(codes: torch.Tensor) -> torch.Tensor:
            calls.append(name)
            return torch.full((1, 8), result)

        return product

    times = _in_turn({"ours": contender("ours", 1.0), "peer": contender("peer", 1.0)}, example, turns=3, alone=True)
    assert calls == ["ours", "peer"] * 6  # once to compare, twice to warm up
    assert {name: len(taken) for name, taken in times.items()} == {"ours": 3, "peer": 3}
    with pytest.raises(RuntimeError, match="peer computes something else"):
        _in_turn({"ours": contender("ours", 1.0), "peer": contender("peer", 2.0)}, example, turns=3, alone=True)


def test_the_ratio_is_the_median_of_pairs() -> None:
    row = _compared("case", [1.0, 2.0, 10.0], [4.0, 4.0, 10.0], 2.0, "note")
    assert (row.ratio, row.ok) == (2.0, True)
    assert _compared("case", [1.0], [1.5], 2.0, "").ok is False
