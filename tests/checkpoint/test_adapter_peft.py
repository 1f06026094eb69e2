"""Adapters that peft itself made and saved, against peft's own merging. Needs peft, which nothing else here does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from etcli.checkpoint.checks import header_problems
from etcli.checkpoint.opening import open_checkpoint

peft = pytest.importorskip("peft")


def saved(base: Path, folder: Path, **keys: Any) -> dict[str, torch.Tensor]:
    """Save a random adapter of `base` into `folder`; the tensors of the merged model."""
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **({"r": 4, "lora_alpha": 6} | keys)))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                parameter.normal_(0.0, 0.3)
    adapted.save_pretrained(folder)
    return dict(adapted.merge_and_unload().named_parameters())


@pytest.mark.parametrize(
    ("family", "keys"),
    [
        ("llama", {}),
        ("llama", {"target_modules": "all-linear", "use_rslora": True}),
        ("llama", {"target_modules": r".*layers\.1.*(q_proj|up_proj)"}),
        ("llama", {"target_modules": ["q_proj", "embed_tokens"], "modules_to_save": ["lm_head"]}),
        (
            "llama",
            {"target_modules": ["v_proj"], "layers_to_transform": [1], "modules_to_save": ["embed_tokens", "lm_head"]},
        ),
        (
            "qwen3",
            {
                "target_modules": ["q_proj", "o_proj", "gate_proj"],
                "rank_pattern": {"q_proj": 8, r"^model\.layers\.0\.mlp\.gate_proj": 2},
                "alpha_pattern": {"o_proj": 3},
            },
        ),
        ("qwen2", {"target_modules": ["k_proj"], "init_lora_weights": "gaussian"}),
    ],
    ids=str,
)
def test_merging_is_that_of_peft(
    random_model: Callable[..., Path], tmp_path: Path, family: str, keys: dict[str, Any]
) -> None:
    base = random_model(family)
    expected = saved(base, tmp_path / "adapter", **keys)
    assert header_problems(base, tmp_path / "adapter") == []
    plain, merged = open_checkpoint(base), open_checkpoint(base, tmp_path / "adapter")
    assert set(merged.tensors) == set(expected)
    for name in merged.tensors:
        torch.testing.assert_close(merged.read(name), expected[name].detach(), rtol=1e-5, atol=1e-5)
    assert any(not torch.equal(merged.read(name), plain.read(name)) for name in merged.tensors)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"bias": "lora_only", "target_modules": ["q_proj"]}, "bias"),
        ({"init_lora_weights": "pissa"}, "pissa"),
    ],
    ids=str,
)
def test_kinds_that_are_not_read(
    random_model: Callable[..., Path], tmp_path: Path, keys: dict[str, Any], words: str
) -> None:
    base = random_model("llama")
    saved(base, tmp_path / "adapter", **keys)
    problems = header_problems(base, tmp_path / "adapter")
    assert {problem.code for problem in problems} <= {"adapter.unsupported", "adapter.tensor"}
    assert any(words in problem.message for problem in problems)
