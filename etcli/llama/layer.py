"""One decoder layer: attention and a gated feed-forward network, each behind a norm and added to the residual stream."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from etcli.llama.attention import Attended, attention_class
from etcli.llama.linear import LayerLinears, linear
from etcli.llama.norm import RMSNorm
from etcli.manifests.bundle import CacheKind
from etcli.manifests.model import ModelConfig

Rows = Callable[[torch.Tensor], torch.Tensor]


def every_row(x: torch.Tensor) -> torch.Tensor:
    """x itself."""
    return x


class FeedForward(nn.Module):
    """SwiGLU: `down(silu(gate(x)) * up(x))`, `[1, T, H]` to `[1, T, H]`.

    Gate and up are one linear, taken apart with slices; in AQLM networks they are two, each with codebooks of its own.
    """

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        hidden, bias = config.hidden_size, config.mlp_bias
        linears = LayerLinears(config, layer)
        self.inner = config.intermediate_size
        self.fused = config.aqlm is None
        if self.fused:
            self.gate_up_proj = linear(hidden, 2 * self.inner, bias=bias)
        else:
            self.gate_proj = linears.make("mlp.gate_proj", hidden, self.inner, bias=bias)
            self.up_proj = linears.make("mlp.up_proj", hidden, self.inner, bias=bias)
        self.down_proj = linears.make("mlp.down_proj", self.inner, hidden, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape as `x`."""
        product: torch.Tensor = self.down_proj(self.gated(x))
        return product

    def gated(self, x: torch.Tensor) -> torch.Tensor:
        """What `down_proj` takes: `silu(gate(x)) * up(x)`, `[1, T, I]`."""
        gate, up = self._products(x)
        return functional.silu(gate) * up

    def _products(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.fused:
            return self.gate_proj(x), self.up_proj(x)
        both = self.gate_up_proj(x)
        return both[..., : self.inner], both[..., self.inner :]


class DecoderLayer(nn.Module):
    """Layer `layer` of the network; parameters carry Hugging Face's names after `model.layers.N.`, fused ones aside."""

    def __init__(self, config: ModelConfig, layer: int, cache: CacheKind) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = attention_class(config, cache)(config, layer)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config, layer)

    def forward(
        self,
        hidden: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        *prepared: torch.Tensor,
        rows: Rows = every_row,
    ) -> Attended:
        """As `Attention.attend`, for the whole layer. `rows` chooses which rows go on once they have been attended to."""
        mixed, keys, values = self.self_attn.attend(self.input_layernorm(hidden), key_cache, value_cache, *prepared)
        hidden = rows(hidden) + self.self_attn.o_proj(rows(mixed))
        return hidden + self.mlp(self.post_attention_layernorm(hidden)), keys, values
