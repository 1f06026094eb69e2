"""What --library changes in a generated project, for each kind of target, without compiling anything."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from etcli.build import apps
from etcli.build.apps import app_parts
from etcli.common.assets import asset_dir
from etcli.common.errors import BuildError, RecipeError
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe
from etcli.tables.app_library import BINDING, INTERFACE, read_app_libraries
from etcli.tables.targets import load_targets
from etcli.toolchain import jdk
from etcli.toolchain.jdk import jni_headers

TARGETS = load_targets()


def recipe(**sections: object) -> LoadedRecipe:
    document = {"name": "small", "model": {"source": "model.gguf"}, **sections}
    return LoadedRecipe(Recipe.model_validate(document), Path("recipe.yaml"), Path(), document)


def make_jdk(home: Path) -> Path:
    (home / "include" / "linux").mkdir(parents=True)
    (home / "include" / "jni.h").touch()
    (home / "include" / "linux" / "jni_md.h").touch()
    return home


def test_a_jdk_is_found_by_java_home_then_by_javac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make_jdk(tmp_path / "first"), make_jdk(tmp_path / "second")
    javac = second / "bin" / "javac"
    javac.parent.mkdir()
    javac.touch(mode=0o755)
    links = tmp_path / "links"
    links.mkdir()
    (links / "javac").symlink_to(javac)
    monkeypatch.setenv("PATH", str(links))
    monkeypatch.setenv("JAVA_HOME", str(first))
    assert jni_headers() == (first / "include", first / "include" / "linux")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-jdk"))
    assert jni_headers() == (second / "include", second / "include" / "linux")
    (second / "include" / "jni.h").unlink()
    assert jni_headers() is None


def test_without_a_jdk_there_is_no_binding_and_a_note_but_for_android(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(apps, "jni_headers", lambda: None)
    parts = app_parts(recipe(), TARGETS["host"], Console())
    assert parts.files == ("libetcli_runner.so",)
    assert f"without its binding to Java ({jdk.APT} brings one)" in " ".join(capsys.readouterr().err.split())
    assert app_parts(recipe(), TARGETS["android"], Console()).files == ("libetcli_runner.so", "libetcli_runner_jni.so")
    assert "Java" not in capsys.readouterr().err


def test_another_runner_is_no_library() -> None:
    with pytest.raises(RecipeError) as caught:
        app_parts(recipe(run={"runner": "mtk"}), TARGETS["host"], Console())
    (problem,) = caught.value.problems
    assert (problem.code, caught.value.exit_code) == ("build.library", 2)
    assert "run.runner: etcli" in (problem.hint or "")


@pytest.mark.parametrize(
    ("folder", "name", "old", "new", "words"),
    [
        (INTERFACE, "library.yaml", "log.cpp", "gone.cpp", "files that are not there: gone.cpp"),
        (INTERFACE, "library.yaml", "sources:", "source:", "source"),
        (BINDING, "library.yaml", "functions: [JNI_OnLoad]\n", "", "it shows no function"),
        (INTERFACE, "etcli_runner.h", "#define ETCLI_RUNNER_API 2", "", "does not define ETCLI_RUNNER_API"),
    ],
)
def test_a_wrong_description_is_told(tmp_path: Path, folder: str, name: str, old: str, new: str, words: str) -> None:
    for part in (INTERFACE, BINDING):
        shutil.copytree(asset_dir("native") / part, tmp_path / part)
    path = tmp_path / folder / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(BuildError) as caught:
        read_app_libraries(tmp_path)
    assert caught.value.problems[0].code == "build.sources"
    assert words in caught.value.problems[0].message
