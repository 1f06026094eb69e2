"""The recipes that ship with the product, in `recipes/`.

Each file starts with comment lines that `etcli recipe list` shows: `# summary: TEXT` once, and a `# needs: TEXT` line for everything that
the user must bring.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from etcli.common.assets import asset_dir

DEFAULT = "smollm2-135m"


@dataclass(frozen=True)
class BuiltinRecipe:
    """A recipe of the product. `needs` is empty where nothing but a download is needed."""

    name: str
    summary: str
    path: Path
    needs: tuple[str, ...]


def builtin_recipes() -> tuple[BuiltinRecipe, ...]:
    """Every built-in recipe, the default first, the others by name."""
    return tuple(_by_name().values())


def builtin_recipe(name: str) -> BuiltinRecipe | None:
    """The built-in recipe of that name, if there is one."""
    return _by_name().get(name)


def is_builtin_file(path: Path) -> bool:
    """Whether `path` is one of the product's own recipe files, which have no folder that relative paths could mean."""
    return path.resolve().parent == asset_dir("recipes").resolve()


@functools.lru_cache(maxsize=1)
def _by_name() -> dict[str, BuiltinRecipe]:
    found = [described(path) for path in asset_dir("recipes").glob("*.yaml")]
    return {recipe.name: recipe for recipe in sorted(found, key=lambda recipe: (recipe.name != DEFAULT, recipe.name))}


def described(path: Path) -> BuiltinRecipe:
    """What the first comment lines of a recipe file say; its name is that of the file."""
    summary = ""
    needs = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        word, _, text = line[1:].strip().partition(":")
        if word == "summary":
            summary = text.strip()
        elif word == "needs":
            needs.append(text.strip())
    return BuiltinRecipe(path.stem, summary, path, tuple(needs))
