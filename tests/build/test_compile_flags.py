"""Flags of an operator library that the compiler does not take: told at their line of `op.yaml`, before anything is fetched or configured."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from operator_folders import write_operators

from etcli.build.android import AndroidSettings
from etcli.build.flags import check_flags
from etcli.build.stage import BuildResult
from etcli.common.errors import EtcliError, ExitCode, Problem
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.operators import read_operators
from etcli.tables.targets import known_target
from etcli.toolchain import compilers
from etcli.toolchain.compilers import Compiler

ANDROID = AndroidSettings(26, "c++_static")


def clang_for_android() -> Compiler:
    """The compiler of this machine that an NDK has too; it compiles for Android what needs no header."""
    path = shutil.which("clang++")
    assert path is not None
    return compilers.verify(known_target("android"), Path(path))


def host_gcc() -> Compiler:
    return compilers.verify(known_target("host"), Path(str(shutil.which("g++"))))


def written(folder: Path, more: str) -> Path:
    root = write_operators(folder / "ops", more=more)
    (root / "wide.cpp").write_text("int wide;\n")
    return root


def refused(folder: Path, more: str, compiler: Compiler, android: AndroidSettings | None = None) -> list[Problem]:
    root = written(folder, more)
    with pytest.raises(EtcliError) as caught:
        check_flags([read_operators(root, own=True)], compiler, android)
    error = caught.value
    assert error.exit == ExitCode.USAGE
    assert {(problem.code, problem.file) for problem in error.problems} == {("operators.flags", root / "op.yaml")}
    return list(error.problems)


def test_each_flag_of_which_the_compiler_knows_nothing(tmp_path: Path) -> None:
    more = "flags:\n  - -O3\n  - -fno-such-thing\n  - -ffast-math\n  - -fanother\n"
    compiler = host_gcc()
    first, second = refused(tmp_path, more, compiler)
    lines = (tmp_path / "ops" / "op.yaml").read_text().splitlines()
    for problem, flag in ((first, "-fno-such-thing"), (second, "-fanother")):
        assert f"{compiler.path} (gcc {compiler.version}) does not take {flag}: " in problem.message
        assert problem.line is not None
        assert lines[problem.line - 1] == f"  - {flag}"


@pytest.mark.parametrize("flag", ["-mllvm", "-mno-such-instructions", "-march=armv99-a"])
def test_flags_of_one_processor_family_for_android(tmp_path: Path, flag: str) -> None:
    """Among them `-mllvm`, which takes the next flag for its own."""
    more = f"architectures:\n  aarch64:\n    wide.cpp: [{flag}]\n  x86_64:\n    wide.cpp: [-mother]\n"
    (problem,) = refused(tmp_path, more, clang_for_android(), ANDROID)
    assert "for aarch64-linux-android26) does not take " + flag in problem.message
    assert problem.line is not None
    assert flag in (tmp_path / "ops" / "op.yaml").read_text().splitlines()[problem.line - 1]


def test_flags_that_do_not_go_together(tmp_path: Path) -> None:
    """The compiler takes each of them alone."""
    more = "architectures: {x86_64: {wide.cpp: [-m32, -mcmodel=medium]}}\n"
    (problem,) = refused(tmp_path, more, host_gcc())
    assert "does not take -m32 -mcmodel=medium: " in problem.message


def test_good_flags(tmp_path: Path) -> None:
    more = (
        "flags: [-O3, -ffast-math, -std=c++20, -Wno-unused]\n"
        "architectures: {x86_64: {wide.cpp: [-mavx2]}, aarch64: {wide.cpp: [-march=armv8.2-a+dotprod]}}\n"
    )
    library = read_operators(written(tmp_path, more), own=True)
    check_flags([library], host_gcc(), None)
    check_flags([library], clang_for_android(), ANDROID)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_build_stops_before_it_makes_anything(
    builder: Callable[..., BuildResult], make_recipe: Callable[..., LoadedRecipe], tmp_path: Path, dry_run: bool
) -> None:
    write_operators(tmp_path / "ops", more="flags: [-fno-such-thing]\n")
    with pytest.raises(EtcliError, match=r"shout_ops: .* does not take -fno-such-thing") as caught:
        builder("host", recipe=make_recipe(build={"custom_ops": ("./ops",)}), dry_run=dry_run)
    assert [problem.code for problem in caught.value.problems] == ["operators.flags"]
    assert not list(tmp_path.rglob("CMakePresets.json"))
