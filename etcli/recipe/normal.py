"""Values that YAML reads as something else than the schema's word for them."""

from __future__ import annotations

from dataclasses import replace

from etcli.recipe.grammar import choices, is_optional, keys_of, section_of
from etcli.recipe.schema import Recipe, Section
from etcli.recipe.written import Written


def normalised(value: Written, section: type[Section] = Recipe) -> Written:
    """`value` with empty mappings for keys whose members are all commented out, and choices as they were typed.

    `openmp: off` is false in YAML 1.1 and the word in YAML 1.2; where a key is one of several words, the typed word counts.
    """
    if value.mapping is None:
        return value
    keys = keys_of(section)
    members = {}
    for name, member in value.mapping.items():
        field = keys.get(name)
        if field is not None:
            inner = section_of(field)
            if inner is not None:
                empty = member.content is None and not is_optional(field)
                member = replace(member, content={}) if empty else normalised(member, inner)
            elif not isinstance(member.content, str) and member.raw in choices(field):
                member = replace(member, content=member.raw)
        members[name] = member
    return replace(value, content=members)
