"""The files that a recipe's model is read from, as one stamp: whether any was touched since an export."""

from __future__ import annotations

import contextlib
from pathlib import Path

from etcli.common.files import stamp
from etcli.common.gguf_parts import MAGIC, gguf_parts
from etcli.recipe.loaded import LoadedRecipe

_BESIDE = (
    *("config.json", "generation_config.json", "params.json"),
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "chat_template.jinja", "special_tokens_map.json"),
)


def adapter_path(loaded: LoadedRecipe) -> Path | None:
    """The LoRA adapter's folder as an absolute path, or None where the recipe names none. Whether it is there is not looked at.

    Raises:
        RecipeError: `recipe.home`, `~USER` of no user.
    """
    adapter = loaded.recipe.model.adapter
    return None if adapter is None else loaded.resolve_path(adapter)


def source_stamp(loaded: LoadedRecipe, source: Path) -> dict[str, list[int]]:
    """Size in bytes and modification time in ns of every file of the checkpoint at `source`, and of the recipe's adapter.

    To a single file of weights belong its configuration and its tokenizer, which stand beside it.

    Files that links lead to count as they are, so a folder of Hugging Face's cache is as good as one of files.
    """
    found = stamp(source)
    for part in _with(source) if source.is_file() else ():
        found |= stamp(part)
    adapter = adapter_path(loaded)
    if adapter is not None:
        found |= {f"adapter/{name}": value for name, value in stamp(adapter).items()}
    return found


def _with(file: Path) -> list[Path]:
    """The other files that a checkpoint of one named file is read from: its further parts, or what stands beside weights without a configuration."""
    with contextlib.suppress(OSError), file.open("rb") as start:
        if start.read(len(MAGIC)) == MAGIC:
            return list(gguf_parts(file)[1:])
    return [file.parent / name for name in _BESIDE if (file.parent / name).is_file()]
