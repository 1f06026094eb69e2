"""The recipe's schema seen from outside: which keys a mapping has, what a key's choices are, where a key belongs."""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Iterator, Sequence

from pydantic.fields import FieldInfo

from etcli.recipe.schema import Recipe, Section


def keys_of(section: type[Section]) -> dict[str, FieldInfo]:
    """The keys of a mapping, as a user writes them."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def section_of(field: FieldInfo) -> type[Section] | None:
    """The mapping that a key holds, or None for a plain value."""
    for kind in _alternatives(field):
        if isinstance(kind, type) and issubclass(kind, Section):
            return kind
    return None


def is_optional(field: FieldInfo) -> bool:
    """Whether the key may be written empty, which then means that it is absent."""
    return type(None) in _alternatives(field)


def choices(field: FieldInfo) -> tuple[str, ...]:
    """The words that a key may be, or nothing where it is free."""
    for kind in _alternatives(field):
        if typing.get_origin(kind) is typing.Literal:
            return typing.get_args(kind)
    return ()


def field_at(words: Sequence[str | int]) -> FieldInfo | None:
    """The schema of the key that `words` lead to."""
    section: type[Section] | None = Recipe
    field = None
    for word in words:
        field = keys_of(section).get(str(word)) if section is not None else None
        if field is None:
            return None
        section = section_of(field)
    return field


def section_at(words: Sequence[str | int]) -> type[Section] | None:
    """The mapping that `words` lead to; the whole recipe for none."""
    if not words:
        return Recipe
    field = field_at(words)
    return section_of(field) if field is not None else None


@functools.lru_cache(maxsize=1)
def all_keys() -> dict[str, FieldInfo]:
    """Every key by its dotted name, mappings included, in the order of the schema."""
    return dict(_below(Recipe, ""))


def _below(section: type[Section], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for key, field in keys_of(section).items():
        yield prefix + key, field
        inner = section_of(field)
        if inner is not None:
            yield from _below(inner, f"{prefix}{key}.")


def _alternatives(field: FieldInfo) -> tuple[object, ...]:
    kind = field.annotation
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return typing.get_args(kind)
    return (kind,)
