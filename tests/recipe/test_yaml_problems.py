"""What is wrong with a recipe as YAML, with its place."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("", "recipe.empty", None, None),
        ("# nothing\n", "recipe.empty", None, None),
        ("---\n...\n", "recipe.empty", None, None),
        ("just text\n", "recipe.wrong_type", 1, 1),
        ("- a\n- b\n", "recipe.wrong_type", 1, 1),
        ("name: a\nname: b\nmodel: {source: x}\n", "recipe.duplicate_key", 2, 1),
        ("name: a\nmodel:\n  source: x\n  source: y\n", "recipe.duplicate_key", 4, 3),
        ("name: a\nmodel: {source: x, source: y}\n", "recipe.duplicate_key", 2, 20),
        ("name: a\nmodel:\n\tsource: x\n", "recipe.tab", 3, 1),
        ("name:\ta\nmodel: {source: x}\n", "recipe.tab", 1, 6),
        ("name: a\nmodel: {source: x}\n---\nname: b\n", "recipe.several_documents", 3, 1),
        ("name: &n a\nmodel: {source: *n}\n", "recipe.alias", 2, 17),
        ("name: a\nmodel: {source: x}\nrun: !!python/object:os.system {}\n", "recipe.tag", 3, 6),
        ("name: !!str a\nmodel: {source: x}\n", "recipe.tag", 1, 7),
        ("name: a\nmodel: {source: x\n", "recipe.syntax", 3, 1),
        ("name: a\nmodel: {source: x}\nrun:\n  prompt: What: is it\n", "recipe.syntax", 4, 15),
        ('name: "\\UFFFFFFFF"\n', "recipe.syntax", 1, 10),
        ("a: " + "[" * 200 + "]" * 200, "recipe.syntax", 1, 35),
        ('name: a\nmodel: {source: "x\\0y"}\n', "recipe.character", 2, 17),
        ('name: a\nmodel: {source: "\\ud800"}\n', "recipe.character", 2, 17),
        (b"name: a\nmodel: {source: x\x07}\n", "recipe.character", 2, 18),
        ("name: a\nmodel: {source: x}\n1: 2\n", "recipe.wrong_type", 3, 1),
        ("name: a\nmodel: {source: x}\nno: 2\n", "recipe.wrong_type", 3, 1),
        ("name: a\nmodel: {source: x}\n? [k]\n: 2\n", "recipe.wrong_type", 3, 3),
        ("name: a\nmodel: {source: x}\n<<: {}\n", "recipe.wrong_type", 3, 1),
    ],
)
def test_one_problem_at_its_place(problems_of, text, code, line, column):
    problem = problems_of(text)[0]
    assert (problem.code, problem.line, problem.column) == (code, line, column)
    assert problem.file is not None
    assert problem.file.name == "recipe.yaml"
    assert problem.hint


def test_every_tabbed_line_is_listed(problems_of):
    (problem,) = problems_of("name: a\nmodel:\n\tsource: x\nrun:\n\tprompt: x\n")
    assert "5" in problem.message


def test_an_alias_bomb_is_refused_at_its_aliases(problems_of):
    levels = [f"l{n}: &l{n} [" + ", ".join([f"*l{n - 1}"] * 9) + "]" for n in range(1, 30)]
    problems = problems_of("l0: &l0 [x]\n" + "\n".join(levels))
    assert {problem.code for problem in problems} >= {"recipe.alias", "recipe.unknown_key"}


def test_yaml_problems_come_together_with_the_others(problems_of):
    problems = problems_of("name: a\nname: b\nmodel: {source: x, sorce: y}\nexport: {chunks: 0}\n")
    assert [(problem.code, problem.line) for problem in problems] == [
        ("recipe.duplicate_key", 2),
        ("recipe.unknown_key", 3),
        ("recipe.wrong_value", 4),
    ]
