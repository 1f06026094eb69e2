"""Values that are refused by name because the product does not support them yet."""

from __future__ import annotations

from etcli.common.errors import ExitCode
from etcli.recipe import support
from etcli.recipe.builtin import builtin_recipes
from etcli.recipe.loader import load
from etcli.recipe.support import NotYet, list_recipes, unsupported


def test_refused_at_its_line(write, monkeypatch):
    row = NotYet("run.threads", lambda recipe: recipe.run.threads == 7, "seven threads", "Use six.")
    monkeypatch.setattr(support, "NOT_YET", (row,))
    loaded = load(str(write("name: a\nmodel: {source: x}\nrun: {threads: 7}\n")))
    (problem,) = unsupported(loaded)
    assert problem.code == "recipe.unsupported"
    assert problem.exit_code == ExitCode.USAGE
    assert "run.threads" in problem.message
    assert "seven threads" in problem.message
    assert problem.file == loaded.path
    assert problem.line == 3
    assert problem.hint == "Use six."
    assert unsupported(load(str(write("name: a\nmodel: {source: x}\nrun: {threads: 6}\n")))) == []


def test_what_is_supported(write):
    text = """\
    name: a
    model: {source: m.gguf, quantize: aqlm}
    export: {backend: portable, chunks: 3, cache: ring, precision: aqlm, layout: separate, shapes: [64t128c, 1t128c]}
    build: {target: linux-aarch64, openmp: static, custom_ops: [aqlm, ./mine], executorch: {from: wheel}}
    run: {chat: false, threads: 2, temperature: 0.7, top_p: 0.9, seed: 3, timeout_s: 5, system: x}
    """
    assert unsupported(load(str(write(text)))) == []


def test_several_at_once(write, monkeypatch):
    rows = [NotYet(f"run.{key}", lambda _: True, "this", "Not.") for key in ("threads", "seed")]
    monkeypatch.setattr(support, "NOT_YET", tuple(rows))
    loaded = load(str(write("name: a\nmodel: {source: x}\nrun: {threads: 1, seed: 2}\n")))
    assert [problem.line for problem in unsupported(loaded)] == [3, 3]


def test_no_builtin_recipe_is_refused():
    assert [recipe.name for recipe in builtin_recipes() if unsupported(load(recipe.name))] == []


def test_each_listed_recipe_says_whether_it_is_refused():
    listed = {item.name: item for item in list_recipes()}
    assert list(listed) == [builtin.name for builtin in builtin_recipes()]
    assert listed["smollm2-135m"].supported
    for name, item in listed.items():
        assert item.supported == (not unsupported(load(name))), name
        assert item.supported == (not item.refused)
