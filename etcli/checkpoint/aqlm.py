"""Linears quantised by AQLM: which tensors stand in a matrix's place, and of what shape.

A group of 8 neighbouring inputs of one output is the sum of one vector from each codebook, times the output's scale. The names and
shapes are those that `aqlm.QuantizedLinear` saves (https://github.com/Vahe1994/AQLM).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from etcli.manifests.model import AQLM_ENTRIES, AQLM_GROUP

AQLM_PARTS = (".codes", ".codebooks", ".scales")
"""How the names of the tensors end that stand in a matrix's place."""


def aqlm_shapes(shape: tuple[int, ...], codebooks: int) -> dict[str, tuple[int, ...]]:
    """What stands in the place of a matrix of `shape` (`[out_features, in_features]`), by the last part of its name."""
    out_features, in_features = shape
    return {
        "codes": (out_features, in_features // AQLM_GROUP, codebooks),
        "codebooks": (codebooks, AQLM_ENTRIES, 1, AQLM_GROUP),
        "scales": (out_features, 1, 1, 1),
    }


def quantised_shapes(
    shapes: Mapping[str, tuple[int, ...]], codebooks: int, plain: Collection[str]
) -> dict[str, tuple[int, ...]]:
    """`shapes` of a layer's plain tensors by name, with what AQLM puts in the place of each matrix that is not in `plain`."""
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        if len(shape) != 2 or name in plain:
            found[name] = shape
        else:
            parts = aqlm_shapes(shape, codebooks)
            found |= {f"{name.removesuffix('weight')}{part}": size for part, size in parts.items()}
    return found
