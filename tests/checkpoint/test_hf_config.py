"""`config.json` in every spelling that transformers has written, against transformers' own reading."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from etcli.checkpoint.hf_config import read_config
from etcli.checkpoint.rope import llama3_divisors, unscaled_remark
from etcli.common.errors import Problems
from etcli.manifests.model import ModelConfig, RopeConfig

LLAMA2: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "max_position_embeddings": 2048,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "vocab_size": 32000,
}
LLAMA3_ROPE = {
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
LLAMA32_1B = LLAMA2 | {
    "eos_token_id": [128001, 128008, 128009],
    "head_dim": 64,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "rope_scaling": LLAMA3_ROPE,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "vocab_size": 128256,
}

Read = Callable[..., tuple[ModelConfig | None, Problems]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def call(config: dict[str, Any], generation: dict[str, Any] | None = None) -> tuple[ModelConfig | None, Problems]:
        (tmp_path / "config.json").write_text(json.dumps(config))
        if generation is not None:
            (tmp_path / "generation_config.json").write_text(json.dumps(generation))
        problems = Problems()
        return read_config(tmp_path, problems), problems

    return call


def right(answer: tuple[ModelConfig | None, Problems]) -> ModelConfig:
    config, problems = answer
    assert not problems.found
    assert config is not None
    return config


def wrong(answer: tuple[ModelConfig | None, Problems]) -> list[str]:
    config, problems = answer
    assert config is None
    assert all(problem.hint and problem.file for problem in problems.found)
    return [f"{problem.code}: {problem.message}" for problem in problems.found]


def test_old_llama_takes_the_defaults_of_its_time(read: Read) -> None:
    config = right(read(LLAMA2))
    assert (config.num_kv_heads, config.head_dim, config.tied_embeddings) == (32, 128, False)
    assert config.rope == RopeConfig(theta=10000.0)
    assert config.stop_ids == (2,)


@pytest.mark.known_failure("rope-parameters-renamed", "rope-type-spelling")
def test_both_spellings_of_rope_are_one(read: Read) -> None:
    new = {key: value for key, value in LLAMA32_1B.items() if key not in ("rope_theta", "rope_scaling")}
    new["rope_parameters"] = LLAMA3_ROPE | {"rope_theta": 500000.0}
    old_type = LLAMA32_1B | {"rope_scaling": {**LLAMA3_ROPE, "type": "llama3"}}
    del old_type["rope_scaling"]["rope_type"]
    both = LLAMA32_1B | {"rope_parameters": new["rope_parameters"]}
    configs = [right(read(document)) for document in (LLAMA32_1B, new, old_type, both)]
    assert all(config == configs[0] for config in configs)
    rope = configs[0].rope
    assert (rope.kind, rope.theta, rope.factor, rope.original_context) == ("llama3", 500000.0, 32.0, 8192)


@pytest.mark.known_failure("rope-parameters-renamed")
def test_what_transformers_writes_today_is_read(read: Read) -> None:
    for document in (LLAMA2, LLAMA32_1B):
        written = LlamaConfig(**document).to_dict() | {"architectures": ["LlamaForCausalLM"]}
        assert "rope_parameters" in written
        assert right(read(written)) == right(read(document))


def test_end_ids_of_both_files_are_united(read: Read) -> None:
    config = right(read(LLAMA32_1B | {"eos_token_id": 128001}, {"eos_token_id": [128001, 128008, 128009, 10**9, True]}))
    assert config.stop_ids == (128001, 128008, 128009)


def test_linear_scaling(read: Read) -> None:
    for scaling in ({"type": "linear", "factor": 2.0}, {"rope_type": "linear", "factor": 2}):
        assert right(read(LLAMA2 | {"rope_scaling": scaling})).rope == RopeConfig(theta=10000, kind="linear", factor=2)


@pytest.mark.parametrize("kind", ["yarn", "dynamic", "longrope", "su", "mrope", "proportional", "new-kind"])
@pytest.mark.known_failure("rope-scaling-dropped")
def test_other_scaling_is_refused_by_name(read: Read, kind: str) -> None:
    for key in ("rope_scaling", "rope_parameters"):
        (message,) = wrong(read(LLAMA2 | {"rope_scaling": None, key: {"rope_type": kind, "factor": 2.0}}))
        assert message.startswith("checkpoint.unsupported")
        assert kind in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor is missing"),
        ({"rope_scaling": {**LLAMA3_ROPE, "factor": -1}}, "factor is -1"),
        ({"rope_scaling": {**LLAMA3_ROPE, "low_freq_factor": 4.0}}, "not below"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, "factor is '2'"),
        ({"rope_scaling": "linear"}, "rope_scaling is 'linear'"),
        ({"rope_scaling": {**LLAMA3_ROPE, "type": "linear"}}, "linear and llama3 at once"),
        ({"rope_scaling": LLAMA3_ROPE, "rope_parameters": {"rope_type": "default"}}, "disagree"),
        ({"rope_scaling": LLAMA3_ROPE, "rope_parameters": {**LLAMA3_ROPE, "factor": 8.0}}, "disagree"),
        (
            {"rope_scaling": LLAMA3_ROPE, "original_max_position_embeddings": 4096},
            "original_max_position_embeddings is 4096 and 8192 at once",
        ),
        ({"rope_theta": 10000.0, "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}}, "at once"),
        ({"rope_theta": True}, "rope_theta is True"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": 4096.0}, "hidden_size is 4096.0"),
        ({"hidden_size": 4100}, "hidden_size 4100 is no multiple of num_attention_heads 32, and there is no head_dim"),
        ({"hidden_size": 10**400}, "hidden_size is 1000"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps is 1000"),
        ({"rope_theta": 10**400}, "rope_theta is 1000"),
        ({"rope_scaling": {"factor": 8.0}}, "has factor but no rope_type"),
        (
            {"rope_parameters": {"rope_theta": 1e4, "factor": 2.0, "low_freq_factor": 1.0}},
            "has factor, low_freq_factor but no",
        ),
        ({"architectures": {"LlamaForCausalLM": 1}}, "architectures is {'LlamaForCausalLM': 1}, not a list"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"num_key_value_heads": 5}, "32 query heads cannot share 5 KV heads"),
        ({"head_dim": 63}, "odd"),
        ({"rms_norm_eps": 0}, "rms_norm_eps is 0"),
    ],
    ids=str,
)
def test_wrong_values_are_named(read: Read, change: dict[str, Any], words: str) -> None:
    messages = wrong(read(LLAMA2 | change))
    assert any(words in message for message in messages), messages
    assert all(message.startswith("checkpoint.config") for message in messages)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architectures": ["Qwen2ForCausalLM"]}, "Qwen2ForCausalLM with the model_type llama"),
        ({"architectures": ["MixtralForCausalLM"]}, "architecture MixtralForCausalLM"),
        ({"architectures": None, "model_type": "gemma"}, "gemma"),
        ({"architectures": [["x"]]}, "architecture ['x']"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_interleaved": True}, "rope_interleaved"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "kind of layer"),
    ],
    ids=str,
)
def test_what_is_not_supported_is_refused_by_name(read: Read, change: dict[str, Any], words: str) -> None:
    (message,) = wrong(read(LLAMA2 | change))
    assert message.startswith("checkpoint.unsupported")
    assert words in message


def test_several_faults_come_at_once(read: Read) -> None:
    messages = wrong(read(LLAMA2 | {"vocab_size": 0, "hidden_act": "gelu", "rope_scaling": {"rope_type": "yarn"}}))
    assert len(messages) == 3


def test_mistral_is_bounded_by_its_window(read: Read) -> None:
    mistral = LLAMA2 | {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "max_position_embeddings": 32768,
    }
    assert right(read(mistral)).context_length == 4096
    assert right(read(mistral)).num_kv_heads == 8
    assert right(read(mistral | {"sliding_window": None})).context_length == 32768
    assert right(read(mistral | {"sliding_window": 8192, "num_key_value_heads": 4})).context_length == 8192
    assert right(read(mistral)).sliding_window == 4096
    assert right(read(mistral | {"sliding_window": None})).sliding_window is None
    assert right(read(LLAMA2 | {"sliding_window": 16})).sliding_window is None  # not a key of the family


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1', "\xff", "[" * 100000])
def test_a_damaged_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    problems = Problems()
    assert read_config(tmp_path, problems) is None
    (problem,) = problems.found
    assert problem.code == "checkpoint.config"


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("factor", [8.0, 32.0])
@pytest.mark.known_failure("rope-scaling-dropped")
def test_llama3_divisors_are_those_of_transformers(head_dim: int, factor: float) -> None:
    rope = RopeConfig(
        theta=500000.0, kind="llama3", factor=factor, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192
    )
    parameters = LLAMA3_ROPE | {"factor": factor, "rope_theta": 500000.0}
    config = LlamaConfig(hidden_size=head_dim, num_attention_heads=1, head_dim=head_dim, rope_parameters=parameters)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 500000.0 ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    expected = plain / scaled.double()
    torch.testing.assert_close(
        torch.tensor(llama3_divisors(rope, head_dim), dtype=torch.float64), expected, rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("key", ["tie_word_embeddings", "attention_bias", "mlp_bias"])
def test_a_flag_is_true_or_false(read: Read, key: str) -> None:
    for value in ("false", 0, [], 1.0):
        assert wrong(read(LLAMA2 | {key: value})) == [
            f"checkpoint.config: config.json is wrong: {key} is {value!r}, neither true nor false"
        ]
    assert right(read(LLAMA2 | {key: None})) == right(read({k: v for k, v in LLAMA2.items() if k != key}))


def test_a_lying_number_of_layers_costs_nothing(read: Read) -> None:
    (problem,) = wrong(read(LLAMA2 | {"num_hidden_layers": 10**12}))
    assert "num_layers" in problem


@pytest.mark.known_failure("rope-scaling-dropped")
def test_llama_3_1_without_its_scaling_is_doubted(read: Read) -> None:
    """The configuration that a tool ships for Llama 3.2 is the published one with rope_scaling deleted."""
    llama3 = LLAMA2 | {"vocab_size": 128256, "rope_theta": 500000.0, "max_position_embeddings": 131072}
    remark = unscaled_remark(right(read(llama3)))
    assert remark is not None
    assert "rope_scaling" in remark
    for change in ({"rope_scaling": LLAMA3_ROPE}, {"max_position_embeddings": 8192}, {"rope_theta": 1e6}):
        assert unscaled_remark(right(read(llama3 | change))) is None
