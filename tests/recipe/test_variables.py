"""`${VAR}` in string values."""

from __future__ import annotations

import os

import pytest

from etcli.recipe.loader import load


def prompt(write, text):
    return load(str(write(f"name: a\nmodel: {{source: x}}\nrun:\n  prompt: {text}\n"))).recipe.run.prompt


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${WORD}", "hello"),
        ("a ${WORD} b ${WORD}", "a hello b hello"),
        ("${WORD:-other}", "hello"),
        ("${EMPTY:-other}", "other"),
        ("x${EMPTY}y", "xy"),
        ("${GONE:-}x", "x"),
        ("${GONE:-a b/c}", "a b/c"),
        ("$${WORD}", "${WORD}"),
        ("$WORD costs 5$", "$WORD costs 5$"),
        ("${NUMBER}", "5"),
        ("${NESTED}", "${WORD}"),
    ],
)
def test_expansion(write, monkeypatch, text, value):
    for name, content in {"WORD": "hello", "EMPTY": "", "NUMBER": "5", "NESTED": "${WORD}"}.items():
        monkeypatch.setenv(name, content)
    monkeypatch.delenv("GONE", raising=False)
    assert prompt(write, text) == value


def test_lists_and_free_mappings_expand_too(write, monkeypatch):
    monkeypatch.setenv("CACHE", "64")
    loaded = load(str(write('name: a\nmodel: {source: x}\nexport: {shapes: ["8t${CACHE}c", "1t${CACHE}c"]}\n')))
    assert loaded.recipe.export.shapes == ("8t64c", "1t64c")
    assert loaded.document["export"]["shapes"] == ["8t${CACHE}c", "1t${CACHE}c"]


def test_every_unset_variable_at_its_place(problems_of, monkeypatch):
    monkeypatch.delenv("GONE", raising=False)
    problems = problems_of("name: a\nmodel: {source: '${GONE}/x'}\nrun:\n  system: ${GONE}${GONE2}\n")
    assert [(problem.code, problem.line, problem.column) for problem in problems] == [
        ("recipe.unset_variable", 2, 17),
        ("recipe.unset_variable", 4, 11),
        ("recipe.unset_variable", 4, 11),
    ]
    assert "${GONE:-default}" in problems[0].hint


@pytest.mark.parametrize("text", ["${}", "${1A}", "${A-b}", "${A", "${A:-${B}}", "${A:b}", "${A B}"])
def test_malformed(problems_of, text):
    problem = problems_of(f"name: a\nmodel: {{source: x}}\nrun:\n  prompt: '{text}'\n")[0]
    assert (problem.code, problem.line) == ("recipe.variable", 4)


def test_a_variable_is_no_number(problems_of, monkeypatch):
    monkeypatch.setenv("N", "4")
    (problem,) = problems_of("name: a\nmodel: {source: x}\nrun: {threads: '${N}'}\n")
    assert problem.code == "recipe.wrong_type"
    assert problem.hint == "A variable always gives text; write the value, or give it with --set."


def test_not_utf8(problems_of, monkeypatch):
    monkeypatch.setenv("BAD", os.fsdecode(b"\xff"))
    (problem,) = problems_of("name: a\nmodel: {source: '${BAD}'}\n")
    assert problem.code == "recipe.variable"


def test_values_are_checked_after_expansion(problems_of, monkeypatch):
    monkeypatch.setenv("DIR", "/data/local/tmp/../../system")
    (problem,) = problems_of("name: a\nmodel: {source: x}\ndeploy: {dir: '${DIR}'}\n")
    assert (problem.code, problem.line) == ("recipe.wrong_value", 3)
