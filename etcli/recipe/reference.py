"""The table of keys in `docs/recipe.md`, made from the schema. `python -m etcli.recipe.reference docs/recipe.md` renews it."""

from __future__ import annotations

import sys
import typing
from pathlib import Path

import pydantic_core
from pydantic.fields import FieldInfo

from etcli.common.files import write_if_changed
from etcli.recipe.grammar import all_keys, choices, is_optional, section_of
from etcli.recipe.inheritance import FILE_KEYS
from etcli.recipe.support import NOT_YET

BEGIN, END = "<!-- keys: begin -->\n", "<!-- keys: end -->\n"


def key_table() -> str:
    """Markdown: a table of the keys of each mapping, with type, default and meaning."""
    lines: list[str] = []
    for title, keys in _groups().items():
        lines += [f"### {title}", "", "| key | value | default | meaning |", "|---|---|---|---|", *keys, ""]
    return "\n".join(lines)


def _groups() -> dict[str, list[str]]:
    top = [f"| `{key}` | text |  | {text} |" for key, text in FILE_KEYS.items()]
    groups: dict[str, list[str]] = {"Top level": top}
    for key, field in all_keys().items():
        parent, _, _ = key.rpartition(".")
        row = f"| `{key}` | {_kind(field)} | {_default(field)} | {_escaped(field.description or '')}{_not_yet(key)} |"
        groups.setdefault(f"`{parent}`" if parent else "Top level", []).append(row)
    return groups


def _not_yet(key: str) -> str:
    """What this version refuses of the key."""
    refused = [row.what for row in NOT_YET if row.key == key]
    if not refused:
        return ""
    # where the whole key is refused, its name is in the first column already
    return ". **Not yet**" if refused == [key] else f". **Not yet: {_escaped(', '.join(refused))}**"


def _kind(field: FieldInfo) -> str:
    if section_of(field) is not None:
        return "mapping"
    words = choices(field)
    if words:
        return _escaped(" | ".join(f"`{word}`" for word in words))
    kinds = typing.get_args(field.annotation) if is_optional(field) else (field.annotation,)
    kind = next(one for one in kinds if one is not type(None))
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        kind = typing.get_args(kind)[0]
    names: dict[object, str] = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    collections: dict[object, str] = {tuple: "list of text", dict: "mapping of text"}
    return collections.get(origin) or names[kind]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or section_of(field) is not None or value == {} or value == ():
        return ""
    return f"`{pydantic_core.to_json(value).decode()}`" if not isinstance(value, str) else f"`{value}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def with_table(document: str) -> str:
    """`document` with the table between its two marks renewed.

    Raises:
        ValueError: the marks are not there.
    """
    before, rest = document.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "\n" + key_table() + "\n" + END + after


if __name__ == "__main__":
    path = Path(sys.argv[1])
    write_if_changed(path, with_table(path.read_text(encoding="utf-8")))
