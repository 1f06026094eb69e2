"""`${VAR}` and `${VAR:-default}` in the string values of a recipe; `$${` stands for a plain `${`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace

from etcli.common.errors import Problem
from etcli.recipe.written import Written, shorten

# The second alternative is whatever else starts with ${ and so is a mistake.
_REFERENCE = re.compile(
    r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}]*))?\}|(?P<bad>\$\{[^}\n]*\}?)"
)

HINT = "Write ${NAME} or ${NAME:-default} (defaults hold no braces), or $${ for a plain ${."


def malformed(text: str) -> str | None:
    """The first piece of `text` that starts as a variable and is none, or None."""
    return next((match["bad"] for match in _REFERENCE.finditer(text) if match["bad"] is not None), None)


def variable_names(text: str) -> tuple[str, ...]:
    """The variables that `text` refers to, each once."""
    return tuple(dict.fromkeys(match["name"] for match in _REFERENCE.finditer(text) if match["name"] is not None))


def expand(value: Written, problems: list[Problem], environment: Mapping[str, str] | None = None) -> Written:
    """`value` with the variables of every string replaced; what cannot be is added to `problems` and left as it is.

    As in a shell, `:-` also covers a variable that is set but empty. The result is always text: a variable cannot stand for a number.
    """
    variables = os.environ if environment is None else environment
    if isinstance(value.content, dict):
        return replace(value, content={key: expand(item, problems, variables) for key, item in value.content.items()})
    if isinstance(value.content, list):
        return replace(value, content=[expand(item, problems, variables) for item in value.content])
    if not isinstance(value.content, str) or "${" not in value.content:
        return value

    def text(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        if match["bad"] is not None:
            problems.append(
                value.problem(
                    "recipe.variable",
                    f"{shorten(match['bad'])} is not a variable",
                    HINT,
                )
            )
            return match[0]
        found = variables.get(match["name"])
        if match["default"] is not None and not found:
            return match["default"]
        if found is None:
            problems.append(
                value.problem(
                    "recipe.unset_variable",
                    f"the environment variable {match['name']} is not set",
                    f"Set it (export {match['name']}=...), or give a default: ${{{match['name']}:-default}}",
                )
            )
            return match[0]
        if any("\ud800" <= char <= "\udfff" or char == "\0" for char in found):
            problems.append(
                value.problem(
                    "recipe.variable", f"the environment variable {match['name']} is not UTF-8 text", "Set it again."
                )
            )
            return match[0]
        return found

    return replace(value, content=_REFERENCE.sub(text, value.content))
