"""Recipes that inherit from recipes."""

from __future__ import annotations

import pytest

from etcli.common.errors import RecipeError
from etcli.recipe.loader import load

BASE = """\
name: base
model:
  source: weights/model.gguf
  adapter: ./lora
export:
  chunks: 3
  shapes: [8t64c, 1t64c]
build:
  custom_ops: [aqlm, ops/mine]
run:
  prompt: from base
  max_new_tokens: 7
"""


def failing(argument):
    with pytest.raises(RecipeError) as caught:
        load(argument)
    return caught.value.problems


def test_mappings_merge_and_lists_replace(write):
    write(BASE, "base.yaml")
    write(
        "extends: base.yaml\nname: child\nexport: {shapes: [16t32c, 1t32c]}\nrun: {prompt: from child}\n", "child.yaml"
    )
    recipe = load("child.yaml").recipe
    assert (recipe.name, recipe.export.chunks, recipe.run.prompt, recipe.run.max_new_tokens) == (
        "child",
        3,
        "from child",
        7,
    )
    assert recipe.export.shapes == ("16t32c", "1t32c")


def test_an_emptied_section_keeps_what_it_inherits(write):
    write(BASE, "base.yaml")
    write("extends: base.yaml\nrun:\n  # prompt: x\n", "child.yaml")
    assert load("child.yaml").recipe.run.prompt == "from base"


def test_places_point_into_the_file_that_wrote_the_key(write):
    base = write(BASE, "base.yaml")
    child = write("extends: base.yaml\nname: child\n", "child.yaml")
    loaded = load("child.yaml")
    assert (loaded.location("name").file, loaded.location("name").line) == (child, 2)
    assert (loaded.location("export.chunks").file, loaded.location("export.chunks").line) == (base, 6)
    assert loaded.path == child


def test_inherited_paths_mean_the_folder_of_the_file_that_wrote_them(write, tmp_path):
    write(BASE, "shared/base.yaml")
    write("extends: ../shared/base.yaml\nname: child\n", "mine/child.yaml")
    loaded = load("mine/child.yaml")
    assert loaded.base == tmp_path / "mine"
    assert loaded.resolve_path(loaded.recipe.model.source).resolve() == tmp_path / "shared/weights/model.gguf"
    assert loaded.resolve_path(loaded.recipe.model.adapter).resolve() == tmp_path / "shared/lora"
    assert loaded.recipe.build.custom_ops == ("aqlm", "../shared/ops/mine")
    assert loaded.document["model"]["source"] == "../shared/weights/model.gguf"


def test_a_chain_of_three_folders(write, tmp_path):
    write(BASE, "a/base.yaml")
    write("extends: ../a/base.yaml\nmodel: {adapter: here}\n", "b/middle.yaml")
    write("extends: b/middle.yaml\nname: top\n", "top.yaml")
    loaded = load("top.yaml")
    assert loaded.recipe.model.source == "a/weights/model.gguf"
    assert loaded.recipe.model.adapter == "b/here"


def test_inherited_paths_with_variables(write, tmp_path, monkeypatch):
    write("name: b\nmodel:\n  source: ${WHERE:-weights}/x\n", "shared/base.yaml")
    write("extends: shared/base.yaml\n", "child.yaml")
    loaded = load("child.yaml")
    assert loaded.recipe.model.source == "shared/weights/x"
    assert loaded.document["model"]["source"] == "shared/${WHERE:-weights}/x"
    monkeypatch.setenv("WHERE", "/abs")
    loaded = load("child.yaml")
    assert loaded.recipe.model.source == "/abs/x"
    assert loaded.document["model"]["source"] == "${WHERE:-weights}/x"


@pytest.mark.parametrize("source", ["pypi:a==1#m", "hf:org/name@main", "/abs/x", "~/x"])
def test_what_is_no_relative_path_stays(write, source):
    vendor = (
        "export: {backend: neuron, precision: A16W8, python: python3.10}\nneuron: {platform: mt6991, sdk: simulator}\n"
    )
    write(f"name: b\nmodel: {{source: '{source}'}}\n{vendor}", "shared/base.yaml")
    write("extends: shared/base.yaml\n", "child.yaml")
    recipe = load("child.yaml").recipe
    assert recipe.neuron is not None
    assert (recipe.model.source, recipe.export.python, recipe.neuron.sdk) == (source, "python3.10", "simulator")


def test_builtin_recipes_can_be_extended(write, tmp_path):
    write("extends: llama3.2-1b-8da4w\nname: mine\n", "sub/child.yaml")
    loaded = load("sub/child.yaml")
    assert loaded.recipe.export.precision == "8da4w"
    assert loaded.resolve_path(loaded.recipe.model.source) == tmp_path / "sub/Llama-3.2-1B-Instruct"


def test_base_says_where_relative_paths_start(write, tmp_path):
    write("base: ../data\nname: a\nmodel: {source: m.gguf}\n", "sub/r.yaml")
    loaded = load("sub/r.yaml")
    assert loaded.resolve_path(loaded.recipe.model.source).resolve() == tmp_path / "data/m.gguf"
    assert loaded.recipe.model.source == "m.gguf"


def test_extends_itself_starts_from_the_files_own_folder(write):
    write(BASE, "sub/parent.yaml")
    write("base: elsewhere\nextends: parent.yaml\nname: a\n", "sub/r.yaml")
    assert load("sub/r.yaml").recipe.model.source == "../weights/model.gguf"


def test_extends_with_a_variable(write, monkeypatch):
    write(BASE, "base.yaml")
    write("extends: ${PARENT}.yaml\n", "child.yaml")
    monkeypatch.setenv("PARENT", "base")
    assert load("child.yaml").recipe.name == "base"
    monkeypatch.delenv("PARENT")
    assert failing("child.yaml")[0].code == "recipe.unset_variable"


def test_cycles(write):
    write("name: a\nextends: b.yaml\n", "a.yaml")
    write("name: b\nextends: ./a.yaml\n", "b.yaml")
    problem = failing("a.yaml")[0]
    assert (problem.code, problem.file.name, problem.line, problem.column) == ("recipe.extends_cycle", "b.yaml", 2, 10)
    assert "a.yaml -> b.yaml -> a.yaml" in problem.message
    write("extends: self.yaml\n", "self.yaml")
    assert failing("self.yaml")[0].code == "recipe.extends_cycle"


def test_an_endless_chain_is_bounded(write):
    for index in range(40):
        write(f"extends: r{index + 1}.yaml\n", f"r{index}.yaml")
    assert "recipe.extends_depth" in {problem.code for problem in failing("r0.yaml")}


@pytest.mark.parametrize(
    ("extends", "code"),
    [
        ("gone.yaml", "recipe.not_found"),
        ("smolm2-135m", "recipe.not_found"),
        (".", "recipe.is_a_folder"),
        ("5", "recipe.wrong_type"),
        ("[a, b]", "recipe.wrong_type"),
        ("", "recipe.wrong_type"),
    ],
)
def test_what_cannot_be_extended(write, extends, code):
    write(f"name: a\nmodel: {{source: x}}\nextends: {extends}\n", "r.yaml")
    problem = failing("r.yaml")[0]
    assert (problem.code, problem.file.name, problem.line) == (code, "r.yaml", 3)


def test_problems_of_both_files_come_together(write):
    write("name: b\nname: c\nexport: {chunks: no}\n", "base.yaml")
    write("extends: base.yaml\nnope: 1\nmodel: {source: x}\n", "child.yaml")
    assert {(problem.file.name, problem.line, problem.code) for problem in failing("child.yaml")} == {
        ("base.yaml", 2, "recipe.duplicate_key"),
        ("base.yaml", 3, "recipe.wrong_type"),
        ("child.yaml", 2, "recipe.unknown_key"),
    }


def test_a_broken_parent_does_not_make_its_keys_missing(write):
    write("name: [\n", "base.yaml")
    write("extends: base.yaml\nrun: {chat: 5}\n", "child.yaml")
    assert [(problem.file.name, problem.code) for problem in failing("child.yaml")] == [
        ("base.yaml", "recipe.syntax"),
        ("child.yaml", "recipe.wrong_type"),
    ]
