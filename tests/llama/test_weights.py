"""Loading weights into a chunk: by canonical name, one at a time, completely or not at all."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from etcli.common.errors import CheckpointError, ExitCode
from etcli.llama.chunk import Chunk
from etcli.llama.weights import load_embedding, load_embedding_blocks, load_embedding_rows, load_weights


def test_a_new_chunk_has_no_storage(network) -> None:
    _, checkpoint = network()
    chunk = Chunk(checkpoint.config, 0, 4, head=True)
    assert all(parameter.is_meta for parameter in chunk.parameters())


@pytest.mark.parametrize("options", [{}, {"attention_bias": True, "mlp_bias": True}, {"tie_word_embeddings": True}])
def test_chunks_take_every_tensor_of_the_checkpoint_once(network, options) -> None:
    _, checkpoint = network(**options)
    for first in (0, 2):
        chunk = Chunk(checkpoint.config, first, 2, head=first == 2)
        load_weights(chunk, checkpoint)
        for name, sources in chunk.sources().items():
            assert chunk.get_parameter(name).equal(torch.cat([checkpoint.weights[source] for source in sources]))
    load_embedding(checkpoint)
    reads = sorted(checkpoint.read_names)
    expected = sorted(checkpoint.weights)
    if checkpoint.config.tied_embeddings:
        expected = sorted([*expected, "model.embed_tokens.weight"])
    assert reads == expected


def test_tied_head_is_the_embedding(network) -> None:
    _, checkpoint = network(tie_word_embeddings=True)
    chunk = Chunk(checkpoint.config, 3, 1, head=True)
    load_weights(chunk, checkpoint)
    assert chunk.lm_head is not None
    assert chunk.lm_head.weight.equal(checkpoint.weights["model.embed_tokens.weight"])


def test_half_precision_tensors_become_float32(network) -> None:
    _, checkpoint = network()
    checkpoint.weights = {name: tensor.half() for name, tensor in checkpoint.weights.items()}
    chunk = Chunk(checkpoint.config, 0, 1, head=True)
    load_weights(chunk, checkpoint)
    assert {parameter.dtype for parameter in chunk.parameters()} == {torch.float32}


def test_every_missing_and_misshapen_tensor_is_named_and_nothing_read(network) -> None:
    _, checkpoint = network()
    del checkpoint.weights["model.layers.2.mlp.up_proj.weight"]
    checkpoint.weights["model.layers.3.self_attn.k_proj.weight"] = torch.zeros(64, 64)
    chunk = Chunk(checkpoint.config, 2, 2, head=False)
    with pytest.raises(CheckpointError) as caught:
        load_weights(chunk, checkpoint)
    codes = {problem.code: problem for problem in caught.value.problems}
    assert set(codes) == {"checkpoint.tensor_missing", "checkpoint.tensor_shape"}
    assert "model.layers.2.mlp.up_proj.weight" in codes["checkpoint.tensor_missing"].message
    assert "[64, 64]" in codes["checkpoint.tensor_shape"].message
    assert "[32, 64]" in codes["checkpoint.tensor_shape"].message
    assert caught.value.exit is ExitCode.CHECKPOINT
    assert checkpoint.read_names == []
    assert all(parameter.is_meta for parameter in chunk.parameters())


def test_a_failing_read_is_passed_on(network, monkeypatch: pytest.MonkeyPatch) -> None:
    _, checkpoint = network()

    def torn(name: str) -> torch.Tensor:
        raise CheckpointError(f"{name}: the file ends early", code="checkpoint.truncated")

    monkeypatch.setattr(checkpoint, "read", torn)
    with pytest.raises(CheckpointError, match="ends early"):
        load_weights(Chunk(checkpoint.config, 0, 1, head=False), checkpoint)


@pytest.mark.parametrize(("first", "layers"), [(-1, 1), (0, 0), (3, 2), (4, 1)])
def test_layers_outside_the_network_are_refused(network, first: int, layers: int) -> None:
    _, checkpoint = network()
    with pytest.raises(ValueError, match="layers"):
        Chunk(checkpoint.config, first, layers, head=False)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")], ids=str)
@pytest.mark.parametrize(
    "name", ["model.layers.1.mlp.up_proj.weight", "model.norm.weight", "model.embed_tokens.weight"]
)
def test_a_weight_that_is_not_finite_is_named(network, name: str, value: float) -> None:
    _, checkpoint = network()
    tensor = checkpoint.weights[name] = checkpoint.weights[name].clone()
    tensor.view(-1)[[3, 17]] = value
    chunk = Chunk(checkpoint.config, 0, 4, head=True)
    read = partial(load_embedding, checkpoint) if "embed" in name else partial(load_weights, chunk, checkpoint)
    with pytest.raises(CheckpointError) as caught:
        read()
    (problem,) = caught.value.problems
    assert (problem.code, problem.exit_code) == ("checkpoint.not_finite", ExitCode.CHECKPOINT)
    assert problem.message.startswith(f"{name} holds infinities or NaN: 2 of ")
    assert problem.hint


@pytest.mark.parametrize("rows", [1, 64, 160, 1000])
def test_blocks_of_the_embedding_are_all_of_it(network, rows: int) -> None:
    _, checkpoint = network()
    blocks = list(load_embedding_blocks(checkpoint, rows))
    assert [len(block) for block in blocks[:-1]] == [rows] * (len(blocks) - 1)
    assert torch.cat(blocks).equal(checkpoint.weights["model.embed_tokens.weight"])


def test_rows_that_are_not_finite_are_named(network) -> None:
    _, checkpoint = network()
    tensor = checkpoint.weights["model.embed_tokens.weight"] = checkpoint.weights["model.embed_tokens.weight"].clone()
    tensor[70, 3] = float("nan")
    with pytest.raises(CheckpointError, match="1 of 4096 numbers in rows 64 to 127"):
        list(load_embedding_blocks(checkpoint, 64))
    with pytest.raises(CheckpointError, match="in rows 70 to 70"):
        load_embedding_rows(checkpoint, [3, 70])
