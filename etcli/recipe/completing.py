"""Commands in hints as a user has to type them: what knows no recipe names a verb alone, and whoever knows it completes it."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping

from etcli.common.errors import EtcliError
from etcli.common.workspace import Workspace
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import command_line

_BARE = re.compile(r"`etcli (?P<verb>export|build|deploy|run|smoke|clean)(?P<flags>(?: --[a-z][a-z-]*(?: [0-9]+)?)*)`")
"""A command without a recipe, as `etcli deploy --verify` in backquotes."""


@contextlib.contextmanager
def completed_hints(
    loaded: LoadedRecipe, workspace: Workspace, options: Mapping[str, tuple[str, ...]]
) -> Iterator[None]:
    """In errors of the block, commands get the recipe, `--set` and `--workspace`, and what `options` has for their verb.

    The mapping is looked into when an error comes: what is known only later may be put into it then.
    """
    try:
        yield
    except EtcliError as error:
        error.problems = tuple(
            dataclasses.replace(problem, hint=completed(problem.hint, loaded, workspace, options))
            if problem.hint
            else problem
            for problem in error.problems
        )
        raise


def completed(text: str, loaded: LoadedRecipe, workspace: Workspace, options: Mapping[str, tuple[str, ...]]) -> str:
    """`text` with every command that stands there without a recipe completed."""

    def complete(match: re.Match[str]) -> str:
        verb = match["verb"]
        return f"`{command_line(verb, loaded, workspace, *match['flags'].split(), *options.get(verb, ()))}`"

    return _BARE.sub(complete, text)
