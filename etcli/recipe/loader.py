"""From a command's RECIPE argument to a `LoadedRecipe`, or to every problem at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from etcli.common.errors import EtcliError, Problem, RecipeError
from etcli.recipe.checks import cross_checks
from etcli.recipe.inheritance import read_chain
from etcli.recipe.loaded import LoadedRecipe, Location
from etcli.recipe.lookup import RecipeFile, find_recipe
from etcli.recipe.normal import normalised
from etcli.recipe.overrides import read_setting
from etcli.recipe.paths import rebase
from etcli.recipe.validation import validate
from etcli.recipe.variables import expand
from etcli.recipe.written import Written, merge


def load(argument: str | None, sets: Sequence[str] = ()) -> LoadedRecipe:
    """The recipe that `argument` names, with what it extends, the `--set` arguments and the environment's variables.

    Args:
        argument: a path or a built-in recipe's name; None means `$ETCLI_RECIPE`, then `./etcli.yaml`, then the built-in default.
        sets: `key.sub=value` texts, later ones win. Relative paths in them start from the recipe's folder.

    Raises:
        RecipeError: with every problem found, each with file, line and column, or naming its `--set`.
    """
    return _load(find_recipe(argument), sets, argument)


def load_text(text: str, path: Path) -> LoadedRecipe:
    """As `load`, of the recipe that `path` would be if `text` were written there.

    Raises:
        RecipeError: as `load`.
    """
    path = path.absolute()
    return _load(RecipeFile(path, path.parent, builtin=False, content=text), (), str(path))


def _load(file: RecipeFile, sets: Sequence[str], argument: str | None) -> LoadedRecipe:
    problems: list[Problem] = []
    chain = read_chain(file, problems)
    written, base = chain.written, chain.base
    for setting in sets:
        value = read_setting(setting, base, problems)
        if value is not None:
            written = merge(written, normalised(value))
    written, expanded = rebase(written, expand(written, problems), base)
    recipe, bad = validate(expanded, problems)
    if not chain.complete:
        problems = [problem for problem in problems if problem.code != "recipe.missing_key"]
    elif recipe is not None:
        problems += cross_checks(recipe, expanded, bad)
    if problems or recipe is None:
        raise _failure(problems)
    return LoadedRecipe(
        recipe=recipe,
        path=file.path,
        base=base,
        document=written.plain(),
        origins=_origins(written),
        argument=argument,
        sets=tuple(sets),
    )


def _failure(problems: list[Problem]) -> EtcliError:
    """One error with the problems in the order of the files, each once."""
    unique = dict.fromkeys(problems)
    files = list(dict.fromkeys(problem.file for problem in unique))
    return RecipeError.many(
        sorted(unique, key=lambda found: (files.index(found.file), found.line or 0, found.column or 0)),
    )


def _origins(root: Written) -> dict[str, Location]:
    return {".".join(map(str, words)): value.key for words, value in root.walk() if words}
