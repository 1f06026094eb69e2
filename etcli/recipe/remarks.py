"""What a recipe and its model together should be warned of: nothing that stops an export."""

from __future__ import annotations

from collections.abc import Iterable

from etcli.manifests.model import ModelConfig
from etcli.output.console import Console
from etcli.recipe.fit import long_cache_warning, twice_quantised_warning
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.upstream import runner_remark


def say_fit(loaded: LoadedRecipe, model: ModelConfig, dtypes: Iterable[str], console: Console) -> None:
    """Say it; `dtypes` are those of the checkpoint's tensors, as its format names them."""
    said = {
        "export.long_cache": long_cache_warning(loaded, model),
        "export.quantised_twice": twice_quantised_warning(loaded, dtypes),
        "mtk.rope_scaling": runner_remark(loaded, model),
    }
    for code, text in said.items():
        if text is not None:
            console.warn(text, code=code)
