"""The reference with rounded weights: both ways of holding them agree, heads and tables that share weights are rounded apart, and only
the rows that are looked at are computed."""

from __future__ import annotations

import pytest
import torch

from etcli.checkpoint.layout import EMBEDDING
from etcli.llama.chunk import Chunk
from etcli.llama.passes import HeldPasses, Rounding, StreamedPasses
from etcli.llama.reference import ReferenceDecoder
from etcli.llama.weights import load_embedding_rows

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5]


def coarse(values: torch.Tensor) -> torch.Tensor:
    return (values * 16).round() / 16


def round_linears(chunk: Chunk) -> None:
    for module in chunk.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.copy_(coarse(module.weight))


ROUNDING = Rounding(round_linears, lambda rows: rows.half().float())


@pytest.mark.parametrize("tied", [False, True])
def test_rounded_weights_are_transformers_with_rounded_weights(network, tied: bool) -> None:
    model, checkpoint = network(seed=5, tie_word_embeddings=tied)
    results = [
        ReferenceDecoder(checkpoint, kind(checkpoint, ROUNDING)).logits(IDS, rows=len(IDS))
        for kind in (HeldPasses, StreamedPasses)
    ]
    assert torch.equal(*results)
    with torch.no_grad():
        table = model.get_input_embeddings().weight.clone()
        head = coarse(model.get_output_embeddings().weight)
        for name, parameter in model.named_parameters():
            if name.endswith("proj.weight"):
                parameter.copy_(coarse(parameter))
        hidden = model.model(inputs_embeds=table.half().float()[torch.tensor([IDS])]).last_hidden_state[0]
        right = hidden @ head.T
    assert (results[0] - right).abs().max() < 1e-4
    plain = ReferenceDecoder(checkpoint, HeldPasses(checkpoint)).logits(IDS, rows=len(IDS))
    assert (plain - right).abs().max() > 1e-2, "rounding changed nothing"


def test_logits_are_computed_of_the_rows_asked_for_alone(network, monkeypatch: pytest.MonkeyPatch) -> None:
    _, checkpoint = network(seed=5)
    decoder = ReferenceDecoder(checkpoint, HeldPasses(checkpoint))
    every = decoder.logits(IDS, rows=len(IDS))
    seen: list[int] = []
    real = Chunk.logits
    monkeypatch.setattr(Chunk, "logits", lambda self, hidden: (seen.append(hidden.shape[1]), real(self, hidden))[1])
    assert torch.allclose(decoder.logits(IDS, rows=2), every[-2:], atol=1e-5)
    decoder.decode(IDS, max_new_tokens=3, cache_length=32)
    decoder.judge(IDS, [7, 8, 9, 10], cache_length=32)
    assert seen == [2, 1, 1, 1, 4]


def test_embedding_rows_are_read_once_each_and_no_others(network) -> None:
    _, checkpoint = network(seed=5)
    table = checkpoint.read(EMBEDDING)
    asked: list[tuple[int, int]] = []
    checkpoint.read_rows = lambda _, start, stop: (asked.append((start, stop)), table[start:stop].clone())[1]
    assert torch.equal(load_embedding_rows(checkpoint, IDS), table[IDS])
    assert sorted(asked) == [(token, token + 1) for token in sorted(set(IDS))]
