"""The chunks, driven as the runner drives them, compute what transformers computes."""

from __future__ import annotations

import pytest
import torch
from eager_runner import RingRunnerInPython, RunnerInPython

from etcli.llama.prefill import Call, split_prompt

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
OPTIONS = {
    "grouped": {},
    "multi_head": {"num_key_value_heads": 4},
    "multi_query": {"num_key_value_heads": 1},
    "explicit_head_dim": {"head_dim": 24},
    "attention_bias": {"attention_bias": True},
    "mlp_bias": {"mlp_bias": True},
    "tied": {"tie_word_embeddings": True},
    "large_theta": {"rope": {"rope_type": "default", "rope_theta": 1000000.0}},
    "linear_rope": {"rope": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    "llama3_rope": {"rope": LLAMA3},
    "large_eps": {"rms_norm_eps": 0.1},
    "all_at_once": {
        "hidden_size": 96,
        "num_key_value_heads": 1,
        "num_attention_heads": 6,
        "head_dim": 8,
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
        "rope": LLAMA3,
    },
}


@torch.no_grad()
def compare_ring(network, options, *, chunks: int, shapes: list[int], prompt: int, decode: int, cache: int) -> None:
    """After each call, the logits of its last row."""
    model, checkpoint = network(**options)
    ids = torch.randint(0, checkpoint.config.vocab_size, (prompt + decode,), generator=torch.Generator().manual_seed(7))
    expected = model(ids.unsqueeze(0)).logits[0]
    runner = RingRunnerInPython(checkpoint, chunks, cache)
    start = 0
    for call in (*split_prompt(prompt, shapes), *[Call(1, 0)] * decode):
        actual = runner.call(ids[start : start + call.real].tolist(), call.padding)
        start += call.real
        torch.testing.assert_close(actual[0], expected[start - 1], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_gives_the_logits_of_transformers_with_ring_caches(network, name: str) -> None:
    compare_ring(network, OPTIONS[name], chunks=2, shapes=[8, 3, 1], prompt=21, decode=19, cache=40)


@torch.no_grad()
def compare(network, options, *, chunks: int, shapes: list[int], prompt: int, decode: int, cache: int) -> None:
    model, checkpoint = network(**options)
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(0, checkpoint.config.vocab_size, (prompt + decode,), generator=generator).tolist()
    expected = model(torch.tensor([ids])).logits[0]
    runner = RunnerInPython(checkpoint, chunks, cache)
    rows = [runner.prefill(ids[:prompt], shapes)]
    rows += [runner.call([token]) for token in ids[prompt:]]
    actual = torch.cat(rows)
    assert expected.std() > 0.1, "flat logits would compare equal whatever the network does"
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.known_failure("checkpoint-head-dim", "checkpoint-bias-dropped")
def test_every_option_gives_the_logits_of_transformers(network, name: str) -> None:
    compare(network, OPTIONS[name], chunks=2, shapes=[8], prompt=21, decode=6, cache=40)


@pytest.mark.parametrize("chunks", [1, 2, 4])
@pytest.mark.parametrize("prompt", [1, 7, 8, 16, 19])
def test_every_padding_and_chunk_count(network, chunks: int, prompt: int) -> None:
    compare(network, {}, chunks=chunks, shapes=[8], prompt=prompt, decode=3, cache=32)


def test_several_prompt_shapes(network) -> None:
    compare(network, {}, chunks=2, shapes=[16, 4], prompt=39, decode=2, cache=64)


def test_a_short_rest_through_one_token_calls(network) -> None:
    compare(network, {}, chunks=2, shapes=[16, 1], prompt=35, decode=2, cache=64)


def test_prompt_and_answer_fill_the_cache_to_its_last_position(network) -> None:
    compare(network, {}, chunks=1, shapes=[8], prompt=24, decode=8, cache=32)


def test_call_as_long_as_the_cache(network) -> None:
    compare(network, {}, chunks=1, shapes=[16], prompt=13, decode=3, cache=16)
