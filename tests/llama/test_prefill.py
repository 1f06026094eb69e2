"""Dividing a prompt into calls."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import pytest

from etcli.llama.prefill import Call, split_prompt


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (1, [Call(32, 31)]),
        (31, [Call(32, 1)]),
        (32, [Call(32, 0)]),
        (37, [Call(32, 27), Call(32, 0)]),
        (64, [Call(32, 0), Call(32, 0)]),
        (70, [Call(32, 26), Call(32, 0), Call(32, 0)]),
    ],
)
def test_one_shape_is_the_remainder_first_then_full_calls(length: int, expected: list[Call]) -> None:
    assert list(split_prompt(length, [32])) == expected


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (5, [Call(32, 27)]),
        (33, [Call(32, 31), Call(32, 0)]),
        (97, [Call(128, 31)]),
        (130, [Call(32, 30), Call(128, 0)]),
        (300, [Call(32, 20), Call(32, 0), Call(128, 0), Call(128, 0)]),
    ],
)
def test_two_shapes(length: int, expected: list[Call]) -> None:
    assert list(split_prompt(length, [128, 32])) == expected


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (1, [Call(1, 0)]),
        (6, [Call(1, 0)] * 6),
        (7, [Call(32, 25)]),
        (37, [*[Call(1, 0)] * 5, Call(32, 0)]),
        (39, [Call(32, 25), Call(32, 0)]),
    ],
)
def test_a_short_rest_takes_one_token_calls(length: int, expected: list[Call]) -> None:
    assert list(split_prompt(length, [32, 1])) == expected


@pytest.mark.parametrize("shapes", [[7], [8, 3], [10, 7, 4], [16, 4, 2]])
def test_split_is_the_best_there_is(shapes: list[int]) -> None:
    for length in range(1, 36):
        calls = split_prompt(length, shapes)
        most = -(-length // min(shapes))
        best = min(
            (sum((size + 5) * count for size, count in zip(shapes, counts, strict=True)), sum(counts))
            for counts in product(range(most + 1), repeat=len(shapes))
            if sum(size * count for size, count in zip(shapes, counts, strict=True)) >= length
        )
        assert (sum(call.tokens + 5 for call in calls), len(calls)) == best
        assert sum(call.real for call in calls) == length
        assert 0 <= calls[0].padding < calls[0].tokens
        assert all(call.padding == 0 for call in calls[1:])
        assert [call.tokens for call in calls] == sorted(call.tokens for call in calls)


@pytest.mark.parametrize(("length", "shapes"), [(0, [8]), (3, []), (3, [0]), (3, [8, -1])])
def test_nothing_to_split_is_refused(length: int, shapes: list[int]) -> None:
    with pytest.raises(ValueError, match="cannot split"):
        split_prompt(length, shapes)


def test_importing_it_does_not_import_torch() -> None:
    program = "import sys, etcli.llama.prefill; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
