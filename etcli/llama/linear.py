"""Linear layers without storage: weights come from a checkpoint, one at a time."""

from __future__ import annotations

from torch import nn

from etcli.llama.aqlm import AqlmLinear
from etcli.manifests.model import ModelConfig


def linear(inputs: int, outputs: int, *, bias: bool) -> nn.Linear:
    """A linear layer on the meta device: no memory and no random values until its weights are loaded."""
    layer = nn.Linear(inputs, outputs, bias=bias, device="meta")
    layer.requires_grad_(False)
    return layer


class LayerLinears:
    """Makes the linears of one layer of a network, each as the configuration says that it is stored."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        self._aqlm, self._prefix = config.aqlm, f"model.layers.{layer}."

    def make(self, name: str, inputs: int, outputs: int, *, bias: bool) -> nn.Linear | AqlmLinear:
        """The linear that the checkpoint calls `name` in its layer, as `self_attn.q_proj`."""
        if self._aqlm is None or self._prefix + name in self._aqlm.kept:
            return linear(inputs, outputs, bias=bias)
        return AqlmLinear(inputs, outputs, self._aqlm.codebooks, bias=bias)
