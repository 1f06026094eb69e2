"""Families are taken by name, with the defaults of transformers' own classes; their relatives are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from etcli.checkpoint.families import FAMILIES
from etcli.checkpoint.hf_config import read_config
from etcli.common.errors import Problems
from etcli.manifests.model import ModelConfig

CLASSES: dict[str, type[PretrainedConfig]] = {
    "LlamaForCausalLM": LlamaConfig,
    "MistralForCausalLM": MistralConfig,
    "Qwen2ForCausalLM": Qwen2Config,
    "Qwen3ForCausalLM": Qwen3Config,
}
SIZES = {
    "hidden_size": 4096,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 32,
    "vocab_size": 99,
}

# Numbers of published models, as their config.json has them.
QWEN2_05B = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "silu",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 24,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN3_06B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}


def read(folder: Path, document: dict[str, Any]) -> tuple[ModelConfig | None, list[str]]:
    (folder / "config.json").write_text(json.dumps(document))
    problems = Problems()
    config = read_config(folder, problems)
    assert (config is None) == bool(problems)
    return config, [f"{problem.code}: {problem.message}" for problem in problems.found]


def right(folder: Path, document: dict[str, Any]) -> ModelConfig:
    config, messages = read(folder, document)
    assert config is not None, messages
    return config


@pytest.mark.parametrize("architecture", FAMILIES)
def test_defaults_are_those_of_transformers(tmp_path: Path, architecture: str) -> None:
    kind = CLASSES[architecture].model_type
    config = right(tmp_path, {"architectures": [architecture], "model_type": kind, **SIZES})
    theirs = CLASSES[architecture](**SIZES)
    assert config.num_kv_heads == theirs.num_key_value_heads
    assert config.head_dim == (getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads)
    assert config.rms_norm_eps == theirs.rms_norm_eps
    assert config.rope.theta == theirs.rope_parameters["rope_theta"]
    assert config.rope.kind == theirs.rope_parameters["rope_type"]
    assert config.tied_embeddings == theirs.tie_word_embeddings
    assert config.sliding_window == getattr(theirs, "sliding_window", None)
    assert config.context_length == min(theirs.max_position_embeddings, config.sliding_window or 1 << 30)
    assert config.mlp_bias == getattr(theirs, "mlp_bias", False)
    assert config.attention_output_bias == getattr(theirs, "attention_bias", False)


@pytest.mark.parametrize("architecture", sorted(FAMILIES.keys() - {"MistralForCausalLM"}))  # whose class takes no null
def test_null_kv_heads_are_as_many_as_query_heads(tmp_path: Path, architecture: str) -> None:
    sizes = SIZES | {"num_attention_heads": 16, "num_key_value_heads": None}
    config = right(tmp_path, {"architectures": [architecture], **sizes})
    assert config.num_kv_heads == CLASSES[architecture](**sizes).num_key_value_heads == 16


@pytest.mark.parametrize("architecture", FAMILIES)
def test_what_transformers_writes_is_read(tmp_path: Path, architecture: str) -> None:
    theirs = CLASSES[architecture](**SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 7.0, "factor": 2.0})
    theirs.architectures = [architecture]
    theirs.save_pretrained(tmp_path)
    config = right(tmp_path, json.loads((tmp_path / "config.json").read_text()))
    assert (config.rope.kind, config.rope.theta, config.rope.factor) == ("linear", 7.0, 2.0)
    assert config.architecture == architecture


def test_published_qwens(tmp_path: Path) -> None:
    two, three = right(tmp_path, QWEN2_05B), right(tmp_path, QWEN3_06B)
    assert (two.attention_bias, two.attention_output_bias, two.mlp_bias, two.qk_norm) == (True, False, False, False)
    assert (two.head_dim, two.rope.theta, two.sliding_window, two.context_length) == (64, 1e6, None, 32768)
    assert (three.attention_bias, three.attention_output_bias, three.qk_norm) == (False, False, True)
    assert (three.head_dim, three.num_heads * three.head_dim, three.hidden_size) == (128, 2048, 1024)
    biased = right(tmp_path, QWEN3_06B | {"attention_bias": True})
    assert (biased.attention_bias, biased.attention_output_bias) == (True, True)


def test_flags_of_other_families_are_not_read(tmp_path: Path) -> None:
    """As in transformers, whose classes have no such layers; tensors that would need them are refused by the layout checks."""
    config = right(tmp_path, QWEN2_05B | {"attention_bias": False, "mlp_bias": True})
    assert config.attention_bias
    assert not config.mlp_bias


def test_one_name_is_enough_and_two_must_agree(tmp_path: Path) -> None:
    assert right(tmp_path, QWEN2_05B | {"architectures": None}).architecture == "Qwen2ForCausalLM"
    del (alone := dict(QWEN3_06B))["model_type"]
    assert right(tmp_path, alone).architecture == "Qwen3ForCausalLM"
    config, (message,) = read(tmp_path, QWEN2_05B | {"model_type": "llama"})
    assert config is None
    assert "Qwen2ForCausalLM with the model_type llama" in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20},
            "4 layers of sliding attention",
        ),
        ({"layer_types": ["full_attention"] * 23 + ["sliding_attention"]}, "layers of sliding_attention (layer_types)"),
        ({"layer_types": ["linear_attention"] * 24}, "layers of linear_attention"),
        ({"layer_types": ["full_attention"]}, "layer_types does not name each of the 24 layers"),
        ({"sliding_window": "wide"}, "sliding_window is 'wide'"),
        ({"use_sliding_window": True, "max_window_layers": -1}, "max_window_layers is -1"),
    ],
    ids=str,
)
def test_qwens_with_sliding_layers_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    config, (message,) = read(tmp_path, QWEN2_05B | change)
    assert config is None
    assert words in message


@pytest.mark.parametrize(
    "change",
    [
        {"use_sliding_window": True},  # beyond the last layer
        {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0},
        {"use_sliding_window": False, "max_window_layers": 0},
        {"layer_types": ["full_attention"] * 24, "use_sliding_window": True, "max_window_layers": 0},
    ],
    ids=str,
)
def test_qwens_whose_layers_all_attend_fully_are_taken(tmp_path: Path, change: dict[str, Any]) -> None:
    assert right(tmp_path, QWEN2_05B | change).sliding_window is None


def test_rope_by_kind_of_layer(tmp_path: Path) -> None:
    del (plain := dict(QWEN3_06B))["rope_theta"]
    inner = {"rope_type": "default", "rope_theta": 1e6}
    assert right(tmp_path, plain | {"rope_parameters": {"full_attention": inner}}) == right(tmp_path, QWEN3_06B)
    config, (message,) = read(tmp_path, plain | {"rope_parameters": {"sliding_attention": inner}})
    assert config is None
    assert "kind of layer" in message


@pytest.mark.parametrize(
    "name",
    [
        "Gemma2ForCausalLM",
        "Phi3ForCausalLM",
        "MixtralForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3MoeForCausalLM",
        "Llama4ForConditionalGeneration",
        "MllamaForConditionalGeneration",
        "GraniteForCausalLM",
        "LlamaForSequenceClassification",
        "LlamaModel",
    ],
)
def test_other_architectures_are_refused_by_name(tmp_path: Path, name: str) -> None:
    for names in ([name], ["LlamaForCausalLM", name]):
        config, (message,) = read(tmp_path, {**SIZES, "architectures": names, "model_type": "llama"})
        assert config is None
        assert message.startswith("checkpoint.unsupported")
        assert f"the architecture {name}," in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("auto_map", {"AutoModelForCausalLM": "modeling.Model"}),
        ("attn_logit_softcapping", 50.0),
        ("residual_multiplier", 0.22),
        ("embedding_multiplier", 12.0),
        ("attention_multiplier", 0.0078125),
        ("logits_scaling", 8.0),
        ("scale_emb", 12),
        ("scale_depth", 1.4),
        ("dim_model_base", 256),
        ("clip_qkv", 8.0),
        ("use_qk_norm", True),
        ("num_local_experts", 8),
        ("no_rope_layers", [1, 1, 1, 0]),
        ("attention_chunk_size", 8192),
        ("is_causal", False),
        ("partial_rotary_factor", 0.5),
        ("hidden_act", "gelu_pytorch_tanh"),
    ],
)
def test_keys_that_change_the_arithmetic_are_refused_by_name(tmp_path: Path, key: str, value: object) -> None:
    base = {**SIZES, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    config, (message,) = read(tmp_path, base | {key: value})
    assert config is None
    assert message.startswith("checkpoint.unsupported")
    assert key in message
    assert right(tmp_path, base | {key: None})


@pytest.mark.parametrize(
    "neutral", [{"pretraining_tp": 4}, {"residual_multiplier": 1.0}, {"hidden_act": "swish"}, {"num_experts": 0}]
)
def test_neutral_keys_are_fine(tmp_path: Path, neutral: dict[str, Any]) -> None:
    assert right(tmp_path, {**SIZES, "architectures": ["LlamaForCausalLM"], **neutral})


@pytest.mark.parametrize(
    ("value", "method"),
    [
        *[
            ({"quant_method": name}, name)
            for name in ("gptq", "awq", "bitsandbytes", "fp8", "vptq", "compressed-tensors")
        ],
        ({"load_in_4bit": True}, "bitsandbytes"),
        ({"bits": 4}, "an unnamed method"),
    ],
    ids=str,
)
def test_quantised_weights_are_refused_by_their_method(tmp_path: Path, value: object, method: str) -> None:
    config, (message,) = read(tmp_path, QWEN3_06B | {"quantization_config": value})
    assert config is None
    assert f"weights quantised by {method}," in message
