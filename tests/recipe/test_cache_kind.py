"""Which KV cache contract a recipe comes to."""

from __future__ import annotations

import pytest

from etcli.common.errors import RecipeError
from etcli.recipe.fingerprint import cache_kind, export_fingerprint
from etcli.recipe.loader import load

NEURON = "neuron: {platform: mt6991, sdk: simulator}"


@pytest.mark.parametrize(
    ("rest", "kind"),
    [
        ("", "ring"),
        ("export: {backend: portable}", "ring"),
        ("export: {cache: shift}", "shift"),
        ("export: {cache: ring}", "ring"),
        ("run: {runner: mtk}", "shift"),
        (f"export: {{backend: neuron, precision: A16W4}}\n{NEURON}", "shift"),
    ],
)
def test_auto_follows_backend_and_runner(write, rest: str, kind: str) -> None:
    assert cache_kind(load(str(write(f"name: a\nmodel: {{source: x}}\n{rest}\n"))).recipe) == kind


@pytest.mark.parametrize(
    "rest",
    [
        "export: {cache: ring}\nrun: {runner: mtk}",
        f"export: {{cache: ring, backend: neuron, precision: A16W4}}\n{NEURON}",
    ],
)
def test_a_ring_where_there_can_be_none_is_refused_at_its_line(write, rest: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load(str(write(f"name: a\nmodel: {{source: x}}\n{rest}\n")))
    (problem,) = caught.value.problems
    assert problem.code == "recipe.conflict"
    assert problem.line == 3
    assert "ring" in problem.message


def test_a_derived_cache_counts_as_a_written_one(write) -> None:
    texts = ("", "export: {cache: ring}", "export: {cache: shift}")
    auto, ring, shift = (
        export_fingerprint(load(str(write(f"name: a\nmodel: {{source: x}}\n{text}\n"))).recipe) for text in texts
    )
    assert auto == ring != shift
