"""The compiled ring operators in ExecuTorch's Python runtime, against attention written out in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from operator_programs import LastRow, RingAttention, lowered

Run = Callable[..., list[torch.Tensor]]


def example(
    tokens: int, valid: int, start: int, heads: int, kv_heads: int, dim: int, slots: int, seed: int
) -> tuple[torch.Tensor, ...]:
    """Random inputs of one call; slots that no token was written to hold not-a-number."""
    torch.manual_seed(seed)
    key_cache, value_cache = torch.randn(1, kv_heads, slots, dim), torch.randn(1, kv_heads, slots, dim)
    key_cache.view(kv_heads, dim, slots)[:, :, start:] = math.nan
    value_cache[:, :, start:] = math.nan
    angles = torch.arange(start, start + tokens)[:, None] * 10000.0 ** -(torch.arange(dim // 2) * 2 / dim)
    angles = torch.cat([angles, angles], dim=1)
    return (
        torch.randn(1, tokens, heads * dim),
        torch.randn(1, tokens, kv_heads * dim),
        torch.randn(1, tokens, kv_heads * dim),
        key_cache,
        value_cache,
        torch.stack([angles.cos(), angles.sin()]).float()[None],
        torch.tensor([start, valid]),
    )


def in_float64(inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What the operator is defined as, one query after another, with torch's own attention."""
    query, key, value, key_cache, value_cache, rotary = (tensor.double() for tensor in inputs[:6])
    start, valid = inputs[6].tolist()
    _, kv_heads, slots, dim = key_cache.shape
    heads = query.shape[2] // dim
    cos, sin = rotary[0]

    def turned(row: torch.Tensor, token: int) -> torch.Tensor:
        swapped = torch.cat([-row[..., dim // 2 :], row[..., : dim // 2]], dim=-1)
        return row * cos[token] + swapped * sin[token]

    keys, values = key_cache.clone(), value_cache.clone()
    by_slot = keys.view(kv_heads, dim, slots)
    out = torch.zeros_like(query)
    for token in range(valid):
        by_slot[:, :, start + token] = turned(key[0, token].view(kv_heads, dim), token)
        values[0, :, start + token] = value[0, token].view(kv_heads, dim)
        seen = start + token + 1
        attended = torch.nn.functional.scaled_dot_product_attention(
            turned(query[0, token].view(heads, 1, dim), token)[None],
            by_slot[None, :, :, :seen].transpose(2, 3),
            values[:, :, :seen],
            enable_gqa=True,
        )
        out[0, token] = attended.reshape(-1)
    return out, keys, values


@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 40, 9, 3, 64, 64),
        (1, 1, 0, 2, 2, 8, 5),
        (8, 5, 130, 4, 2, 20, 141),
        (32, 32, 0, 8, 1, 6, 33),
        (7, 7, 200, 6, 3, 33 * 2, 207),
    ],
)
def test_a_program_computes_what_float64_does(run_program: Run, sizes: tuple[int, ...]) -> None:
    inputs = example(*sizes, seed=sum(sizes))
    before = [tensor.clone() for tensor in inputs]
    found = run_program(RingAttention(), inputs)
    for have, want in zip(found, in_float64(inputs), strict=True):
        torch.testing.assert_close(have.double(), want, rtol=0, atol=2e-5, equal_nan=True)
    assert not found[0][0, sizes[1] :].any()
    # The runtime gave the new caches memory of their own, so that the old ones are what they were.
    assert all(torch.equal(old.nan_to_num(), new.nan_to_num()) for old, new in zip(before, inputs, strict=True))


def aliases(program: bytes) -> list[bool]:
    """Whether the outputs of the one kernel call are planned at the place of another of its arguments."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    [plan] = deserialize_pte_binary(program).program.execution_plan
    [call] = [instruction.instr_args for instruction in plan.chains[0].instructions]
    places = [plan.values[index].val.allocation_info for index in call.args[:10]]
    found = [(place.memory_id, place.memory_offset_low, place.memory_offset_high) for place in places]
    return [place in found[:7] for place in found[7:]]


@pytest.mark.parametrize("sizes", [(1, 1, 40, 9, 3, 64, 64), (8, 5, 130, 4, 2, 20, 141), (3, 3, 0, 4, 4, 16, 16)])
def test_caches_in_place_give_the_same(run_program: Run, sizes: tuple[int, ...]) -> None:
    inputs = example(*sizes, seed=sum(sizes))
    in_place = {1: 3, 2: 4}
    assert aliases(lowered(RingAttention(), inputs, in_place=in_place)) == [False, True, True]
    found = run_program(RingAttention(), inputs, in_place=in_place)
    for have, want in zip(found, in_float64(inputs), strict=True):
        torch.testing.assert_close(have.double(), want, rtol=0, atol=2e-5, equal_nan=True)
    elsewhere = run_program(RingAttention(), inputs)
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(found, elsewhere, strict=True))


def test_compiled_and_eager_agree(run_program: Run) -> None:
    inputs = example(8, 6, 50, 6, 2, 16, 64, seed=3)
    for have, want in zip(run_program(RingAttention(), inputs), RingAttention()(*inputs), strict=True):
        torch.testing.assert_close(have, want, rtol=0, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("pos", [(-1, 1), (0, 0), (0, 5), (61, 4), (64, 1), (2**62, 1), (-(2**63), -(2**63))])
def test_positions_that_cannot_be_fail_the_call_and_not_the_process(run_program: Run, pos: tuple[int, int]) -> None:
    inputs = example(4, 4, 8, 2, 1, 8, 64, seed=4)
    wrong = (*inputs[:6], torch.tensor(pos))
    with pytest.raises(RuntimeError, match="0x12"):
        run_program(RingAttention(), inputs, wrong)


def test_the_last_slot_is_used(run_program: Run) -> None:
    inputs = example(4, 4, 60, 2, 1, 8, 64, seed=5)
    found = run_program(RingAttention(), inputs)
    torch.testing.assert_close(found[0].double(), in_float64(inputs)[0], rtol=0, atol=2e-5)


@pytest.mark.parametrize("valid", [1, 3, 5])
def test_last_row(run_program: Run, valid: int) -> None:
    x = torch.randn(1, 5, 7)
    [row] = run_program(LastRow(), (x, torch.tensor([2, valid])))
    assert torch.equal(row, x[:, valid - 1 : valid])


@pytest.mark.parametrize("valid", [0, -1, 6])
def test_last_row_of_none(run_program: Run, valid: int) -> None:
    x = torch.randn(1, 5, 7)
    with pytest.raises(RuntimeError, match="0x12"):
        run_program(LastRow(), (x, torch.tensor([2, 1])), (x, torch.tensor([2, valid])))
