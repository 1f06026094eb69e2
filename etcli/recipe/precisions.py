"""What `export.precision`, `group_size`, `head` and `embedding` come to together, and what of them contradicts."""

from __future__ import annotations

from collections.abc import Iterator

from etcli.recipe.schema import Recipe

DEFAULT_GROUP = 32
"""Weights that share a scale where the recipe does not say. The smallest that XNNPACK takes, and the most exact."""

GROUP_STEP = 32
"""XNNPACK takes groups of a multiple of this alone."""

_HEADS = {"fp32": "fp32", "fp16": "fp16", "8da4w": "8da8w", "aqlm": "8da8w"}
_GROUPED_EMBEDDINGS = ("int8", "int4")

BACKEND_HEADS: dict[str, tuple[str, ...]] = {
    "portable": ("fp32", "fp16"),
    "xnnpack": ("fp32", "fp16", "8da4w", "8da8w"),
    "neuron": (),
}
"""The precisions of the output layer that each backend has kernels for."""

Finding = tuple[str, str, str]


def head_precision(recipe: Recipe) -> str:
    """The output layer's precision.

    With 8da4w and aqlm it is 8da8w by default, where the backend has that: on the default model a head of 4 bits lowers the agreement of
    8da4w with float32 from 0.69 to 0.61, one of 8 bits does not (benchmarks/quality.py).
    """
    if recipe.export.head is not None:
        return recipe.export.head
    default = _HEADS.get(recipe.export.precision)
    if default is None:
        return recipe.export.precision
    return default if default in BACKEND_HEADS[recipe.export.backend] else "fp32"


def embedding_precision(recipe: Recipe) -> str:
    """The embedding table's precision."""
    return recipe.export.embedding or "fp32"


def group_size(recipe: Recipe) -> int | None:
    """Weights that share a scale, None where nothing is quantised in groups."""
    if not _grouped(recipe):
        return None
    return recipe.export.group_size or DEFAULT_GROUP


def groups_linears(recipe: Recipe) -> bool:
    """Whether the group size counts for the network's linears (else at most for the embedding)."""
    return recipe.export.precision == "8da4w"


def groups_head(recipe: Recipe) -> bool:
    """Whether the group size counts for the output layer."""
    return head_precision(recipe) == "8da4w"


def groups_embedding(recipe: Recipe) -> bool:
    """Whether the group size counts for the embedding table."""
    return embedding_precision(recipe) in _GROUPED_EMBEDDINGS


def precision_findings(recipe: Recipe) -> Iterator[Finding]:
    """Contradictions: the key, what is wrong, what to do."""
    export = recipe.export
    if export.group_size is not None and not _grouped(recipe):
        yield (
            "export.group_size",
            f"nothing is quantised in groups with precision {export.precision}",
            "Remove group_size, or choose precision or head 8da4w, or embedding int8 or int4.",
        )
    elif export.group_size is not None and export.group_size % GROUP_STEP:
        yield (
            "export.group_size",
            f"{export.group_size} is not a multiple of {GROUP_STEP}, which XNNPACK's kernels need",
            f"Use {', '.join(str(GROUP_STEP << power) for power in range(4))}.",
        )
    if recipe.model.quantize is not None and export.precision != "aqlm":
        yield (
            "model.quantize",
            f"weights quantised by AQLM are for precision aqlm, not {export.precision}",
            "Set export.precision: aqlm, or remove model.quantize.",
        )
    heads = BACKEND_HEADS[export.backend]
    if export.head is not None and export.head not in heads:
        yield (
            "export.head",
            f"backend {export.backend} has no output layer of {export.head}",
            f"Use one of {', '.join(heads)}, or backend xnnpack." if heads else "Remove the key.",
        )


def _grouped(recipe: Recipe) -> bool:
    return groups_linears(recipe) or groups_head(recipe) or groups_embedding(recipe)
