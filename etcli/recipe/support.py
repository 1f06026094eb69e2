"""Values that the grammar has and the product does not support yet: refused by name, each at its line.

A row of `NOT_YET` goes when its value is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import Problem, RecipeError
from etcli.recipe.builtin import builtin_recipes
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.loader import load
from etcli.recipe.schema import Recipe


@dataclass(frozen=True)
class NotYet:
    """One kind of value: the key it stands at, when it is meant, what is refused, and what works instead."""

    key: str
    asked: Callable[[Recipe], bool]
    what: str
    instead: str


NOT_YET: tuple[NotYet, ...] = (
    NotYet("run.temperature", lambda r: r.run.temperature > 0, "sampling (temperature above 0)", "Use temperature 0."),
    NotYet("run.top_p", lambda r: r.run.top_p < 1, "sampling (top_p below 1)", "Use top_p 1."),
)


@dataclass(frozen=True)
class ListedRecipe:
    """A built-in recipe, and whether this version can carry it out; `refused` says what it cannot do."""

    name: str
    summary: str
    path: Path
    needs: tuple[str, ...]
    supported: bool
    refused: tuple[str, ...]


def list_recipes() -> tuple[ListedRecipe, ...]:
    """The built-in recipes in their order, with what this version refuses of each."""
    listed = []
    for builtin in builtin_recipes():
        recipe = load(str(builtin.path)).recipe
        refused = tuple(row.what for row in NOT_YET if row.asked(recipe))
        listed.append(ListedRecipe(builtin.name, builtin.summary, builtin.path, builtin.needs, not refused, refused))
    return tuple(listed)


def unsupported(loaded: LoadedRecipe) -> list[Problem]:
    """A problem with exit code 2 for every value of the recipe that this version of etcli does not support."""
    found = []
    for row in NOT_YET:
        if row.asked(loaded.recipe):
            place = loaded.location(row.key)
            found.append(
                RecipeError.problem(
                    f"{loaded.described(row.key)}: this version of etcli does not support {row.what} yet",
                    code="recipe.unsupported",
                    hint=row.instead,
                    file=place.file,
                    line=place.line,
                    column=place.column,
                )
            )
    return found
