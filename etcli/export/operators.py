"""Operators that a chunk's layers call outside every delegate, and the pieces in which they leave the rest of the network."""

from __future__ import annotations

from etcli.export.job import ChunkWork
from etcli.manifests.bundle import CacheKind
from etcli.manifests.model import AqlmConfig, ModelConfig

_QUERY_KEY = ("self_attn.q_proj", "self_attn.k_proj")
_ATTENTION = (*_QUERY_KEY, "self_attn.v_proj")
_OUT = ("self_attn.o_proj",)
_GATE_UP = ("mlp.gate_proj", "mlp.up_proj")
_DOWN = ("mlp.down_proj",)


def custom_operators(config: ModelConfig, cache: CacheKind) -> tuple[str, ...]:
    """etcli's own operators that programs of this network need to run, as `aqlm::code2x8_lut_matmat.out`."""
    found = ["etcli::ring_attention.out", "etcli::last_row.out"] if cache == "ring" else []
    if config.aqlm is not None:
        found.append(f"aqlm::code{config.aqlm.codebooks}x8_lut_matmat.out")
    return tuple(found)


def kept_linears(aqlm: AqlmConfig, first_layer: int, layers: int) -> tuple[str, ...]:
    """The linears of layers `first_layer ..` that AQLM leaves alone, numbered within these layers: `0.mlp.down_proj`."""
    found = []
    for name in aqlm.kept:
        layer, _, rest = name.removeprefix("model.layers.").partition(".")
        if first_layer <= int(layer) < first_layer + layers:
            found.append(f"{int(layer) - first_layer}.{rest}")
    return tuple(found)


def fewest_calls(work: ChunkWork, config: ModelConfig) -> int:
    """Calls of a delegate that takes all it can: the whole network of a method, or what stands between the operators of its layers."""
    if config.aqlm is None:
        return 1 + (work.layers if work.cache == "ring" else 0)
    kept = set(kept_linears(config.aqlm, work.first_layer, work.layers))
    return 1 + sum(_cuts(config, work.cache, layer, kept) for layer in range(work.layers))


def _cuts(config: ModelConfig, cache: CacheKind, layer: int, kept: set[str]) -> int:
    """How many times operators, one after the other or side by side, part what comes before them in a layer from what comes after."""

    def coded(names: tuple[str, ...]) -> bool:
        return any(f"{layer}.{name}" not in kept for name in names)

    # The linears on both sides of the ring's operator make one cut with it, unless norms stand between.
    ring = 1 + (config.qk_norm and coded(_QUERY_KEY))
    attention = ring if cache == "ring" else coded(_ATTENTION) + coded(_OUT)
    return attention + coded(_GATE_UP) + coded(_DOWN)
