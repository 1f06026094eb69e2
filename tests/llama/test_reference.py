"""Reference decoding against transformers' own generation, its stop rules, and both ways of holding the weights."""

from __future__ import annotations

import pytest
import torch

from etcli.checkpoint.opening import open_checkpoint
from etcli.common.errors import CheckpointError, ExitCode, UsageError
from etcli.llama import passes
from etcli.llama.passes import HeldPasses, StreamedPasses, fits_in_memory, held_bytes
from etcli.llama.reference import ReferenceDecoder

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5]


def decoder(checkpoint, kind=HeldPasses, **options) -> ReferenceDecoder:
    return ReferenceDecoder(checkpoint, kind(checkpoint), **options)


def generated(model, prompt: list[int], count: int) -> list[int]:
    """Greedy continuation by transformers."""
    output = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=count,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return output[0, len(prompt) :].tolist()


@pytest.mark.parametrize("kind", [HeldPasses, StreamedPasses])
@pytest.mark.parametrize(
    "options", [{}, {"tie_word_embeddings": True, "attention_bias": True, "num_key_value_heads": 1}]
)
def test_tokens_are_those_of_transformers(network, kind, options) -> None:
    model, checkpoint = network(seed=3, **options)
    expected = generated(model, PROMPT, 20)
    assert len(set(expected)) > 3, "a constant answer would prove little"
    decoded = decoder(checkpoint, kind).decode(PROMPT, max_new_tokens=20, cache_length=64)
    assert list(decoded.tokens) == expected
    assert decoded.stop_reason == "max_new_tokens"


def test_stops_after_the_first_stop_id_and_reports_each_token(network) -> None:
    model, checkpoint = network(seed=3)
    expected = generated(model, PROMPT, 12)
    stop = expected[5]
    checkpoint.config = checkpoint.config.model_copy(update={"stop_ids": (159, stop)})
    seen: list[tuple[int, int]] = []
    heard = decoder(checkpoint, on_token=lambda index, token: seen.append((index, token)))
    decoded = heard.decode(PROMPT, max_new_tokens=6, cache_length=64)
    first = expected.index(stop)
    assert list(decoded.tokens) == expected[: first + 1]
    assert decoded.stop_reason == "stop_id"
    assert seen == list(enumerate(expected[: first + 1]))


@pytest.mark.parametrize("room", [0, 1, 4])
def test_full_cache_ends_with_the_token_that_its_last_position_gave(network, room: int) -> None:
    model, checkpoint = network(seed=3)
    decoded = decoder(checkpoint).decode(PROMPT, max_new_tokens=50, cache_length=len(PROMPT) + room)
    assert list(decoded.tokens) == generated(model, PROMPT, room + 1), "no older token may have been forgotten"
    assert decoded.stop_reason == "cache_full"


def test_bound_reached_with_the_last_position_is_named_as_the_bound(network) -> None:
    _, checkpoint = network(seed=3)
    decoded = decoder(checkpoint).decode(PROMPT, max_new_tokens=3, cache_length=len(PROMPT) + 2)
    assert (len(decoded.tokens), decoded.stop_reason) == (3, "max_new_tokens")


def test_lowest_id_wins_a_tie(network) -> None:
    _, checkpoint = network(seed=3)
    winner = decoder(checkpoint).decode(PROMPT, max_new_tokens=1, cache_length=64).tokens[0]
    head = checkpoint.weights["lm_head.weight"]
    for twin in (winner - 1, winner + 1, 159):
        head[twin] = head[winner]
    tied = decoder(checkpoint).decode(PROMPT, max_new_tokens=1, cache_length=64).tokens[0]
    assert tied == winner - 1


@torch.no_grad()
def test_judging_gives_the_logits_of_transformers(network) -> None:
    model, checkpoint = network(seed=3)
    own = decoder(checkpoint).decode(PROMPT, max_new_tokens=8, cache_length=64).tokens
    altered = [*own[:3], (own[3] + 1) % 160, *own[4:]]
    logits = model(torch.tensor([[*PROMPT, *altered]])).logits[0, len(PROMPT) - 1 : -1]
    judged = decoder(checkpoint, StreamedPasses).judge(PROMPT, altered, cache_length=len(PROMPT) + 7)
    assert [item.token for item in judged] == altered
    assert [item.best for item in judged] == logits.argmax(-1).tolist()
    for item, row in zip(judged, logits, strict=True):
        assert item.best_logit == pytest.approx(float(row.max()), abs=1e-4)
        assert item.token_logit == pytest.approx(float(row[item.token]), abs=1e-4)
    assert [item.gap == 0 for item in judged[:4]] == [True, True, True, False]


@pytest.mark.parametrize(
    ("prompt", "cache", "message"),
    [([], 64, "no tokens"), (PROMPT, 8, "cache of 8"), ([3, 160], 64, "160"), ([-1], 64, "-1")],
)
def test_wrong_prompts_are_refused(network, prompt: list[int], cache: int, message: str) -> None:
    _, checkpoint = network()
    with pytest.raises(UsageError, match=message):
        decoder(checkpoint).decode(prompt, max_new_tokens=4, cache_length=cache)
    with pytest.raises(UsageError, match=message):
        decoder(checkpoint).judge(prompt, [5], cache_length=cache)


def test_judging_more_tokens_than_there_are_places_is_refused(network) -> None:
    _, checkpoint = network()
    with pytest.raises(UsageError, match="cache of 10"):
        decoder(checkpoint).judge(PROMPT, [5, 5, 5], cache_length=10)


def test_weights_that_are_not_numbers_are_named_as_such(network) -> None:
    _, checkpoint = network()
    checkpoint.weights["model.layers.1.mlp.up_proj.weight"][0, 0] = float("nan")
    with pytest.raises(CheckpointError, match="NaN") as caught:
        decoder(checkpoint).decode(PROMPT, max_new_tokens=4, cache_length=64)
    assert caught.value.exit is ExitCode.CHECKPOINT


@pytest.mark.parametrize("tied", [False, True])
def test_streamed_weights_are_read_anew_for_every_pass_and_held_ones_once(network, tied: bool) -> None:
    _, checkpoint = network(tie_word_embeddings=tied)
    decoder(checkpoint, StreamedPasses).decode(PROMPT, max_new_tokens=3, cache_length=64)
    assert checkpoint.read_names.count("model.layers.2.self_attn.q_proj.weight") == 3
    checkpoint.read_names.clear()
    decoder(checkpoint, HeldPasses).decode(PROMPT, max_new_tokens=3, cache_length=64)
    assert sorted(checkpoint.read_names) == sorted(checkpoint.weights)


@pytest.mark.parametrize("tied", [False, True])
def test_weights_fit_when_they_take_half_of_the_free_memory(network, monkeypatch, tied: bool) -> None:
    model, checkpoint = network(tie_word_embeddings=tied)
    size = held_bytes(checkpoint.config)
    assert size == 4 * sum(parameter.numel() for parameter in model.parameters())
    for free, fits in ((2 * size, True), (2 * size - 1, False)):
        monkeypatch.setattr(passes, "available_bytes", lambda free=free: free)
        assert fits_in_memory(checkpoint.config) is fits


def test_default_model_gives_its_right_values(default_model) -> None:
    prompt = [
        1,
        9690,
        198,
        2683,
        359,
        253,
        5356,
        5646,
        11173,
        3365,
        3511,
        308,
        34519,
        28,
        7018,
        411,
        407,
        19712,
        8182,
        2,
    ]
    prompt += [198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 3085, 47, 2, 198, 1, 520, 9531, 198]
    checkpoint = open_checkpoint(default_model)
    decoded = decoder(checkpoint).decode(prompt, max_new_tokens=64, cache_length=512)
    assert list(decoded.tokens) == [504, 3575, 282, 3085, 314, 19081, 30, 2]
    assert decoded.stop_reason == "stop_id"
