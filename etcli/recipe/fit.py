"""What a recipe asks of a network, held against the network's own numbers."""

from __future__ import annotations

from etcli.common.errors import Problem, RecipeError
from etcli.manifests.model import ModelConfig
from etcli.recipe.loaded import LoadedRecipe


def fit_problem(loaded: LoadedRecipe, model: ModelConfig) -> Problem | None:
    """What the recipe asks of the network that it cannot give, or None: chunks that do not share its layers equally."""
    location = loaded.location("export.chunks")
    chunks = loaded.recipe.export.chunks
    if model.num_layers % chunks:
        fitting = ", ".join(str(n) for n in range(1, model.num_layers + 1) if model.num_layers % n == 0)
        return RecipeError.problem(
            f"export.chunks: {chunks} chunks cannot share {model.num_layers} layers equally",
            code="recipe.chunks",
            hint=f"Numbers of chunks that fit: {fitting}",
            file=location.file,
            line=location.line,
            column=location.column,
        )
    return None
