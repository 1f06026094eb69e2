"""Rotary tables equal those of transformers, in both spellings of the configuration, at long positions."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from etcli.llama.rope import rope_table, rotary_input
from etcli.manifests.model import RopeConfig

CASES = {
    "default": (RopeConfig(theta=10000.0), {"rope_type": "default"}),
    "theta_500k": (RopeConfig(theta=500000.0), {"rope_type": "default"}),
    "linear": (RopeConfig(theta=10000.0, kind="linear", factor=4.0), {"rope_type": "linear", "factor": 4.0}),
    "llama3_1": (
        RopeConfig(theta=500000.0, kind="llama3", factor=8.0, original_context=8192),
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    "llama3_2": (
        RopeConfig(theta=500000.0, kind="llama3", factor=32.0, original_context=8192),
        {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    "llama3_other_bounds": (
        RopeConfig(
            theta=10000.0, kind="llama3", factor=3.5, low_freq_factor=2.0, high_freq_factor=9.0, original_context=512
        ),
        {
            "rope_type": "llama3",
            "factor": 3.5,
            "low_freq_factor": 2.0,
            "high_freq_factor": 9.0,
            "original_max_position_embeddings": 512,
        },
    ),
}


@pytest.mark.parametrize("head_dim", [64, 128, 24])
@pytest.mark.parametrize("spelling", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.known_failure("rope-base-ignored", "rope-scaling-dropped")
def test_table_equals_transformers(case: str, spelling: str, head_dim: int) -> None:
    rope, parameters = CASES[case]
    if spelling == "rope_parameters":
        written = {"rope_parameters": {**parameters, "rope_theta": rope.theta}}
    else:
        written = {"rope_scaling": dict(parameters), "rope_theta": rope.theta}
    config = LlamaConfig(
        hidden_size=head_dim * 2, num_attention_heads=2, head_dim=head_dim, max_position_embeddings=131072, **written
    )
    positions = 131072 if head_dim == 64 else 9000
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.arange(positions).unsqueeze(0))
    table = rope_table(rope, head_dim, positions)
    assert table.shape == (positions, 2, head_dim)
    assert table.dtype == torch.float32
    torch.testing.assert_close(table[:, 0], cos[0], atol=1e-6, rtol=0)
    torch.testing.assert_close(table[:, 1], sin[0], atol=1e-6, rtol=0)


def test_rotary_input_is_cos_plane_then_sin_plane_with_zero_padding() -> None:
    table = rope_table(RopeConfig(theta=10000.0), 8, 12)
    planes = rotary_input(table, 3, 5, left_padding=2)
    assert planes.shape == (1, 2, 5, 8)
    assert planes[0, :, :2].eq(0).all()
    for row, position in enumerate([3, 4, 5], start=2):
        assert planes[0, 0, row].equal(table[position, 0])
        assert planes[0, 1, row].equal(table[position, 1])


def test_positions_past_the_table_are_refused() -> None:
    table = rope_table(RopeConfig(theta=10000.0), 8, 12)
    with pytest.raises(IndexError, match="12"):
        rotary_input(table, 10, 3)
