"""The files that a recipe's model is read from, as one stamp: whether any was touched since an export."""

from __future__ import annotations

from pathlib import Path

from etcli.common.files import stamp
from etcli.common.gguf_file import gguf_parts
from etcli.recipe.loaded import LoadedRecipe


def adapter_path(loaded: LoadedRecipe) -> Path | None:
    """The LoRA adapter's folder as an absolute path, or None where the recipe names none. Whether it is there is not looked at.

    Raises:
        RecipeError: `recipe.home`, `~USER` of no user.
    """
    adapter = loaded.recipe.model.adapter
    return None if adapter is None else loaded.resolve_path(adapter)


def source_stamp(loaded: LoadedRecipe, source: Path) -> dict[str, list[int]]:
    """Size in bytes and modification time in ns of every file of the checkpoint at `source`, and of the recipe's adapter.

    Files that links lead to count as they are, so a folder of Hugging Face's cache is as good as one of files.
    """
    found = stamp(source)
    for part in gguf_parts(source)[1:] if source.is_file() else ():
        found |= stamp(part)
    adapter = adapter_path(loaded)
    if adapter is not None:
        found |= {f"adapter/{name}": value for name, value in stamp(adapter).items()}
    return found
