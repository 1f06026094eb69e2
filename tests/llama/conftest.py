"""Small random networks: a transformers model and our ModelConfig and Checkpoint of the same weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from etcli.checkpoint.base import TensorInfo
from etcli.common.errors import CheckpointError
from etcli.manifests.model import ModelConfig, RopeConfig


class MemoryCheckpoint:
    """A Checkpoint over a state dict in memory; `read_names` lists what was read, in order."""

    path = Path("memory")
    format = "safetensors"
    unused: tuple[str, ...] = ()

    def __init__(self, config: ModelConfig, weights: Mapping[str, torch.Tensor]) -> None:
        self.config = config
        self.weights = dict(weights)
        self.read_names: list[str] = []

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return {
            name: TensorInfo(tuple(tensor.shape), "F32", tensor.numel() * 4) for name, tensor in self.weights.items()
        }

    def read(self, name: str) -> torch.Tensor:
        if name not in self.weights:
            raise CheckpointError(f"no tensor {name}", code="checkpoint.tensor_missing")
        self.read_names.append(name)
        return self.weights[name].clone()

    def read_rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        return self.read(name)[start:stop].clone()

    def sha256(self, name: str) -> str:
        return hashlib.sha256(self.weights[name].numpy().tobytes()).hexdigest()


def _network(
    *, seed: int = 0, rope: Mapping[str, Any] | None = None, **options: Any
) -> tuple[LlamaForCausalLM, MemoryCheckpoint]:
    """A random network: Hugging Face options override those of a 4-layer default; `rope` is its `rope_parameters`."""
    parameters = dict(rope or {"rope_type": "default", "rope_theta": 10000.0})
    settings: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 112,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 160,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "attn_implementation": "eager",
        **options,
    }
    hf_config = LlamaConfig(rope_parameters=parameters, **settings)
    torch.manual_seed(seed)
    model = LlamaForCausalLM(hf_config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Weights large enough, and norms and biases far enough from their defaults, for every one of them to matter.
            scale = 0.3 if name.endswith(("bias", "norm.weight")) else 0.12
            parameter.normal_(std=scale).add_(1.0 if name.endswith("norm.weight") else 0.0)
    config = ModelConfig(
        architecture="LlamaForCausalLM",
        hidden_size=hf_config.hidden_size,
        intermediate_size=hf_config.intermediate_size,
        num_layers=hf_config.num_hidden_layers,
        num_heads=hf_config.num_attention_heads,
        num_kv_heads=hf_config.num_key_value_heads,
        head_dim=hf_config.head_dim,
        vocab_size=hf_config.vocab_size,
        context_length=hf_config.max_position_embeddings,
        rms_norm_eps=hf_config.rms_norm_eps,
        rope=rope_config(parameters),
        tied_embeddings=hf_config.tie_word_embeddings,
        attention_bias=hf_config.attention_bias,
        attention_output_bias=hf_config.attention_bias,
        mlp_bias=hf_config.mlp_bias,
    )
    weights = {name: tensor for name, tensor in model.state_dict().items() if "rotary" not in name}
    if config.tied_embeddings:
        weights.pop("lm_head.weight", None)
    return model, MemoryCheckpoint(config, weights)


def rope_config(parameters: Mapping[str, Any]) -> RopeConfig:
    """Our RopeConfig of Hugging Face's `rope_parameters`."""
    return RopeConfig(
        theta=parameters["rope_theta"],
        kind=parameters["rope_type"],
        factor=parameters.get("factor", 1.0),
        low_freq_factor=parameters.get("low_freq_factor", 1.0),
        high_freq_factor=parameters.get("high_freq_factor", 4.0),
        original_context=parameters.get("original_max_position_embeddings", 8192),
    )


@pytest.fixture(name="network", scope="session")
def _network_fixture() -> Callable[..., tuple[LlamaForCausalLM, MemoryCheckpoint]]:
    """`network(seed=, rope=, **LlamaConfig options)` gives a random transformers model and a checkpoint of the same weights."""
    return _network


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Networks this small gain nothing from more, and threads that wait for one another slow a busy machine down."""
    torch.set_num_threads(1)
