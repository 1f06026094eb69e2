"""A layer stopped before each group of linears that share their inputs, so that these can be quantised on the very inputs that they will see."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import nn

from etcli.llama.layer import DecoderLayer
from etcli.llama.mask import additive_mask
from etcli.manifests.model import ModelConfig


@dataclass(frozen=True)
class Station:
    """Linears with the same inputs.

    Attributes:
        names: by which the checkpoint knows them, after `model.layers.N.`.
        module: the network's own, in which they lie one below the other.
        residual: whether their outputs are added to the residual stream.
    """

    names: tuple[str, ...]
    module: str
    residual: bool

    def weight(self, layer: DecoderLayer) -> nn.Parameter:
        """The matrix of the group in `layer`, `[out, in]`."""
        return layer.get_parameter(f"{self.module}.weight")


STATIONS = (
    Station(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "self_attn.qkv_proj", residual=False),
    Station(("self_attn.o_proj",), "self_attn.o_proj", residual=True),
    Station(("mlp.gate_proj", "mlp.up_proj"), "mlp.gate_up_proj", residual=False),
    Station(("mlp.down_proj",), "mlp.down_proj", residual=True),
)
"""The linears of a layer in the order in which a token meets them."""


@dataclass(frozen=True)
class Halt:
    """What has come so far of one sequence of T tokens: `inputs` `[T, in]` of the next station, and the residual stream `[T, H]`.

    After the last station the residual stream is the layer's output, and the inputs are its.
    """

    inputs: torch.Tensor
    residual: torch.Tensor


Ride = Generator[Halt, None, None]


def ride(layer: DecoderLayer, config: ModelConfig, hidden: torch.Tensor, rotary: torch.Tensor) -> Ride:
    """Take a sequence through a layer: a halt before each of `STATIONS`, and one at the end.

    The layer's weights may be changed at a halt; what comes after it is computed with them.

    Args:
        layer: with cache `shift`.
        hidden: `[T, H]`.
        rotary: `[1, 2, T, D]`.
    """
    tokens = len(hidden)
    attention = layer.self_attn
    inputs = layer.input_layernorm(hidden.unsqueeze(0))
    yield Halt(inputs[0], hidden)
    nothing = torch.zeros(1, config.num_kv_heads, 0, config.head_dim)
    mixed, _, _ = attention.attend(inputs, nothing, nothing, *attention.prepare(additive_mask(tokens, 0, 0), rotary))
    yield Halt(mixed[0], hidden)
    hidden = hidden + attention.o_proj(mixed)[0]
    inputs = layer.post_attention_layernorm(hidden.unsqueeze(0))
    yield Halt(inputs[0], hidden)
    inner = layer.mlp.gated(inputs)
    yield Halt(inner[0], hidden)
    hidden = hidden + layer.mlp.down_proj(inner)[0]
    yield Halt(hidden, hidden)
