"""A recipe together with where it came from, so that later stages can point at the line that asked for something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etcli.common.errors import RecipeError
from etcli.recipe.schema import Recipe


@dataclass(frozen=True)
class Location:
    """Where a key was written: a file (or `--set`, then `file` is None), line and column from 1."""

    file: Path | None
    line: int | None
    column: int | None


@dataclass(frozen=True)
class LoadedRecipe:
    """`recipe` is resolved (extends merged, `--set` applied, variables expanded); `document` is the same as plain values with `${VAR}` unexpanded.

    `origins` maps a dotted key to where it was written; a default has none. `base` is the folder that relative paths start from.
    `argument` is how the user named the recipe (None: by lookup), `sets` the `--set` arguments; both are for commands shown in hints.
    """

    recipe: Recipe
    path: Path
    base: Path
    document: Mapping[str, Any]
    origins: Mapping[str, Location] = field(default_factory=dict)
    argument: str | None = None
    sets: tuple[str, ...] = ()

    def location(self, key: str) -> Location:
        """Where `key` (dotted) or its nearest written parent stands; the recipe file itself for a default."""
        words = key.split(".")
        while words:
            found = self.origins.get(".".join(words))
            if found is not None:
                return found
            words.pop()
        return Location(self.path, None, None)

    @property
    def base_hint(self) -> str:
        """Where relative paths start, as a sentence for hints. A built-in recipe has no folder of its own, and `base:` names another."""
        folder = "the recipe's folder, " if self.base == self.path.parent else ""
        return f"Relative paths start at {folder}{self.base}."

    def described(self, key: str) -> str:
        """`key: VALUE` as the recipe has it, for messages."""
        value: Any = self.recipe.model_dump(mode="json", by_alias=True)
        for word in key.split("."):
            value = value[word]
        return f"{key}: {value}"

    def resolve_path(self, text: str) -> Path:
        """`text` as an absolute path: relative ones start at the recipe's folder, `~` is the home folder.

        Raises:
            RecipeError: `recipe.home`, the user that `~USER` names is none of this machine.
        """
        try:
            return (self.base / Path(text).expanduser()).absolute()
        except RuntimeError:
            raise RecipeError(
                f"{text.split('/')[0]} is no home folder of this machine",
                code="recipe.home",
                hint="Write the path out, or ./~NAME for a file whose name starts so.",
            ) from None
