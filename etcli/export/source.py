"""The checkpoint that an export reads: the recipe's source as it is, or what `model.quantize` makes of it."""

from __future__ import annotations

from pathlib import Path

from etcli.checkpoint.opening import open_checkpoint
from etcli.checkpoint.source import fetch, peek
from etcli.common.errors import RecipeError
from etcli.export.aqlm.calibration import USUAL
from etcli.export.aqlm.estimates import Needs, needs
from etcli.export.aqlm.making import Original, folder_of, is_whole, made_folder, remove_made, threads
from etcli.export.aqlm.settings import Settings, quantised_config
from etcli.manifests.model import ModelConfig
from etcli.manifests.quantised import DEMONSTRATION
from etcli.output.console import Console
from etcli.recipe.fit import quantising_problems
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.sources import adapter_path
from etcli.tokenizer.opening import open_tokenizer


def checkpoint_source(loaded: LoadedRecipe, console: Console) -> Path:
    """The checkpoint to export, fetched and quantised as the recipe asks if the cache does not hold it yet.

    With `model.quantize` it is a folder in the cache, in which the recipe's adapter is merged already: see `merged_adapter`.

    Raises:
        CheckpointError: as `fetch`; with `model.quantize` also where the source or its tokenizer is wrong.
        RecipeError: `recipe.aqlm_twice` or `recipe.aqlm_group`, the source cannot be quantised.
        ExportError, InterruptedByUser: as `made_folder`.
        ToolError: as `fetch`.
    """
    path = fetch(loaded, console)
    return path if loaded.recipe.model.quantize is None else made_folder(_original(loaded, path), Settings(), console)


def peek_checkpoint(loaded: LoadedRecipe, console: Console) -> Path | None:
    """What `checkpoint_source` would give, as far as it is on this machine; None if it first has to be downloaded or quantised.

    Raises:
        CheckpointError, RecipeError: as `checkpoint_source`.
    """
    path = peek(loaded)
    if path is None or loaded.recipe.model.quantize is None:
        return path
    folder = folder_of(_original(loaded, path), Settings(), console)
    return folder if is_whole(folder) else None


def remaining_adapter(loaded: LoadedRecipe) -> Path | None:
    """The recipe's adapter as far as it is still to be merged into what `checkpoint_source` gives.

    Raises:
        RecipeError: `recipe.home`.
    """
    return adapter_path(loaded) if loaded.recipe.model.quantize is None else None


def exported_config(loaded: LoadedRecipe, config: ModelConfig) -> ModelConfig:
    """The numbers of the network that is exported where those of the source are `config`.

    Raises:
        RecipeError: as `checkpoint_source`.
    """
    if loaded.recipe.model.quantize is None:
        return config
    problems = list(quantising_problems(loaded, config))
    if problems:
        raise RecipeError.many(problems)
    return quantised_config(config)


def remove_quantised(loaded: LoadedRecipe, console: Console) -> tuple[Path, int] | None:
    """Remove what `model.quantize` has made for the recipe; where it was and how many files went. None where there is nothing of the kind.

    Raises:
        CheckpointError, RecipeError: as `checkpoint_source`.
    """
    path = peek(loaded) if loaded.recipe.model.quantize is not None else None
    return None if path is None else remove_made(_original(loaded, path), Settings(), console)


def quantising_needs(config: ModelConfig) -> Needs:
    """About what `model.quantize` will take for a network of `config` on this machine."""
    return needs(config, USUAL, threads())


def warn_of_quality(loaded: LoadedRecipe, console: Console) -> None:
    """Say what the weights of a recipe with `model.quantize` are good for."""
    if loaded.recipe.model.quantize is not None:
        console.warn(f"model.quantize: {loaded.recipe.model.quantize} gives {DEMONSTRATION}", code="aqlm.demonstration")


def _original(loaded: LoadedRecipe, path: Path) -> Original:
    adapter = adapter_path(loaded)
    checkpoint = open_checkpoint(path, adapter)
    exported_config(loaded, checkpoint.config)
    return Original(path, adapter, checkpoint, open_tokenizer(path))
