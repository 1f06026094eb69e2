"""Configurations from anywhere: whatever stands under a key, the answer is numbers or problems, never a fault."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etcli.checkpoint.adapter_config import AdapterConfig, read_adapter_config
from etcli.checkpoint.hf_config import read_config
from etcli.common.errors import Problems

GOOD: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 320,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
    "rope_scaling": None,
    "rope_parameters": {"rope_type": "linear", "factor": 2.0},
    "tie_word_embeddings": False,
    "use_sliding_window": True,
    "sliding_window": 64,
    "max_window_layers": 2,
    "layer_types": None,
    "eos_token_id": [1, 2],
    "quantization_config": None,
    "auto_map": None,
    "partial_rotary_factor": None,
}
ADAPTER: dict[str, Any] = {
    "peft_type": "LORA",
    "r": 4,
    "lora_alpha": 8,
    "target_modules": ["q_proj"],
    "bias": "none",
    "use_rslora": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "init_lora_weights": True,
}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["rope_type", "type", "factor", "full_attention", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(GOOD)), VALUES)
def test_any_value_of_a_configuration(key: str, value: object) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "config.json").write_text(json.dumps(GOOD | {key: value}))
        problems = Problems()
        config = read_config(Path(name), problems)
    assert (config is None) == bool(problems)
    assert all(problem.hint and problem.code.startswith("checkpoint.") for problem in problems.found)


AQLM: dict[str, Any] = {
    "quant_method": "aqlm",
    "nbits_per_codebook": 8,
    "num_codebooks": 2,
    "out_group_size": 1,
    "in_group_size": 8,
    "linear_weights_not_to_quantize": ["model.layers.0.self_attn.q_proj.weight", "lm_head.weight"],
}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["quantization_config", "aqlm"]), st.sampled_from([*sorted(AQLM), None]), VALUES)
def test_any_value_of_aqlms_block(spelling: str, key: str | None, value: object) -> None:
    block = value if key is None else AQLM | {key: value}
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "config.json").write_text(json.dumps(GOOD | {spelling: block}))
        problems = Problems()
        config = read_config(Path(name), problems)
    assert (config is None) == bool(problems)
    assert all(problem.hint and problem.code.startswith("checkpoint.") for problem in problems.found)
    if key not in (None, "quant_method") and config is not None:
        assert config.aqlm is not None


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(ADAPTER)), VALUES)
def test_any_value_of_an_adapter(key: str, value: object) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "adapter_config.json").write_text(json.dumps(ADAPTER | {key: value}))
        problems = Problems()
        config = read_adapter_config(Path(name), problems)
    assert (config is None) == bool(problems)
    assert all(problem.hint and problem.code.startswith("adapter.") for problem in problems.found)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "pattern", ["(a|a)*b", "(.*)*x", ".*.*.*.*.*x", "(?:x+x+)+y", "a{1,9999}{1,9999}", "(", "x" * 500]
)
def test_patterns_that_would_never_end_are_refused(tmp_path: Path, pattern: str) -> None:
    document = ADAPTER | {"rank_pattern": {pattern: 2}}
    (tmp_path / "adapter_config.json").write_text(json.dumps(document))
    problems = Problems()
    assert read_adapter_config(tmp_path, problems) is None
    assert "the pattern" in problems.found[0].message


def test_patterns_are_looked_up_as_peft_does() -> None:
    config = AdapterConfig(
        4, 8.0, False, None, {"q_proj": 8, r"layers\.1\..*v_proj": 2}, {"^model.layers.0.mlp.up_proj": 1}
    )
    assert config.rank_of("model.layers.3.self_attn.q_proj") == 8
    assert config.rank_of("model.layers.1.self_attn.v_proj") == 2
    assert config.rank_of("model.layers.11.self_attn.v_proj") == 4
    assert config.scale_of("model.layers.3.self_attn.q_proj") == 1.0
    assert config.scale_of("model.layers.0.mlp.up_proj") == 0.25
