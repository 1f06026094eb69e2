"""What surrounds a build and must not enter it: variables of the environment, odd folder names, tools that are not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etcli.build import stage
from etcli.build.stage import BuildOptions, BuildResult, build
from etcli.common.errors import ExitCode, ToolError, UsageError
from etcli.common.workspace import Workspace
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe

Builder = Callable[..., BuildResult]


def test_the_environment_does_not_change_a_build(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = builder().manifest
    assert plain is not None
    ignored = {
        "CMAKE_TOOLCHAIN_FILE": "/nowhere",
        "CMAKE_GENERATOR": "Unix Makefiles",
        "CMAKE_BUILD_TYPE": "Debug",
        "CMAKE_INSTALL_MODE": "SYMLINK",
        "CMAKE_CONFIG_TYPE": "Debug",
        "CXXFLAGS": "-fno-such-flag",
        "LDFLAGS": "-lno-such-library",
        "CPATH": str(tmp_path / "headers"),
        "DESTDIR": str(tmp_path / "elsewhere"),
    }
    # A header that would be found before the system's.
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers" / "cstdio").write_text("#error not this one\n")
    for name, value in ignored.items():
        monkeypatch.setenv(name, value)
    built = builder(clean=True, console=Console())
    assert built.manifest == plain
    assert not (tmp_path / "elsewhere").exists()
    assert not any(path.is_symlink() for path in (built.folder / "stage").iterdir())
    told = capsys.readouterr().err
    assert all(name in told for name in ignored)


def test_compiler_launchers_stay(builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = tmp_path / "launcher"
    launcher.write_text(f'#!/bin/sh\necho used >> {tmp_path / "log"}\nexec "$@"\n')
    launcher.chmod(0o755)
    monkeypatch.setenv("CMAKE_CXX_COMPILER_LAUNCHER", str(launcher))
    assert builder().manifest is not None
    assert "used" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("name", ['qu"ote', "semi;colon", "back\\slash", "pi|pe", "va${r}"])
def test_folders_that_cmake_cannot_take_are_refused_before_anything_is_written(
    name: str, tmp_path: Path, make_recipe: Callable[..., LoadedRecipe]
) -> None:
    workspace = Workspace(tmp_path / name, "small")
    with pytest.raises(UsageError, match="CMake cannot build in") as caught:
        build(make_recipe(), workspace, BuildOptions("host"), Console(verbosity=-1))
    assert caught.value.exit == ExitCode.USAGE
    assert "--workspace" in (caught.value.problems[0].hint or "")
    assert not workspace.root.exists()


def test_other_odd_names_are_built_in(
    native: Path, tmp_path: Path, make_recipe: Callable[..., LoadedRecipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "asset_dir", {"native": native}.__getitem__)
    workspace = Workspace(tmp_path / "a b'$x#(%)é&*[]@,=:`<>~!?{}^+", "small")
    built = build(make_recipe(), workspace, BuildOptions("host"), Console(verbosity=-1))
    assert built.manifest is not None
    assert build(make_recipe(), workspace, BuildOptions("host"), Console(verbosity=-1)).current


def test_a_dry_run_tells_what_is_missing_though_the_wheel_is_not_fetched(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    assert "fetch" in builder("linux-aarch64", dry_run=True).plan[0]
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="aarch64-linux-gnu-g"):
        builder("linux-aarch64", dry_run=True)
