"""Networks with AQLM weights: chunks compute what transformers computes in float64 with the dense matrices that the codes stand for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from aqlm_folders import dense_weight, write_aqlm_folder
from aqlm_oracle import dense_logits
from eager_runner import RingRunnerInPython, RunnerInPython

from etcli.checkpoint.opening import open_checkpoint
from etcli.common.errors import CheckpointError
from etcli.llama.aqlm import AqlmLinear
from etcli.llama.chunk import Chunk
from etcli.llama.passes import HeldPasses, StreamedPasses, held_bytes
from etcli.llama.prefill import Call, split_prompt
from etcli.llama.reference import ReferenceDecoder
from etcli.llama.weights import load_weights

IDS = torch.randint(0, 320, (30,), generator=torch.Generator().manual_seed(7)).tolist()
PROMPT = 21
KEPT = ("model.layers.0.self_attn.v_proj", "model.layers.0.mlp.down_proj", "model.layers.1.mlp.gate_proj")
CASES: dict[str, dict[str, Any]] = {
    "2x8": {},
    "1x8": {"codebooks": 1},
    "kept": {"kept": KEPT},
    "all_biases": {"attention_bias": True, "mlp_bias": True},
    "qwen2_tied": {"family": "qwen2", "tie_word_embeddings": True},
    "qwen3": {"family": "qwen3", "head_dim": 24},
    "bin_old_spelling": {"container": "bin", "spelling": "aqlm", "num_hidden_layers": 1},
    "in_groups_equal_outputs": {"intermediate_size": 512, "num_hidden_layers": 1},
}
"""`in_groups_equal_outputs`: the codes of `down_proj` are 64 by 64, which tells nobody whether they were turned."""


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("case", CASES)
def test_the_logits_of_transformers_with_either_cache(tmp_path: Path, case: str) -> None:
    dense = write_aqlm_folder(tmp_path / "m", **CASES[case])
    checkpoint = open_checkpoint(tmp_path / "m")
    right = dense_logits(tmp_path / "m", dense, IDS)
    assert right.std() > 0.1, "flat logits would compare equal whatever the network does"
    chunks = checkpoint.config.num_layers

    runner = RunnerInPython(checkpoint, chunks, 40)
    rows = [runner.prefill(IDS[:PROMPT], [8]), *(runner.call([token]) for token in IDS[PROMPT:])]
    torch.testing.assert_close(torch.cat(rows).double(), right, atol=1e-4, rtol=0)

    ring, start = RingRunnerInPython(checkpoint, chunks, 40), 0
    for call in (*split_prompt(PROMPT, [8, 3, 1]), *[Call(1, 0)] * (len(IDS) - PROMPT)):
        logits = ring.call(IDS[start : start + call.real], call.padding)
        start += call.real
        torch.testing.assert_close(logits[0].double(), right[start - 1], atol=1e-4, rtol=0)


def test_a_call_as_long_as_the_cache_and_a_full_cache(tmp_path: Path) -> None:
    dense = write_aqlm_folder(tmp_path / "m", num_hidden_layers=1)
    checkpoint = open_checkpoint(tmp_path / "m")
    right = dense_logits(tmp_path / "m", dense, IDS[:16])
    runner = RunnerInPython(checkpoint, 1, 16)
    rows = torch.cat([runner.prefill(IDS[:13], [16]), *(runner.call([token]) for token in IDS[13:16])])
    torch.testing.assert_close(rows.double(), right, atol=1e-4, rtol=0)


def test_the_reference_decodes_what_transformers_chooses_with_weights_held_or_read_anew(tmp_path: Path) -> None:
    dense = write_aqlm_folder(tmp_path / "m", kept=KEPT)
    checkpoint = open_checkpoint(tmp_path / "m")
    for passes in (HeldPasses(checkpoint), StreamedPasses(checkpoint)):
        decoder = ReferenceDecoder(checkpoint, passes, stop_ids=())
        tokens = list(decoder.decode(IDS[:5], max_new_tokens=6, cache_length=32).tokens)
        right = dense_logits(tmp_path / "m", dense, [*IDS[:5], *tokens[:-1]])
        assert right[-6:].argmax(dim=1).tolist() == tokens


def test_codes_are_turned_once_and_everything_is_taken(tmp_path: Path) -> None:
    dense = write_aqlm_folder(tmp_path / "m", kept=KEPT, attention_bias=True, tie_word_embeddings=True)
    checkpoint = open_checkpoint(tmp_path / "m")
    taken = {"model.embed_tokens.weight"}
    for layer in (0, 1):
        chunk = Chunk(checkpoint.config, layer, 1, head=layer == 1)
        assert all(parameter.is_meta for parameter in chunk.parameters())
        load_weights(chunk, checkpoint)
        taken |= {source for sources in chunk.sources().values() for source in sources}
        for name, module in chunk.named_modules():
            if isinstance(module, AqlmLinear):
                assert module.codes.dtype == torch.int8
                assert module.codes.is_contiguous()
                canonical = name.replace("layers.0", f"model.layers.{layer}")
                weight = dense_weight(module.codes.transpose(0, 1), module.codebooks, module.scales)
                assert weight.equal(dense[f"{canonical}.weight"])
        coded = {name for name, module in chunk.named_modules() if isinstance(module, AqlmLinear)}
        kept = {name.replace(f"model.layers.{layer}", "layers.0") for name in KEPT if f"layers.{layer}." in name}
        assert not coded & kept
        assert len(coded) == 7 - len(kept)
    assert taken == set(checkpoint.tensors)
    held = list(HeldPasses(checkpoint).chunks())
    sizes = sum(parameter.nbytes for chunk in held for parameter in chunk.parameters())
    assert held_bytes(checkpoint.config) == sizes


def test_a_codebook_with_a_nan_is_named(tmp_path: Path) -> None:
    from aqlm_folders import read_weights, write_weights

    write_aqlm_folder(tmp_path / "m")
    tensors = read_weights(tmp_path / "m")
    tensors["model.layers.1.mlp.up_proj.codebooks"][1, 200, 0, 3] = torch.nan
    write_weights(tmp_path / "m", tensors)
    checkpoint = open_checkpoint(tmp_path / "m")
    with pytest.raises(CheckpointError, match=r"mlp\.up_proj\.codebooks holds infinities or NaN: 1 of 4096"):
        load_weights(Chunk(checkpoint.config, 1, 1, head=False), checkpoint)


def test_inputs_that_are_no_whole_groups_are_a_fault_of_the_caller() -> None:
    with pytest.raises(ValueError, match="12 inputs are not whole groups of 8"):
        AqlmLinear(12, 4, 2, bias=False)
