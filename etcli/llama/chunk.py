"""A chunk: the run of layers that becomes one program, with the tensors that the runner and the MediaTek contract expect."""

from __future__ import annotations

import functools

import torch
from torch import nn

from etcli.checkpoint.layout import EMBEDDING, HEAD, NORM
from etcli.llama.attention import ATTENTION
from etcli.llama.layer import DecoderLayer, every_row
from etcli.llama.linear import linear
from etcli.llama.norm import RMSNorm
from etcli.manifests.bundle import CacheKind
from etcli.manifests.model import ModelConfig

FUSED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
"""Linears of a layer that are several of the checkpoint's, one below the other; those of AQLM networks never are."""


class Chunk(nn.Module):
    """Layers `first_layer .. first_layer + layers - 1`; with `head`, also the final norm and the projection to logits.

    Parameters are on the meta device (no memory, no random values) until `weights.load_weights` fills them.

    Raises:
        ValueError: the layers are not those of the network.
    """

    def __init__(
        self, config: ModelConfig, first_layer: int, layers: int, *, head: bool, cache: CacheKind = "shift"
    ) -> None:
        super().__init__()
        if first_layer < 0 or layers < 1 or first_layer + layers > config.num_layers:
            raise ValueError(f"layers {first_layer}..{first_layer + layers - 1} of a network of {config.num_layers}")
        self.config = config
        self.first_layer = first_layer
        self.cache: CacheKind = cache
        self.layers = nn.ModuleList(DecoderLayer(config, first_layer + index, cache) for index in range(layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps) if head else None
        self.lm_head = linear(config.hidden_size, config.vocab_size, bias=False) if head else None

    def sources(self) -> dict[str, tuple[str, ...]]:
        """For each parameter of this module, the canonical names of the checkpoint's tensors that fill it, one below the other.

        A tied head is filled from the token embedding.
        """
        names: dict[str, tuple[str, ...]] = {}
        for name, _ in self.named_parameters():
            part, _, rest = name.partition(".")
            if part == "layers":
                index, _, rest = rest.partition(".")
                owner, _, leaf = rest.rpartition(".")
                prefix = f"model.layers.{self.first_layer + int(index)}"
                names[name] = tuple(f"{prefix}.{piece}.{leaf}" for piece in FUSED.get(owner, (owner,)))
            elif part == "norm":
                names[name] = (NORM,)
            else:
                names[name] = (EMBEDDING if self.config.tied_embeddings else HEAD,)
        return names

    def forward(
        self, hidden: torch.Tensor, place: torch.Tensor, rotary: torch.Tensor, *caches: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Run T tokens.

        Args:
            hidden: `[1, T, H]`, embedding rows for the first chunk, the previous chunk's output 0 for the others.
            place: where the tokens stand. Cache `shift`: the additive mask `[1, 1, T, C+T]`, as `mask.additive_mask` makes it. Cache
                `ring`: int64 `[2]`, the position of the first token and how many of the T count, from the first on.
            rotary: `[1, 2, T, D]`, cos plane then sin plane.
            caches: `2 * layers` tensors `[1, NKV, C, D]`, all keys then all values.

        Returns:
            Hidden `[1, T, H]`, or logits from the head: of all T rows `[1, T, V]` with cache `shift`, of the last that counts `[1, 1, V]`
            with cache `ring`; then the caches in the order of the inputs.
        """
        hidden, *after = self.run_layers(hidden, place, rotary, *caches)
        if self.norm is not None and self.lm_head is not None:
            hidden = self.logits(hidden)
        return (hidden, *after)

    def run_layers(
        self, hidden: torch.Tensor, place: torch.Tensor, rotary: torch.Tensor, *caches: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """As `forward`, hidden states out even where there is a head."""
        count = len(self.layers)
        prepared = ATTENTION[self.cache].prepare(place, rotary)
        keys, values = [], []
        for index, layer in enumerate(self.layers):
            rows = every_row
            if self.cache == "ring" and self.lm_head is not None and index == count - 1 and hidden.shape[1] > 1:
                # nobody reads the other rows after they have been attended to
                rows = functools.partial(_last_row, place)
            hidden, key, value = layer(hidden, caches[index], caches[count + index], *prepared, rows=rows)
            keys.append(key)
            values.append(value)
        return (hidden, *keys, *values)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Final norm and head of hidden states `[1, N, H]`: `[1, N, V]`.

        Raises:
            ValueError: the chunk has no head.
        """
        if self.norm is None or self.lm_head is None:
            raise ValueError("a chunk without a head gives no logits")
        found: torch.Tensor = self.lm_head(self.norm(hidden))
        return found


def _last_row(place: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    row: torch.Tensor = torch.ops.etcli.last_row(x, place)
    return row
