"""Which file a RECIPE argument means."""

from __future__ import annotations

import os

import pytest

from etcli.common.errors import RecipeError
from etcli.recipe.loader import load


def code_of(argument):
    with pytest.raises(RecipeError) as caught:
        load(argument)
    (problem,) = caught.value.problems
    assert problem.hint
    return problem


def test_default_is_the_builtin_model(tmp_path):
    loaded = load(None)
    assert loaded.recipe.name == "smollm2-135m"
    assert loaded.base == tmp_path


def test_local_file_goes_before_the_default(write, minimal):
    path = write(minimal, "etcli.yaml")
    loaded = load(None)
    assert loaded.recipe.name == "tiny"
    assert loaded.path == path


def test_environment_goes_before_the_local_file(write, minimal, monkeypatch):
    write(minimal, "etcli.yaml")
    write(minimal.replace("tiny", "other"), "sub/other.yaml")
    monkeypatch.setenv("ETCLI_RECIPE", "sub/other.yaml")
    assert load(None).recipe.name == "other"
    monkeypatch.setenv("ETCLI_RECIPE", "")
    assert load(None).recipe.name == "tiny"


def test_argument_goes_before_the_environment(write, minimal, monkeypatch):
    write(minimal, "a.yaml")
    monkeypatch.setenv("ETCLI_RECIPE", "smollm2-135m")
    assert load("a.yaml").recipe.name == "tiny"


def test_a_bare_word_is_a_builtin_name_even_beside_a_folder_of_that_name(tmp_path):
    (tmp_path / "smollm2-135m").mkdir()
    assert load("smollm2-135m").recipe.name == "smollm2-135m"


def test_a_file_without_suffix(write, minimal):
    write(minimal, "plain")
    assert load("plain").recipe.name == "tiny"


def test_paths_start_from_the_recipes_folder(write, minimal, tmp_path):
    write(minimal, "sub/r.yaml")
    loaded = load("sub/r.yaml")
    assert loaded.resolve_path(loaded.recipe.model.source) == tmp_path / "sub/model.gguf"


def test_missing_file_with_a_near_builtin_name():
    problem = code_of("smolm2-135m")
    assert problem.code == "recipe.not_found"
    assert problem.hint == "Did you mean smollm2-135m?"


@pytest.mark.parametrize(
    "argument", ["none.yaml", "./none", "a\0b.yaml", "x" * 5000 + ".yaml", "~nobody-here/x.yaml", ""]
)
def test_missing_files(argument):
    assert code_of(argument).code in ("recipe.not_found", "recipe.is_a_folder")


def test_missing_file_named_by_the_environment_says_so(monkeypatch):
    monkeypatch.setenv("ETCLI_RECIPE", "gone.yaml")
    assert "$ETCLI_RECIPE" in code_of(None).message


def test_a_folder(tmp_path, write, minimal):
    (tmp_path / "empty").mkdir()
    assert code_of("./empty").code == "recipe.is_a_folder"
    path = write(minimal, "full/etcli.yaml")
    assert str(path) in code_of("./full").hint


def test_a_local_file_that_is_a_dangling_link_is_not_passed_over(tmp_path):
    (tmp_path / "etcli.yaml").symlink_to("gone.yaml")
    assert code_of(None).code == "recipe.not_found"


def test_special_files_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    assert code_of("pipe.yaml").code == "recipe.not_a_file"
    assert code_of("/dev/zero").code == "recipe.not_a_file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable(write, minimal):
    write(minimal).chmod(0)
    assert code_of("recipe.yaml").code == "recipe.unreadable"


def test_too_large(write):
    write(b"#" * (300 * 1024))
    assert code_of("recipe.yaml").code == "recipe.too_large"


def test_not_utf8_has_a_place(write):
    write(b"name: tiny\nmodel: {source: caf\xe9}\n")
    problem = code_of("recipe.yaml")
    assert (problem.code, problem.line, problem.column) == ("recipe.encoding", 2, 20)


def test_a_byte_order_mark_is_no_problem(write, minimal):
    write(b"\xef\xbb\xbf" + minimal.encode())
    assert load("recipe.yaml").recipe.name == "tiny"


def test_the_current_folder_is_gone(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert code_of(None).code == "recipe.not_found"
