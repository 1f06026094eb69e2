"""Every family against transformers: the logits of small random models, read from folders and GGUF files, in eager float32."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf_writing import write
from transformers import AutoModelForCausalLM

from etcli.checkpoint.opening import open_checkpoint
from etcli.llama.passes import HeldPasses
from etcli.llama.reference import ReferenceDecoder

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-2": ("llama", {"num_key_value_heads": 4}),
    "llama-3.1": ("llama", {"rope_parameters": LLAMA3}),
    "llama-3.2": (
        "llama",
        {"rope_parameters": LLAMA3 | {"factor": 32.0}, "tie_word_embeddings": True},
    ),
    "llama-linear": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}},
    ),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "smollm2": (
        "llama",
        {
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "hidden_size": 72,
            "head_dim": 8,
            "tie_word_embeddings": True,
        },
    ),
    "mistral": ("mistral", {"head_dim": 32}),
    "mistral-window": ("mistral", {"sliding_window": 128}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2.5": ("qwen2", {"rope_theta": 1e6, "num_key_value_heads": 1}),
    "qwen3": ("qwen3", {"tie_word_embeddings": True}),
    "qwen3-bias": ("qwen3", {"attention_bias": True, "rope_theta": 1e6}),
}
ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
TOKENS = [int(token) for token in torch.randint(0, 320, (97,), generator=torch.Generator().manual_seed(4))]
PROMPT = 40


def assert_same_logits(path: Path, folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        logits = model(torch.tensor([TOKENS])).logits[0]
    assert float(logits.std()) > 0.01, "logits that are all alike would prove little"
    checkpoint = open_checkpoint(path)
    judged = ReferenceDecoder(checkpoint, HeldPasses(checkpoint)).judge(
        TOKENS[:PROMPT], TOKENS[PROMPT:], cache_length=len(TOKENS)
    )
    rows = logits[PROMPT - 1 : -1]
    ours = torch.tensor([[answer.token_logit, answer.best_logit] for answer in judged])
    theirs = torch.stack([rows.gather(1, torch.tensor(TOKENS[PROMPT:])[:, None])[:, 0], rows.max(dim=1).values], dim=1)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert [answer.best for answer in judged] == rows.argmax(dim=1).tolist()


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(random_model: Callable[..., Path], name: str) -> None:
    family, given = MODELS[name]
    folder = random_model(family, **given)
    assert_same_logits(folder, folder)


@pytest.mark.parametrize("name", ["llama-2", "llama-biases", "smollm2", "mistral", "qwen2", "qwen3", "qwen3-bias"])
def test_logits_of_gguf_are_those_of_transformers(random_model: Callable[..., Path], tmp_path: Path, name: str) -> None:
    family, given = MODELS[name]
    folder = random_model(family, **given)
    assert_same_logits(write(tmp_path / "m.gguf", folder, arch=ARCHITECTURES[family]), folder)
