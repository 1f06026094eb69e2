"""One decoder layer: attention and a gated feed-forward network, each behind a norm and added to the residual stream."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from etcli.llama.attention import Attention
from etcli.llama.linear import linear
from etcli.llama.norm import RMSNorm
from etcli.manifests.model import ModelConfig


class FeedForward(nn.Module):
    """SwiGLU: `down(silu(gate(x)) * up(x))`, `[1, T, H]` to `[1, T, H]`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = linear(hidden, inner, bias=bias)
        self.up_proj = linear(hidden, inner, bias=bias)
        self.down_proj = linear(inner, hidden, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape as `x`."""
        product: torch.Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return product


class DecoderLayer(nn.Module):
    """A layer whose parameters carry Hugging Face's names after `model.layers.N.`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(
        self,
        hidden: torch.Tensor,
        mask: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As `Attention.forward`, for the whole layer."""
        attended, keys, values = self.self_attn(self.input_layernorm(hidden), mask, cos, sin, key_cache, value_cache)
        hidden = hidden + attended
        return hidden + self.mlp(self.post_attention_layernorm(hidden)), keys, values
