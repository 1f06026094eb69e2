"""Values that are refused by name because the product does not support them yet."""

from __future__ import annotations

import pytest

from etcli.common.errors import ExitCode
from etcli.recipe.builtin import builtin_recipes
from etcli.recipe.loader import load
from etcli.recipe.support import NOT_YET, list_recipes, unsupported

CASES = {
    "run.temperature": "run: {temperature: 0.7}",
    "run.top_p": "run: {top_p: 0.9}",
}


def test_every_row_has_a_case():
    assert {row.key for row in NOT_YET} == set(CASES)


@pytest.mark.parametrize("key", CASES)
def test_refused_at_its_line(write, key):
    loaded = load(str(write(f"name: a\nmodel: {{source: x}}\n{CASES[key]}\n")))
    (problem,) = unsupported(loaded)
    assert problem.code == "recipe.unsupported"
    assert problem.exit_code == ExitCode.USAGE
    assert key in problem.message
    assert problem.file == loaded.path
    assert problem.line == 3
    assert problem.hint


def test_what_is_supported(write):
    text = """\
    name: a
    model: {source: m.gguf, quantize: aqlm}
    export: {backend: portable, chunks: 3, cache: ring, precision: aqlm, layout: separate, shapes: [64t128c, 1t128c]}
    build: {target: linux-aarch64, openmp: static, custom_ops: [aqlm, ./mine], executorch: {from: wheel}}
    run: {chat: false, threads: 2, seed: 3, timeout_s: 5, system: x}
    """
    assert unsupported(load(str(write(text)))) == []


def test_several_at_once(write):
    loaded = load(str(write("name: a\nmodel: {source: x}\nrun: {temperature: 0.5, top_p: 0.5}\n")))
    assert len(unsupported(loaded)) == 2


def test_no_builtin_recipe_is_refused():
    assert [recipe.name for recipe in builtin_recipes() if unsupported(load(recipe.name))] == []


def test_each_listed_recipe_says_whether_it_is_refused():
    listed = {item.name: item for item in list_recipes()}
    assert list(listed) == [builtin.name for builtin in builtin_recipes()]
    assert listed["smollm2-135m"].supported
    for name, item in listed.items():
        assert item.supported == (not unsupported(load(name))), name
        assert item.supported == (not item.refused)
