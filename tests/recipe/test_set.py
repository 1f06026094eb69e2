"""`--set key.sub=value`."""

from __future__ import annotations

import pytest

from etcli.common.errors import RecipeError
from etcli.recipe.loader import load


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("export.chunks=3", 3),
        ("export.shapes=[8t64c, 1t64c]", ("8t64c", "1t64c")),
        ("run.prompt=What is it?", "What is it?"),
        ("run.prompt='1.10'", "1.10"),
        ('run.prompt="a: b\\nc"', "a: b\nc"),
        ("run.prompt=a=b", "a=b"),
        ("run.prompt=''", ""),
        ("run.chat=no", False),
        ("run.temperature=1e-1", 0.1),
        ("run.system=null", None),
        ("run.system=", None),
        ("build.openmp=off", "off"),
        ("run.prompt=${WORD}", "hello"),
        (" run.seed =7", 7),
    ],
)
@pytest.mark.known_failure("export-quoting")
def test_values(write, minimal, monkeypatch, setting, value):
    monkeypatch.setenv("WORD", "hello")
    recipe = load(str(write(minimal)), [setting]).recipe
    section, key = setting.split("=")[0].strip().split(".")
    assert getattr(getattr(recipe, section), key) == value


def test_later_ones_win_and_mappings_merge(write, minimal):
    sets = ["export={chunks: 2, shapes: [8t64c, 1t64c]}", "export.chunks=4", "build.executorch.from=wheel"]
    loaded = load(str(write(minimal)), sets)
    assert (loaded.recipe.export.chunks, loaded.recipe.export.shapes) == (4, ("8t64c", "1t64c"))
    assert loaded.recipe.build.executorch.from_ == "wheel"
    assert loaded.sets == tuple(sets)
    assert loaded.location("export.chunks").file is None


def test_paths_start_from_the_recipes_folder(write, minimal, tmp_path):
    write(minimal, "sub/r.yaml")
    loaded = load("sub/r.yaml", ["model.source=other.gguf"])
    assert loaded.resolve_path(loaded.recipe.model.source) == tmp_path / "sub/other.gguf"
    loaded = load("smollm2-135m", ["model.source=other.gguf", "model.sha256=null"])
    assert loaded.resolve_path(loaded.recipe.model.source) == tmp_path / "other.gguf"


def test_a_recipe_may_be_completed(write):
    path = write("run: {chat: false}\n")
    assert load(str(path), ["name=x", "model.source=m"]).recipe.name == "x"


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ("nothing", "recipe.set"),
        ("=5", "recipe.set"),
        ("run..chat=1", "recipe.set"),
        ("run.=1", "recipe.set"),
        ("run chat=1", "recipe.set"),
        ("extends=smollm2-135m", "recipe.set"),
        ("run.prompt=Answer: yes", "recipe.set"),
        ("run.prompt=- a", "recipe.set"),
        ("run.prompt=a\nb", "recipe.set"),
        ("run.prompt=[a", "recipe.syntax"),
        ("run.prompt=*a", "recipe.alias"),
        ("run.prompt=!!python/name:os.system x", "recipe.tag"),
        ("run.prompt=\x1b[31m", "recipe.character"),
        ("run.prompt=\udcff", "recipe.character"),
        ("run.prompt=5", "recipe.wrong_type"),
        ("run.promt=x", "recipe.unknown_key"),
        ("rum.prompt=x", "recipe.unknown_key"),
        ("name.sub=x", "recipe.wrong_type"),
        ("export.shapes.0=x", "recipe.wrong_type"),
        ("export.chunks=0", "recipe.wrong_value"),
        ("export.precision=A16W4", "recipe.conflict"),
        ("run.prompt=${GONE_VARIABLE}", "recipe.unset_variable"),
    ],
)
def test_problems_name_the_argument(write, minimal, setting, code):
    path = write(minimal)
    with pytest.raises(RecipeError) as caught:
        load(str(path), [setting])
    problem = caught.value.problems[0]
    assert problem.code == code
    assert problem.message.startswith("--set ")
    assert problem.message.isprintable()
    assert problem.file is None
    assert problem.hint


def test_did_you_mean(write, minimal):
    with pytest.raises(RecipeError) as caught:
        load(str(write(minimal)), ["run.promt=x"])
    assert caught.value.problems[0].hint == "Did you mean 'prompt'?"


def test_all_settings_and_the_file_at_once(problems_of):
    problems = problems_of("name: A\nmodel: {source: x}\n", ["x", "export.chunks=no"])
    assert [problem.code for problem in problems] == ["recipe.set", "recipe.wrong_type", "recipe.wrong_value"]
