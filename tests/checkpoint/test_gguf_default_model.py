"""The embedded default model read from its GGUF file."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from etcli.checkpoint.opening import open_checkpoint


def test_configuration(default_model: Path) -> None:
    config = open_checkpoint(default_model).config
    assert (config.hidden_size, config.num_layers, config.num_heads, config.num_kv_heads) == (576, 30, 9, 3)
    assert (config.head_dim, config.intermediate_size, config.vocab_size, config.context_length) == (
        64,
        1536,
        49152,
        8192,
    )
    assert (config.rope.theta, config.rope.kind, config.rms_norm_eps) == (100000.0, "default", 1e-5)
    assert config.tied_embeddings
    assert not config.attention_bias
    assert config.stop_ids == (2,)
    assert config.bos_id is None


def test_every_tensor_is_taken(default_model: Path) -> None:
    checkpoint = open_checkpoint(default_model)
    assert checkpoint.format == "gguf"
    assert len(checkpoint.tensors) == 272
    assert checkpoint.unused == ()
    kinds = [info.dtype for info in checkpoint.tensors.values()]
    assert (kinds.count("Q4_1"), kinds.count("F32"), kinds.count("Q8_0")) == (210, 61, 1)


def test_values_are_those_of_the_gguf_package(default_model: Path, package_reader: gguf.GGUFReader) -> None:
    checkpoint = open_checkpoint(default_model)
    stored = {tensor.name: tensor for tensor in package_reader.tensors}
    for ours, theirs in (
        ("model.layers.3.mlp.down_proj.weight", "blk.3.ffn_down.weight"),
        ("model.layers.29.post_attention_layernorm.weight", "blk.29.ffn_norm.weight"),
        ("model.norm.weight", "output_norm.weight"),
    ):
        tensor = stored[theirs]
        expected = gguf.dequantize(tensor.data, tensor.tensor_type)
        read = checkpoint.read(ours)
        assert read.is_contiguous()
        np.testing.assert_array_equal(read.numpy(), expected)


def test_query_and_key_rows_are_in_rotate_half_order(default_model: Path, package_reader: gguf.GGUFReader) -> None:
    checkpoint = open_checkpoint(default_model)
    stored = {tensor.name: tensor for tensor in package_reader.tensors}
    for ours, theirs, heads in (("q_proj", "attn_q", 9), ("k_proj", "attn_k", 3)):
        tensor = stored[f"blk.0.{theirs}.weight"]
        interleaved = gguf.dequantize(tensor.data, tensor.tensor_type)
        read = checkpoint.read(f"model.layers.0.self_attn.{ours}.weight").numpy()
        for head in range(heads):
            for pair in range(32):
                for half in range(2):
                    row = interleaved[head * 64 + pair * 2 + half]
                    np.testing.assert_array_equal(read[head * 64 + half * 32 + pair], row)
