"""The recipe's grammar as a JSON schema, for editors that complete and check YAML."""

from __future__ import annotations

from typing import Any

from etcli.recipe.grammar import is_optional, keys_of, section_of
from etcli.recipe.inheritance import FILE_KEYS
from etcli.recipe.schema import DEVICE_DIR_PATTERN, SHAPE_PATTERN, Recipe

_VARIABLE = {"type": "string", "pattern": r"\$\{"}


def json_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a recipe file: of `Recipe`, plus `extends` and `base`.

    What is required is so only in a file that extends nothing. Choices and patterned text may also be text with a variable, and a section
    may be empty.
    """
    schema = Recipe.model_json_schema(by_alias=True)
    sections = schema["$defs"]
    # Validators in Python, which pydantic's own schema cannot show.
    sections["ExportSection"]["properties"]["shapes"] |= {"items": {"type": "string", "pattern": f"^{SHAPE_PATTERN}$"}}
    sections["DeploySection"]["properties"]["dir"]["anyOf"][0]["pattern"] = f"^{DEVICE_DIR_PATTERN}$"

    required = {name: section.pop("required") for name, section in sections.items() if "required" in section}
    alone = {
        "required": schema.pop("required"),
        "properties": {
            "model": {"required": required["ModelSection"]},
            "neuron": {"anyOf": [{"type": "null"}, {"required": required["NeuronSection"]}]},
        },
    }
    for section in (schema, *sections.values()):
        section["properties"] = {key: _with_variables(value) for key, value in section["properties"].items()}
    for key, field in keys_of(Recipe).items():
        if section_of(field) is not None and not is_optional(field):
            schema["properties"][key] = _or({"type": "null"}, schema["properties"][key])
    executorch = sections["BuildSection"]["properties"]["executorch"]
    sections["BuildSection"]["properties"]["executorch"] = _or({"type": "null"}, executorch)
    file_keys = {key: {"type": "string", "minLength": 1, "description": text} for key, text in FILE_KEYS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "etcli recipe",
        "properties": {**file_keys, **schema["properties"]},
        "if": {"required": ["extends"]},
        "else": alone,
    }


def _or(alternative: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """`value` or `alternative`, with the descriptive keys kept outside, where editors look for them."""
    outer: dict[str, Any] = {key: value[key] for key in ("description", "title", "default") if key in value}
    inner = {key: item for key, item in value.items() if key not in outer}
    if set(inner) == {"anyOf"}:
        return {**outer, "anyOf": [*inner["anyOf"], alternative]}
    return {**outer, "anyOf": [inner, alternative]}


def _with_variables(value: dict[str, Any]) -> dict[str, Any]:
    if "items" in value:
        return {**value, "items": _with_variables(value["items"])}
    strict = [part for part in (value, *value.get("anyOf", ())) if "enum" in part or "pattern" in part]
    return _or(_VARIABLE, value) if strict else value
