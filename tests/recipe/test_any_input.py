"""Whatever a recipe holds, loading it gives a recipe or a `RecipeError`, never anything else."""

from __future__ import annotations

import string
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etcli.common.errors import Problem, RecipeError
from etcli.recipe.grammar import all_keys
from etcli.recipe.loader import load
from etcli.recipe.resolved import dump

FAST = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

_FRAGMENTS = [
    *["name", "model", "source", "export", "shapes", "run", "neuron", "build", "executorch", "extends", "base"],
    *[
        ": ",
        ":",
        "\n",
        "\n  ",
        "\t",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "'",
        '"',
        "|\n",
        ">\n",
        "#",
        "&a ",
        "*a",
        "!!str ",
        "? ",
    ],
    *[
        "---\n",
        "...\n",
        "%YAML 1.1\n",
        "<<",
        "=",
        "~",
        "no",
        "1e3",
        "0x1",
        "1:30",
        "2020-01-01",
        "${A}",
        "${A:-b}",
        "$${",
        "\\x",
    ],
    *[
        "32t512c",
        "1t512c",
        "smollm2-135m",
        "x.yaml",
        "\ufeff",
        "\x85",
        "\u2028",
        "\0",
        "é",
        "/data/local/tmp/a",
        "simulator",
    ],
]


def loads(path: Path, sets: list[str]) -> None:
    problems: tuple[Problem, ...] = ()
    try:
        load(str(path), sets)
    except RecipeError as error:
        problems = error.problems
    for problem in problems:
        assert problem.code.startswith("recipe.")
        assert problem.message
        assert problem.line is None or problem.line >= 1


@FAST
@given(content=st.binary(max_size=200))
def test_any_bytes(tmp_path: Path, content: bytes):
    path = tmp_path / "r.yaml"
    path.write_bytes(content)
    loads(path, [])


@FAST
@given(text=st.lists(st.sampled_from(_FRAGMENTS), max_size=40).map("".join))
def test_any_yaml_pieces(tmp_path: Path, text: str):
    path = tmp_path / "r.yaml"
    path.write_text(text, encoding="utf-8")
    loads(path, [])


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(string.printable, max_size=8),
    st.sampled_from(_FRAGMENTS),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
_KEYS = sorted({word for key in all_keys() for word in key.split(".")} | {"extends", "base", "x"})
_MAPPINGS = st.dictionaries(
    st.sampled_from(_KEYS), st.one_of(_VALUES, st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=4)), max_size=6
)


@FAST
@given(values=_MAPPINGS)
def test_any_values_under_known_keys(tmp_path: Path, values: dict[str, object]):
    path = tmp_path / "r.yaml"
    path.write_text(dump(values), encoding="utf-8", errors="replace")
    loads(path, [])


@FAST
@given(
    setting=st.one_of(
        st.text(max_size=20), st.builds("{}={}".format, st.sampled_from(sorted(all_keys())), st.text(max_size=12))
    )
)
def test_any_setting(tmp_path: Path, setting: str):
    path = tmp_path / "r.yaml"
    path.write_text("name: a\nmodel: {source: x}\n")
    loads(path, [setting])
