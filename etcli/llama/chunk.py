"""A chunk: the run of layers that becomes one program, with the tensors that the runner and the MediaTek contract expect."""

from __future__ import annotations

import torch
from torch import nn

from etcli.checkpoint.layout import EMBEDDING, HEAD, NORM
from etcli.llama.layer import DecoderLayer
from etcli.llama.linear import linear
from etcli.llama.norm import RMSNorm
from etcli.manifests.model import ModelConfig


class Chunk(nn.Module):
    """Layers `first_layer .. first_layer + layers - 1`; with `head`, also the final norm and the projection to logits.

    Parameters are on the meta device (no memory, no random values) until `load_weights` fills them.

    Raises:
        ValueError: the layers are not those of the network.
    """

    def __init__(self, config: ModelConfig, first_layer: int, layers: int, *, head: bool) -> None:
        super().__init__()
        if first_layer < 0 or layers < 1 or first_layer + layers > config.num_layers:
            raise ValueError(f"layers {first_layer}..{first_layer + layers - 1} of a network of {config.num_layers}")
        self.config = config
        self.first_layer = first_layer
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps) if head else None
        self.lm_head = linear(config.hidden_size, config.vocab_size, bias=False) if head else None

    def canonical_names(self) -> dict[str, str]:
        """For each parameter of this module, the checkpoint's canonical name of the tensor that fills it.

        A tied head is filled from the token embedding.
        """
        names = {}
        for name, _ in self.named_parameters():
            part, _, rest = name.partition(".")
            if part == "layers":
                index, _, rest = rest.partition(".")
                names[name] = f"model.layers.{self.first_layer + int(index)}.{rest}"
            elif part == "norm":
                names[name] = NORM
            else:
                names[name] = EMBEDDING if self.config.tied_embeddings else HEAD
        return names

    def forward(
        self, hidden: torch.Tensor, mask: torch.Tensor, rotary: torch.Tensor, *caches: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Run T tokens.

        Args:
            hidden: `[1, T, H]`, embedding rows for the first chunk, the previous chunk's output 0 for the others.
            mask: additive `[1, 1, T, C+T]`, as `mask.additive_mask` makes it.
            rotary: `[1, 2, T, D]`, cos plane then sin plane.
            caches: `2 * layers` tensors `[1, NKV, C, D]`, all keys then all values.

        Returns:
            Hidden `[1, T, H]` or, from the head, logits `[1, T, V]` of all T rows; then the caches in the order of the inputs, each
            the last C rows of old and new together.
        """
        count = len(self.layers)
        cos, sin = rotary[:, 0:1], rotary[:, 1:2]
        keys, values = [], []
        for index, layer in enumerate(self.layers):
            hidden, key, value = layer(hidden, mask, cos, sin, caches[index], caches[count + index])
            keys.append(key)
            values.append(value)
        if self.norm is not None and self.lm_head is not None:
            hidden = self.lm_head(self.norm(hidden))
        return (hidden, *keys, *values)
