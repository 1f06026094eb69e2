"""`build.custom_ops`: names and folders, each fault at its line, and what a change of a source does to a build."""

from __future__ import annotations

from pathlib import Path

import pytest
import samples
from operator_folders import write_operators

from etcli.common.errors import EtcliError, ExitCode
from etcli.common.workspace import Workspace
from etcli.manifests.build import BuildManifest, CustomOperators
from etcli.output.console import Console
from etcli.recipe.custom_ops import own_operator_problems, own_operators, shipped_operators
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.loader import load
from etcli.recipe.outdated import build_outdated
from etcli.recipe.support import unsupported
from etcli.verbs.validate import validate


def recipe(write, *entries: str, more: str = "") -> LoadedRecipe:
    lines = "".join(f"    - {entry}\n" for entry in entries)
    return load(str(write(f"name: a\nmodel: {{source: x}}\n{more}build:\n  custom_ops:\n{lines}")))


def told(loaded: LoadedRecipe) -> list[tuple[str, int | None, str]]:
    problems = own_operator_problems(loaded)
    assert {problem.exit_code for problem in problems} <= {ExitCode.USAGE}
    assert all(problem.hint for problem in problems)
    return [(problem.code, problem.line, problem.message) for problem in problems]


def test_names_and_folders(write, tmp_path: Path) -> None:
    write_operators(tmp_path / "ops" / "shout")
    loaded = recipe(write, "aqlm", "ops/shout")
    assert unsupported(loaded) == []
    assert shipped_operators(loaded.recipe) == ("aqlm",)
    [library] = own_operators(loaded)
    assert (library.name, library.operators, library.own) == ("shout_ops", ("shout::twice.out",), True)


def test_a_folder_beside_the_recipes_is_named_without_detours(write, tmp_path: Path) -> None:
    folder = write_operators(tmp_path / "ops")
    path = write("name: a\nmodel: {source: x}\nbuild: {custom_ops: [../ops, ../recipes/./../ops]}\n", "recipes/a.yaml")
    [problem] = own_operator_problems(load(str(path)))
    assert f"{folder} stands in the list twice" in problem.message


def test_the_recipes_own_folder(write, tmp_path: Path) -> None:
    write_operators(tmp_path)
    assert [library.root for library in own_operators(recipe(write, "."))] == [tmp_path]


def test_a_workspace_beside_the_sources_is_none_of_them(write, tmp_path: Path) -> None:
    write_operators(tmp_path)
    [before] = own_operators(recipe(write, "."))
    generated = tmp_path / ".etcli" / "a" / "build" / "CMakeCXXCompilerId.cpp"
    generated.parent.mkdir(parents=True)
    generated.write_text("int main() {}")
    [after] = own_operators(recipe(write, "."))
    assert after.sha256 == before.sha256


def test_precision_aqlm_brings_its_operators(write) -> None:
    loaded = load(str(write("name: a\nmodel: {source: x, quantize: aqlm}\nexport: {precision: aqlm}\n")))
    assert shipped_operators(loaded.recipe) == ("aqlm",)


def test_unknown_names_and_repetitions_at_their_lines(problems_of) -> None:
    problems = problems_of("""\
        name: a
        model: {source: x}
        build:
          custom_ops:
            - aqml
            - aqlm
            - aqlm
            - shout
            - ops/x
            - ops/x/
        """)
    assert [(problem.code, problem.line, problem.column) for problem in problems] == [
        *(("recipe.conflict", line, 7) for line in (5, 7, 8, 10)),
    ]
    assert "Did you mean aqlm?" in (problems[0].hint or "")
    assert "./shout" in (problems[2].hint or "")


def test_a_folder_that_is_not_there(write, tmp_path: Path) -> None:
    write_operators(tmp_path / "ops" / "shout")
    found = told(recipe(write, "ops/gone", "./ops", "ops/shout/twice.cpp"))
    assert [(code, line) for code, line, _ in found] == [("recipe.custom_ops", line) for line in (5, 6, 7)]
    hints = [problem.hint or "" for problem in own_operator_problems(recipe(write, "ops/gone", "./ops"))]
    assert str(tmp_path) in hints[0]
    assert "Did you mean ./ops/shout?" in hints[1]


def test_from_a_setting(write, tmp_path: Path) -> None:
    path = write("name: a\nmodel: {source: x}\n")
    [problem] = own_operator_problems(load(str(path), ["build.custom_ops=[ops/gone]"]))
    assert str(tmp_path / "ops" / "gone") in problem.message


def test_every_fault_of_every_description_at_once(write, tmp_path: Path) -> None:
    one = write_operators(tmp_path / "one", namespace="aten", more="sauces: []\n")
    (one / "op.yaml").write_text((one / "op.yaml").read_text().replace("twice.cpp", "twise.cpp"))
    two = write_operators(tmp_path / "two", more="flags: [-march=native]\n")
    problems = own_operator_problems(recipe(write, "./one", "./two", "./three"))
    assert [(problem.file, problem.line) for problem in problems] == [
        (one / "op.yaml", 5),
        (two / "op.yaml", 5),
        (tmp_path / "recipe.yaml", 7),
    ]
    assert problems[0].hint == "Did you mean 'sources'?"


def test_what_is_taken(write, tmp_path: Path) -> None:
    for index, namespace in enumerate(("etcli", "aqlm", "aten")):
        folder = write_operators(tmp_path / str(index), namespace=namespace, name="etcli_more")
        [name, space] = told(recipe(write, f"./{index}"))
        assert space[:2] == ("operators.namespace", 2)
        assert namespace in space[2]
        assert name[:2] == ("operators.name", 1)
        assert own_operator_problems(recipe(write, f"./{index}"))[0].file == folder / "op.yaml"


@pytest.mark.known_failure("operators-registered-twice")
def test_two_providers_of_one_operator_are_both_named(write, tmp_path: Path) -> None:
    one, two = write_operators(tmp_path / "one"), write_operators(tmp_path / "two", name="loud_ops")
    [(code, line, message)] = told(recipe(write, "./one", "./two"))
    assert (code, line) == ("operators.twice", 3)
    assert f"shout::twice.out is registered by shout_ops ({one}) and by loud_ops ({two})" in message


def test_two_libraries_of_one_name_and_one_folder_twice(write, tmp_path: Path) -> None:
    write_operators(tmp_path / "one")
    write_operators(tmp_path / "two", namespace="loud")
    [(code, line, message)] = told(recipe(write, "./one", "./two"))
    assert (code, line) == ("operators.name", 1)
    assert "two operator libraries are called shout_ops" in message
    (tmp_path / "link").symlink_to("one")
    [(code, line, message)] = told(recipe(write, "./one", "./link"))
    assert (code, line) == ("recipe.custom_ops", 6)
    assert "twice" in message


def test_an_operator_that_stands_twice_in_its_own_list(write, tmp_path: Path) -> None:
    write_operators(tmp_path / "one", operators=("twice.out", "twice.out"))
    [(code, line, _)] = told(recipe(write, "./one"))
    assert (code, line) == ("operators.twice", 3)


def test_validate_tells_of_them_beside_everything_else(write, tmp_path: Path) -> None:
    with pytest.raises(EtcliError) as caught:
        validate(recipe(write, "./gone"), Console(verbosity=-1))
    assert [problem.code for problem in caught.value.problems] == ["recipe.custom_ops", "source.missing"]


# what a build of the recipe was made of, and whether it still is


def built(loaded: LoadedRecipe, tmp_path: Path) -> BuildManifest:
    custom = tuple(
        CustomOperators(
            name=library.name, operators=library.operators, openmp=False, shipped=None, sha256=library.sha256
        )
        for library in own_operators(loaded)
    )
    return samples.make_build(loaded, Workspace(tmp_path / "ws", "a"), custom_ops=custom)


def test_a_changed_source_makes_a_build_outdated(write, tmp_path: Path) -> None:
    folder = write_operators(tmp_path / "ops" / "shout")
    loaded = recipe(write, "ops/shout")
    manifest = built(loaded, tmp_path)
    assert build_outdated(loaded, manifest) is None
    (folder / "twice.cpp").write_text((folder / "twice.cpp").read_text() + "// more\n")
    assert build_outdated(loaded, manifest) == "the sources of the operator library shout_ops have changed since"


def test_moved_sources_are_the_same_sources(write, tmp_path: Path) -> None:
    write_operators(tmp_path / "ops" / "shout")
    manifest = built(recipe(write, "ops/shout"), tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "ops").rename(tmp_path / "elsewhere" / "ops")
    assert build_outdated(recipe(write, "elsewhere/ops/shout"), manifest) is None
    text = (tmp_path / "recipe.yaml").read_text().replace("elsewhere/", "")
    assert build_outdated(load(str(write(text, "elsewhere/recipe.yaml"))), manifest) is None


def test_another_list_makes_a_build_outdated(write, tmp_path: Path) -> None:
    write_operators(tmp_path / "one")
    write_operators(tmp_path / "two", name="loud_ops", namespace="loud")
    manifest = built(recipe(write, "./one"), tmp_path)
    assert build_outdated(recipe(write, "./one", "./two"), manifest) == "it lacks the operator library loud_ops"
    assert build_outdated(recipe(write, "./two"), built(recipe(write, "./one", "./two"), tmp_path)) == (
        "build.custom_ops no longer lists the operator library shout_ops"
    )
    assert build_outdated(recipe(write, "./one", "aqlm"), manifest) == "it lacks the operators of aqlm"
    gone = build_outdated(recipe(write, "./gone"), manifest)
    assert gone is not None
    assert "there is no folder" in gone


def test_where_a_library_is_from_does_not_change_the_fingerprint_of_a_build(write, tmp_path: Path) -> None:
    aqlm = CustomOperators(name="etcli_aqlm_ops", operators=(), openmp=False, shipped="aqlm", sha256="0" * 64)
    text = "name: a\nmodel: {source: x, quantize: aqlm}\nexport: {precision: aqlm}\n"
    by_precision = load(str(write(text)))
    named = load(str(write(f"{text}build: {{custom_ops: [aqlm]}}\n")))
    manifest = samples.make_build(by_precision, Workspace(tmp_path / "ws", "a"), custom_ops=(aqlm,))
    assert build_outdated(by_precision, manifest) is None
    assert build_outdated(named, manifest) is None
    other = load(str(write("name: a\nmodel: {source: x}\n")))
    manifest = samples.make_build(other, Workspace(tmp_path / "ws", "a"), custom_ops=(aqlm,))
    assert build_outdated(other, manifest) == "the recipe no longer asks for the operators of aqlm"
