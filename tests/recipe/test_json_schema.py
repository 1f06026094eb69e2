"""The JSON schema that editors use."""

from __future__ import annotations

import json

import pytest

from etcli.recipe.builtin import builtin_recipes
from etcli.recipe.grammar import all_keys
from etcli.recipe.jsonschema import json_schema
from etcli.recipe.loader import load
from etcli.recipe.yamltext import read_text


@pytest.fixture(scope="module")
def schema():
    return json_schema()


def mappings(schema):
    return {"": schema, **schema["$defs"]}


def test_it_is_json_and_closed(schema):
    json.dumps(schema)
    for section in mappings(schema).values():
        assert section["type"] == "object"
        assert section["additionalProperties"] is False


def test_every_key_is_there_and_described(schema):
    keys = {key for section in mappings(schema).values() for key in section["properties"]}
    assert {word for dotted in all_keys() for word in dotted.split(".")} | {"extends", "base"} == keys
    for section in mappings(schema).values():
        assert all(value.get("description") for value in section["properties"].values())


def test_requirements_hold_only_without_extends(schema):
    assert all("required" not in section for section in mappings(schema).values())
    assert schema["if"] == {"required": ["extends"]}
    assert schema["else"]["required"] == ["name", "model"]
    assert schema["else"]["properties"]["model"] == {"required": ["source"]}


GOOD = [
    {"extends": "smollm2-135m"},
    {"extends": "smollm2-135m", "model": {"sha256": None}, "run": None},
    {
        "name": "a",
        "model": {"source": "x"},
        "export": {"backend": "${B:-xnnpack}", "shapes": ["${S}", "1t8c"]},
        "neuron": None,
    },
    {"base": "..", "name": "${N}", "model": {"source": "x"}, "build": {"executorch": None, "stl": "c++_shared"}},
]
BAD = [
    {},
    {"name": "a"},
    {"name": "a", "model": {}},
    {"name": "A", "model": {"source": "x"}},
    {"name": "a", "model": {"source": "x"}, "extra": 1},
    {"name": "a", "model": {"source": "x"}, "export": {"backend": "xnpack"}},
    {"name": "a", "model": {"source": "x"}, "export": {"chunks": "5"}},
    {"name": "a", "model": {"source": "x"}, "export": {"shapes": ["32t"]}},
    {"name": "a", "model": {"source": "x"}, "deploy": {"dir": "/sdcard"}},
    {"name": "a", "model": {"source": "x"}, "neuron": {"sdk": "x"}},
    {"name": "a", "model": {"source": "x"}, "run": {"chat": 1}},
]


def accepts(schema, value):
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize("value", GOOD)
def test_it_accepts(schema, value):
    assert accepts(schema, value)


@pytest.mark.parametrize("value", BAD)
def test_it_refuses(schema, value):
    assert not accepts(schema, value)


@pytest.mark.parametrize("recipe", builtin_recipes(), ids=lambda recipe: recipe.name)
def test_it_accepts_the_builtin_recipes_as_they_are_written(schema, recipe, tmp_path):
    written, problems = read_text(recipe.path.read_text(), file=recipe.path, folder=tmp_path)
    assert written is not None
    assert not problems
    assert accepts(schema, written.plain())
    assert accepts(schema, dict(load(recipe.name).document))
