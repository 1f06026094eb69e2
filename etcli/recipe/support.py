"""Values that the grammar has and the product does not support yet: refused by name, each at its line.

A row of `NOT_YET` goes when its value is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import Problem, RecipeError
from etcli.common.hashing import value_sha256
from etcli.recipe.builtin import builtin_recipes, described
from etcli.recipe.fingerprint import build_fingerprint, export_fingerprint
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


NOT_YET: tuple[NotYet, ...] = ()


@dataclass(frozen=True)
class ListedRecipe:
    """A recipe, and whether this version can carry it out; `refused` says what it cannot do.

    `argument` is what names it on a command line: its path as it was given, or the name of a built-in one.
    `sha256` is over the values that export and build read: it changes when their output is outdated, as far as the recipe decides that.
    """

    name: str
    summary: str
    path: Path
    needs: tuple[str, ...]
    supported: bool
    refused: tuple[str, ...]
    argument: str
    sha256: str


def list_recipes(arguments: Sequence[str] = ()) -> tuple[ListedRecipe, ...]:
    """The recipes that `arguments` name, or else the built-in ones in their order, with what this version refuses of each.

    Raises:
        RecipeError: one is not found, or is wrong.
    """
    if arguments:
        return tuple(_listed(argument) for argument in arguments)
    return tuple(_listed(builtin.name) for builtin in builtin_recipes())


def _listed(argument: str) -> ListedRecipe:
    loaded = load(argument)
    told = described(loaded.path)
    recipe = loaded.recipe
    refused = tuple(row.what for row in NOT_YET if row.asked(recipe))
    sha256 = value_sha256([export_fingerprint(recipe), build_fingerprint(recipe, recipe.build.target)])
    return ListedRecipe(recipe.name, told.summary, loaded.path, told.needs, not refused, refused, argument, sha256)


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
