"""The same thing in many layers as one: names of tensors by their pattern over layers, and how many layers that are, in words."""

from __future__ import annotations

import re
from collections.abc import Iterable


def layer_pattern(name: str) -> str:
    """`name` with its layer's number replaced by `*`."""
    return re.sub(r"\.layers\.\d+\.", ".layers.*.", name)


def by_pattern(names: Iterable[str]) -> dict[str, list[str]]:
    """`names` by their pattern, in order."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(layer_pattern(name), []).append(name)
    return groups


def in_layers(pattern: str, names: list[str]) -> str:
    """The one name, or the pattern with its layers in brackets: `model.layers.*.mlp.up_proj.weight (layers 0 to 3)`."""
    if len(names) == 1:
        return names[0]
    layers = sorted(int(name.split(".")[2]) for name in names)
    whole = layers == list(range(layers[0], layers[-1] + 1))
    where = f"layers {layers[0]} to {layers[-1]}" if whole else "layers " + ", ".join(map(str, layers))
    return f"{pattern} ({where})"
