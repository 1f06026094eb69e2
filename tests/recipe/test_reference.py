"""`docs/recipe.md` describes the recipe that there is."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import yaml

from etcli.recipe.checks import PRECISIONS
from etcli.recipe.grammar import all_keys
from etcli.recipe.loader import load
from etcli.recipe.reference import with_table
from etcli.recipe.support import NOT_YET

DOCUMENT = Path(__file__).parents[2] / "docs" / "recipe.md"


@pytest.fixture(scope="module")
def text() -> str:
    return DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.known_failure("export-arguments")
def test_the_table_is_that_of_the_schema(text):
    assert with_table(text) == text, "renew it: python -m etcli.recipe.reference docs/recipe.md"


def test_every_key_is_described(text):
    rows = dict(re.findall(r"^\| `([\w.]+)` \| .* \| (.*) \|$", text, re.M))
    assert set(all_keys()) <= set(rows)
    assert all(rows.values())


def test_keys_that_are_refused_today_are_marked(text):
    rows = dict(re.findall(r"^\| `([\w.]+)` \| .* \| (.*) \|$", text, re.M))
    assert {key for key, meaning in rows.items() if "**Not yet" in meaning} == {row.key for row in NOT_YET}


def test_the_examples_load(text, tmp_path):
    examples = re.findall(r"\n\n((?:    [a-z]+:.*\n(?:    .*\n)*)+)", text)
    assert len(examples) == 2
    for example in examples:
        path = tmp_path / "r.yaml"
        path.write_text(textwrap.dedent(example))
        assert load(str(path)).recipe.name == yaml.safe_load(path.read_text())["name"]


def test_precisions_of_each_backend_are_those_checked(text):
    line = text[text.index("- `export.precision` depends") :].split("\n- ")[0]
    for backend, precisions in PRECISIONS.items():
        said = line.split(f"`{backend}` has ")[1].split(";")[0]
        if backend == "neuron":
            assert all(precision.startswith("A") for precision in precisions)
        else:
            assert set(re.findall(r"\w+", said)) - {"and"} == set(precisions)
