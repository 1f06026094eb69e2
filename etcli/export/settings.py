"""What a recipe's precisions come to for the workers."""

from __future__ import annotations

from etcli.export.job import EmbeddingDtype, EmbeddingSettings, PrecisionSettings
from etcli.recipe.precisions import (
    embedding_precision,
    group_size,
    groups_embedding,
    groups_head,
    groups_linears,
    head_precision,
)
from etcli.recipe.schema import Recipe

_EMBEDDING_DTYPES: dict[str, EmbeddingDtype] = {"fp32": "float32", "fp16": "float16", "int8": "int8", "int4": "int4"}


def precision_settings(recipe: Recipe) -> PrecisionSettings:
    """How the chunks' linears are quantised."""
    grouped = groups_linears(recipe) or groups_head(recipe)
    return PrecisionSettings(
        precision=recipe.export.precision,
        group_size=group_size(recipe) if grouped else None,
        head=head_precision(recipe),
    )


def embedding_settings(recipe: Recipe) -> EmbeddingSettings:
    """How the embedding table is written."""
    return EmbeddingSettings(
        dtype=_EMBEDDING_DTYPES[embedding_precision(recipe)],
        group_size=group_size(recipe) if groups_embedding(recipe) else None,
    )
