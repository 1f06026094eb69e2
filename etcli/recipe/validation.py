"""The merged values as a `Recipe`, or everything that is wrong with them, each at its line."""

from __future__ import annotations

import copy
import difflib
from typing import Any

import pydantic

from etcli.common.errors import Problem
from etcli.recipe.grammar import all_keys, choices, field_at, keys_of, section_at
from etcli.recipe.inheritance import FILE_KEYS
from etcli.recipe.scalars import OddScalar
from etcli.recipe.schema import Recipe
from etcli.recipe.written import Written, shorten

MAX_PROBLEMS = 100

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "model_type": "a mapping",
    "dict_type": "a mapping",
}
_EXAMPLES = {
    "name": "name: my-model",
    "model": "model: {source: PATH-TO-CHECKPOINT}",
    "model.source": "source: PATH-TO-CHECKPOINT, below model",
    "neuron.platform": "platform: mt6991, below neuron",
}
# What stands in for a missing key, so that the rest can still be checked.
_STAND_INS: dict[str, Any] = {
    "name": "unnamed",
    "model": {"source": "missing"},
    "model.source": "missing",
    "neuron.platform": "missing",
}


def validate(root: Written, problems: list[Problem]) -> tuple[Recipe | None, set[str]]:
    """The recipe in `root` and the dotted keys that are wrong; what is wrong is added to `problems`.

    With problems the recipe holds defaults in place of the wrong values, good only for checking the others; None where not even that works.
    """
    plain = root.plain()
    bad: set[str] = set()
    try:
        return Recipe.model_validate(plain), bad
    except pydantic.ValidationError as error:
        details = error.errors(include_url=False)
    for number, detail in enumerate(details):
        if number == MAX_PROBLEMS:
            message = f"{len(details) - MAX_PROBLEMS} more keys are wrong"
            problems.append(root.problem("recipe.too_many", message, "Is this file a recipe at all?"))
            return None, bad
        problems.append(_problem(root, detail))
        bad.add(_dotted(detail["loc"]))
        if detail["type"] == "extra_forbidden":
            # A misspelt key may be any of those beside it, so their defaults say nothing.
            bad.update(_dotted((*detail["loc"][:-1], key)) for key in _close(detail["loc"]))
    try:
        return Recipe.model_validate(_pruned(plain, details)), bad
    except pydantic.ValidationError:
        return None, bad


def _pruned(plain: Any, details: list[Any]) -> Any:
    values = copy.deepcopy(plain)
    # Deepest and last first, so that removing a list's item does not move the others.
    for detail in sorted(details, key=lambda item: [str(word).rjust(8) for word in item["loc"]], reverse=True):
        *parents, last = detail["loc"]
        here = values
        for word in parents:
            try:
                here = here[word]
            except (KeyError, IndexError, TypeError):
                here = None
                break
        stand_in = _STAND_INS.get(_dotted(detail["loc"]))
        if isinstance(here, dict) and stand_in is not None:
            here[last] = copy.deepcopy(stand_in)
        elif isinstance(here, dict):
            here.pop(last, None)
        elif isinstance(here, list) and isinstance(last, int) and last < len(here):
            # A list without its wrong item would be wrong in another way: the key's default takes its place.
            _remove(values, parents)
    return values


def _remove(values: Any, words: list[Any]) -> None:
    *parents, last = words
    for word in parents:
        values = values[word]
    values.pop(last, None)


def _problem(root: Written, detail: Any) -> Problem:
    words = tuple(detail["loc"])
    key = _dotted(words)
    kind = detail["type"]
    where, followed = root.find(words)
    if kind == "missing":
        message = f"{key} is missing"
        return where.problem("recipe.missing_key", message, f"Add {_EXAMPLES.get(key, key)}.", at_key=followed > 0)
    if kind == "extra_forbidden":
        message, hint = _unknown(words)
        return where.problem("recipe.unknown_key", message, hint, at_key=True)
    if kind in _EXPECTED:
        message = f"{key} must be {_EXPECTED[kind]}, and {_described(where)}"
        return where.problem("recipe.wrong_type", message, _type_hint(kind, words, where))
    if kind == "literal_error":
        return _not_a_choice(key, words, where)
    return where.problem("recipe.wrong_value", f"{key}: {_reason(kind, key, detail, where)}", _description(words))


def _close(words: tuple[str | int, ...]) -> list[str]:
    """The keys beside an unknown one that it may have been meant to be, best first."""
    *parents, last = words
    section = section_at(parents)
    known = list(keys_of(section)) if section is not None else []
    return difflib.get_close_matches(str(last)[:100], known if parents else [*known, *FILE_KEYS], n=3)


def _unknown(words: tuple[str | int, ...]) -> tuple[str, str]:
    *parents, last = words
    name = shorten(str(last))
    section = section_at(parents)
    known = list(keys_of(section)) if section is not None else []
    if not parents:
        known += FILE_KEYS
    inside = f" in {'.'.join(map(str, parents))}" if parents else ""
    message = f"unknown key {name!r}{inside}"
    elsewhere = [key for key in all_keys() if key.split(".")[-1] == last]
    close = _close(words)
    if close:
        return message, f"Did you mean {close[0]!r}?"
    if elsewhere:
        return message, f"That key is {' or '.join(elsewhere)}."
    everywhere = difflib.get_close_matches(str(last)[:100], [key.split(".")[-1] for key in all_keys()], n=1)
    if everywhere:
        return message, f"Did you mean {next(k for k in all_keys() if k.split('.')[-1] == everywhere[0])}?"
    return message, f"Known here: {', '.join(known)}."


def _not_a_choice(key: str, words: tuple[str | int, ...], where: Written) -> Problem:
    field = field_at(words)
    allowed = choices(field) if field is not None else ()
    listed = ", ".join(allowed)
    if not isinstance(where.content, str):
        message = f"{key} must be one of {listed}, and {_described(where)}"
        return where.problem("recipe.wrong_type", message, "Write one of these words.")
    close = difflib.get_close_matches(where.content[:100], allowed, n=1, cutoff=0.5)
    message = f"{key}: {shorten(where.content)!r} is not one of {listed}"
    return where.problem(
        "recipe.wrong_value", message, f"Did you mean {close[0]!r}?" if close else "Choose one of these."
    )


def _described(where: Written) -> str:
    value = where.content
    raw = shorten(where.raw or "", 40)
    if value is None:
        return "nothing is written" if not raw else f"YAML reads {raw} as nothing"
    if isinstance(value, bool):
        return f"YAML reads {raw} as {str(value).lower()}"
    if isinstance(value, (int, float)):
        return f"{raw} is a number"
    if isinstance(value, OddScalar):
        return f"{raw} is neither text nor a plain number for YAML"
    if isinstance(value, str):
        return f"{shorten(value, 40)!r} is text"
    return "a list is written" if isinstance(value, list) else "a mapping is written"


def _type_hint(kind: str, words: tuple[str | int, ...], where: Written) -> str | None:
    last = str(words[-1]) if words else ""
    label = f"{last}: " if words and isinstance(words[-1], str) else ""
    value = where.content
    if value is None:
        key = ".".join(str(word) for word in words)
        field = all_keys().get(key)
        if field is not None and field.is_required():
            return "It is required and has no default: write a value."
        return "Remove the key to get its default, or write a value ('' is empty text)."
    if kind == "string_type" and not isinstance(value, (list, dict)):
        return f'Put it into quotes: {label}"{shorten(where.raw or "", 40)}"'
    if kind in ("int_type", "int_from_float") and isinstance(value, float) and value.is_integer():
        return f"Write {label}{int(value)}"
    if kind == "tuple_type" and not isinstance(value, (list, dict)):
        return f"Write {label}[{shorten(where.raw or '', 40)}]"
    if words == ("model",) and isinstance(value, str):
        return f"Write model: {{source: {shorten(where.raw or '', 40)}}}"
    if isinstance(value, str) and where.raw is not None and "${" in where.raw:
        return "A variable always gives text; write the value, or give it with --set."
    if isinstance(value, str) and kind in ("int_type", "float_type", "bool_type"):
        return "Write it without quotes, as a plain decimal number." if kind != "bool_type" else "Write true or false."
    return _description(words)


def _reason(kind: str, key: str, detail: Any, where: Written) -> str:
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    value = shorten(str(where.content), 60) if not isinstance(where.content, (dict, list)) else "this"
    if key == "name":
        return f"{value!r} is not a name: lower-case letters, digits, '.', '_' and '-', starting with a letter or digit, at most 64"
    if key == "model.sha256":
        return f"{value!r} is not a SHA-256: 64 lower-case hex digits"
    if kind == "string_too_short":
        return "is empty"
    message = str(detail["msg"])
    return f"{value} is wrong: {message[:1].lower()}{message[1:]}"


def _description(words: tuple[str | int, ...]) -> str | None:
    field = field_at([word for word in words if isinstance(word, str)])
    return f"{field.description}." if field is not None and field.description else None


def _dotted(words: Any) -> str:
    return ".".join(str(word) for word in words) or "the recipe"
