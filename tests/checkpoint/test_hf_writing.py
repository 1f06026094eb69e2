"""A network's numbers as `config.json` and back, and a safetensors file written one tensor at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from etcli.checkpoint.hf_config import CONFIG, read_config
from etcli.checkpoint.hf_writing import hf_config_values
from etcli.checkpoint.safetensors_header import read_safetensors_header
from etcli.checkpoint.safetensors_writing import write_safetensors
from etcli.common.errors import Problems
from etcli.manifests.model import AqlmConfig, ModelConfig, RopeConfig

PLAIN = ModelConfig(
    architecture="LlamaForCausalLM",
    hidden_size=64,
    intermediate_size=96,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    vocab_size=320,
    context_length=2048,
    rms_norm_eps=1e-5,
    rope=RopeConfig(theta=5e5),
    tied_embeddings=True,
    stop_ids=(1, 7),
)
LLAMA3 = RopeConfig(
    theta=5e5, kind="llama3", factor=8.0, low_freq_factor=1.5, high_freq_factor=3.0, original_context=512
)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rope": RopeConfig(kind="linear", theta=1e4, factor=2.0), "tied_embeddings": False, "stop_ids": ()},
        {"rope": LLAMA3, "stop_ids": (5,)},
        {"attention_bias": True, "attention_output_bias": True, "mlp_bias": True},
        {"architecture": "MistralForCausalLM"},
        {"architecture": "MistralForCausalLM", "sliding_window": 1024, "context_length": 1024},
        {"architecture": "Qwen2ForCausalLM", "attention_bias": True},
        {"architecture": "Qwen3ForCausalLM", "qk_norm": True},
        {"aqlm": AqlmConfig(codebooks=2)},
        {"aqlm": AqlmConfig(codebooks=1, kept=("model.layers.0.mlp.up_proj", "model.layers.1.self_attn.q_proj"))},
    ],
    ids=str,
)
def test_what_is_written_reads_back(tmp_path: Path, changes: dict[str, Any]) -> None:
    config = PLAIN.model_copy(update=changes)
    values = hf_config_values(config, "float16")
    (tmp_path / CONFIG).write_text(json.dumps(values))
    problems = Problems()
    assert read_config(tmp_path, problems) == config, problems.found


@pytest.mark.parametrize("rope", [RopeConfig(theta=1e6), RopeConfig(theta=1e4, kind="linear", factor=4.0), LLAMA3])
def test_transformers_understands_the_rope(tmp_path: Path, rope: RopeConfig) -> None:
    transformers = pytest.importorskip("transformers")
    values = hf_config_values(PLAIN.model_copy(update={"rope": rope}), "float16")
    (tmp_path / CONFIG).write_text(json.dumps(values))
    found = transformers.AutoConfig.from_pretrained(tmp_path)
    assert found.head_dim == 32
    assert found.rope_parameters["rope_theta"] == rope.theta
    assert found.rope_parameters["rope_type"] == rope.kind
    if rope.kind == "llama3":
        assert found.rope_parameters["original_max_position_embeddings"] == 512


def test_tensors_written_one_at_a_time_are_what_the_library_reads(tmp_path: Path) -> None:
    values = {
        "codes": np.arange(-12, 12, dtype=np.int8).reshape(4, 3, 2),
        "turned": np.arange(12, dtype=np.float16).reshape(3, 4).T,
        "nothing": np.zeros((0, 8), np.float16),
    }
    layout = {name: (str(array.dtype), array.shape) for name, array in values.items()}
    path = tmp_path / "model.safetensors"
    write_safetensors(path, layout, values.__getitem__, {"format": "pt"})
    found = safetensors.numpy.load_file(path)
    assert found.keys() == values.keys()
    for name, array in values.items():
        np.testing.assert_array_equal(found[name], array)
    assert read_safetensors_header(path).keys() == values.keys()


def test_a_tensor_of_another_shape_than_was_said_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with pytest.raises(ValueError, match="codes is"):
        write_safetensors(path, {"codes": ("int8", (2, 2))}, lambda _name: np.zeros((2, 3), np.int8), {})
    assert list(tmp_path.iterdir()) == []
