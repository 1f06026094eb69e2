"""The operator libraries that a recipe asks for: those that its precision needs, and what `build.custom_ops` lists."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from etcli.common.errors import EtcliError, Problem, Problems, RecipeError
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.paths import is_operator_folder
from etcli.recipe.schema import Recipe
from etcli.tables.op_yaml import DESCRIPTION, key_line
from etcli.tables.operators import AQLM, OperatorLibrary, read_operators

KEY = "build.custom_ops"

_FOR_PRECISION: Mapping[str, tuple[str, ...]] = {"aqlm": (AQLM,)}
"""Folders under `native/` that chunks of a precision need, named in the recipe or not."""


def shipped_operators(recipe: Recipe) -> tuple[str, ...]:
    """The folders under `native/` that this recipe's precision and `build.custom_ops` name, each once."""
    named = (text for text in recipe.build.custom_ops if not is_operator_folder(text))
    return tuple(dict.fromkeys((*_FOR_PRECISION.get(recipe.export.precision, ()), *named)))


def own_operators(loaded: LoadedRecipe) -> tuple[OperatorLibrary, ...]:
    """The user's own operator libraries, in the order of the list.

    Raises:
        RecipeError: a folder is missing, its `op.yaml` is wrong, a namespace or a name is taken, two libraries have one name or one operator:
            every problem at once, at its line in the recipe or in `op.yaml`.
    """
    problems = Problems()
    found: list[tuple[str, OperatorLibrary]] = []
    for index, text in enumerate(loaded.recipe.build.custom_ops):
        if is_operator_folder(text):
            key = f"{KEY}.{index}"
            library = problems.attempt(lambda key=key, text=text: _read(loaded, key, text))  # type: ignore[misc]
            if library is not None:
                found.append((key, library))
    for number, (key, library) in enumerate(found):
        problems.found.extend(_clashes(loaded, key, library, [other for _, other in found[:number]]))
    problems.raise_if_any(RecipeError)
    return tuple(library for _, library in found)


def own_operator_problems(loaded: LoadedRecipe) -> tuple[Problem, ...]:
    """What is wrong with the user's own operator libraries."""
    try:
        own_operators(loaded)
    except EtcliError as error:
        return error.problems
    return ()


def _read(loaded: LoadedRecipe, key: str, text: str) -> OperatorLibrary:
    # As CMake and so the compiler's messages have it: without `..`.
    root = Path(os.path.normpath(loaded.resolve_path(text)))
    try:
        is_folder, is_described = root.is_dir(), (root / DESCRIPTION).is_file()
    except (OSError, ValueError) as error:
        raise RecipeError.many([_problem(loaded, key, f"{root} cannot be read: {error}", "Check the path.")]) from None
    if not is_folder:
        hint = loaded.base_hint
        if root.is_file():
            hint = f"Name the folder that it stands in, with its {DESCRIPTION}."
        raise RecipeError.many([_problem(loaded, key, f"there is no folder {root}", hint)])
    if not is_described:
        inside = sorted(path.parent.name for path in root.glob(f"*/{DESCRIPTION}"))[:3]
        hint = (
            f"Did you mean {text.rstrip('/')}/{inside[0]}?"
            if inside
            else f"Write {root / DESCRIPTION}: name, namespace, operators, sources (docs/custom-operators.md has an example)."
        )
        raise RecipeError.many([_problem(loaded, key, f"the folder {root} has no {DESCRIPTION}", hint)])
    return read_operators(root, own=True, error=RecipeError)


def _clashes(loaded: LoadedRecipe, key: str, library: OperatorLibrary, before: list[OperatorLibrary]) -> list[Problem]:
    found = []
    where = library.root / DESCRIPTION
    for other in before:
        if other.root.resolve() == library.root.resolve():
            found.append(_problem(loaded, key, f"{library.root} stands in the list twice", "Remove one of them."))
            continue
        if other.name == library.name:
            found.append(
                RecipeError.problem(
                    f"two operator libraries are called {library.name}: {other.root} and {library.root}",
                    code="operators.name",
                    hint="Give one of them another name.",
                    file=where,
                    line=key_line(where, "name"),
                )
            )
        both = sorted(set(library.operators) & set(other.operators))
        if both:
            found.append(
                RecipeError.problem(
                    f"{', '.join(both)} is registered by {other.name} ({other.root}) and by {library.name} ({library.root})",
                    code="operators.twice",
                    hint=f"A process can have one of them: remove the other from {KEY}, or give it another namespace.",
                    file=where,
                    line=key_line(where, "operators"),
                )
            )
    return found


def _problem(loaded: LoadedRecipe, key: str, message: str, hint: str) -> Problem:
    place = loaded.location(key)
    return RecipeError.problem(
        f"{KEY}: {message}", code="recipe.custom_ops", hint=hint, file=place.file, line=place.line, column=place.column
    )
