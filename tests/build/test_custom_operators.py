"""Operator libraries of the user's own in a build: linked whole, currency, faults with their places, and the project without etcli."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from operator_folders import TWICE, write_operators

from etcli.build.stage import BuildResult
from etcli.common.errors import BuildError, EtcliError, ExitCode, RecipeError, UsageError
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import build_outdated
from etcli.toolchain import cmake, ninja
from etcli.toolchain.registrations import read_registrations

Builder = Callable[..., BuildResult]
Recipes = Callable[..., LoadedRecipe]


@pytest.fixture
def shout(tmp_path: Path) -> Path:
    """The folder of an operator library."""
    return write_operators(tmp_path / "ops" / "shout")


@pytest.fixture
def with_ops(builder: Builder, make_recipe: Recipes) -> Builder:
    """Builds with the operator libraries in `ops`, a list of entries of build.custom_ops."""

    def run(
        target: str = "host", *, ops: tuple[str, ...] = ("ops/shout",), openmp: str = "off", **options: bool
    ) -> BuildResult:
        return builder(target, recipe=make_recipe(build={"custom_ops": ops, "openmp": openmp}), **options)

    return run


def listed(program: Path) -> list[str]:
    return subprocess.run([program], capture_output=True, text=True, check=True, env={}).stdout.split()


@pytest.mark.known_failure("operators-dropped-by-linker", "operators-whole-archive-order")
def test_it_is_linked_whole_once_and_followed(
    with_ops: Builder, builder: Builder, make_recipe: Recipes, shout: Path, tmp_path: Path
) -> None:
    result = with_ops()
    manifest = result.manifest
    assert manifest is not None
    program = result.folder / "stage" / "list_kernels"
    # the registry of the running program is the oracle: what it lists, and how often
    assert [name for name in listed(program) if name.startswith("shout::")] == ["shout::twice.out"]
    assert "shout::twice.out" in manifest.operators
    [custom] = manifest.custom_ops
    assert (custom.name, custom.operators, custom.shipped, custom.openmp) == (
        *("shout_ops", ("shout::twice.out",), None, False),
    )
    project = (result.folder / "CMakeLists.txt").read_text()
    assert project.count("$<LINK_LIBRARY:WHOLE_ARCHIVE,etcli_attention,shout_ops>") == 2
    assert "whole-archive" not in project
    assert str(tmp_path) not in project
    archive = result.folder / "cmake-build" / "operators" / "libshout_ops.a"
    assert b"shout::twice.out" in archive.read_bytes()
    assert not list((result.folder / "stage").glob("*.a"))
    assert with_ops().current

    # A change of the user's source is a change of the build, told by the library's name.
    recipe = make_recipe(build={"custom_ops": ["ops/shout"]})
    assert build_outdated(recipe, manifest) is None
    (shout / "twice.cpp").write_text(TWICE + "// changed\n")
    assert build_outdated(recipe, manifest) == "the sources of the operator library shout_ops have changed since"
    planned = with_ops(dry_run=True).plan
    assert planned[0] == "compile: operator library shout_ops changed"
    again = with_ops()
    assert again.manifest is not None
    assert again.manifest.sources_sha256 != manifest.sources_sha256
    assert build_outdated(recipe, again.manifest) is None

    # Another library is compiled into the same tree; without any, it is as it was.
    write_operators(tmp_path / "ops" / "loud", name="loud_ops", namespace="loud", source=TWICE.replace("shout", "loud"))
    both = with_ops(ops=("ops/shout", "ops/loud/"))
    assert not any(step.startswith("remove") for step in both.plan)
    assert {"shout::twice.out", "loud::twice.out"} <= set(listed(program))
    none = builder()
    assert none.manifest is not None
    assert none.manifest.custom_ops == ()
    assert not [name for name in listed(program) if name.startswith(("shout", "loud"))]


def test_a_folder_that_moved_is_built_from_nothing(with_ops: Builder, shout: Path, tmp_path: Path) -> None:
    with_ops(configure_only=True)
    moved = shout.rename(tmp_path / "shout")
    plan = with_ops(ops=("./shout",), dry_run=True).plan
    assert plan[0] == f"remove the build tree: folder of shout_ops changed from {shout} to {moved}"


def test_another_folder_of_a_name_that_the_build_tree_had_before_is_the_one_compiled(
    with_ops: Builder, builder: Builder, shout: Path, tmp_path: Path
) -> None:
    with_ops(configure_only=True)
    builder(configure_only=True)
    other = Path(shutil.copytree(shout, tmp_path / "other"))
    tree = with_ops(ops=("./other",), configure_only=True).folder / "cmake-build"
    assert cmake.cache_value(tree / "CMakeCache.txt", "ETCLI_OPERATORS_shout_ops") == str(other)
    commands = (tree / "compile_commands.json").read_text()
    assert f"{other}/" in commands
    assert f"{shout}/" not in commands


def test_the_project_works_without_etcli_and_elsewhere(
    with_ops: Builder, shout: Path, native: Path, tmp_path: Path
) -> None:
    rendered = with_ops(configure_only=True).folder
    machine = (rendered / "machine.cmake").read_text()
    assert str(shout) in machine
    project = tmp_path / "project"
    project.mkdir()
    for name in ("CMakeLists.txt", "CMakePresets.json"):
        shutil.copy(rendered / name, project)
    moved = Path(shutil.copytree(shout, tmp_path / "a place with spaces" / "shout"))
    shutil.rmtree(shout)
    variable = "ETCLI_OPERATORS_shout_ops"
    [package] = [line.split("[[")[1].split("]]")[0] for line in machine.splitlines() if "executorch_DIR" in line]
    given = [f"-Dexecutorch_DIR={package}", f"-DETCLI_NATIVE_DIR={native}", f"-DCMAKE_MAKE_PROGRAM={ninja.find()}"]

    def configure(*more: str) -> subprocess.CompletedProcess[str]:
        argv = [cmake.find(), "--preset", "host", *given, *more]
        return subprocess.run(argv, cwd=project, capture_output=True, text=True, check=False)

    lacking = configure()
    assert lacking.returncode != 0
    told = " ".join(lacking.stderr.split())
    assert f"{variable} names no folder" in told
    assert f"{variable} the folder of shout_ops" in told
    assert configure(f"-D{variable}={moved}").returncode == 0
    subprocess.run([cmake.find(), "--build", "--preset", "host"], cwd=project, capture_output=True, check=True)
    assert "shout::twice.out" in listed(project / "cmake-build" / "list_kernels")


def test_a_wrong_recipe_is_told_before_anything_is_made(with_ops: Builder, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        with_ops(ops=("ops/none", "./ops/neither"))
    assert caught.value.exit == ExitCode.USAGE
    assert [problem.code for problem in caught.value.problems] == ["recipe.custom_ops"] * 2
    assert not (tmp_path / "ws").exists()


@pytest.mark.parametrize(("name", "mark"), [("a;b", ";"), ("a$<b>c", r"\$<")])
def test_a_path_that_cmake_cannot_take(with_ops: Builder, tmp_path: Path, name: str, mark: str) -> None:
    write_operators(tmp_path / name)
    with pytest.raises(UsageError, match=f"the path has {mark} in it"):
        with_ops(ops=(f"./{name}",))


def test_a_folder_in_a_place_with_an_odd_name(with_ops: Builder, tmp_path: Path) -> None:
    odd = "ops/an ödd 'name' #&(x)@,[y]]z $HOME <%>"
    write_operators(tmp_path / odd)
    result = with_ops(ops=(odd,))
    assert "shout::twice.out" in listed(result.folder / "stage" / "list_kernels")


def test_a_folder_inside_another(with_ops: Builder, shout: Path) -> None:
    source = TWICE.replace("shout", "inner").replace("2 * x", "fator * x")
    inner = write_operators(shout / "inner", name="inner_ops", namespace="inner", source=source)
    [problem] = failure(with_ops, ops=("ops/shout", "ops/shout/inner"))
    assert (problem.file, problem.line) == (inner / "twice.cpp", 5)
    assert "(operator library inner_ops)" in problem.message


def test_functions_of_openmp_without_it(with_ops: Builder, shout: Path) -> None:
    (shout / "twice.cpp").write_text("#include <omp.h>\n" + TWICE.replace("2 * x", "omp_get_max_threads() * x"))
    [problem] = failure(with_ops)
    assert problem.code == "build.operators"
    assert f"openmp: true in {shout / 'op.yaml'}" in problem.hint
    assert "#ifdef ETCLI_OPENMP" in problem.hint


def failure(with_ops: Builder, **fields: object) -> list[object]:
    with pytest.raises(EtcliError) as caught:
        with_ops(**fields)
    assert caught.value.exit == ExitCode.BUILD
    return list(caught.value.problems)


def test_faults_of_the_users_source(with_ops: Builder, shout: Path) -> None:
    source = shout / "twice.cpp"

    # a word that is nowhere
    source.write_text(TWICE.replace("2 * x", "fator * x"))
    [problem] = failure(with_ops)
    assert isinstance(problem.exit_code, ExitCode)
    assert (problem.code, problem.file, problem.line) == ("build.operators", source, 5)
    assert problem.column == TWICE.splitlines()[4].index("2 * x") + 1
    assert problem.message.startswith("'fator'") or "fator" in problem.message.splitlines()[0]
    assert "operator library shout_ops" in problem.message
    assert "build.log" in problem.hint

    # a signature that ExecuTorch's macro does not take is told at the source's line, not at the header's
    source.write_text(
        TWICE.replace("const Tensor& x, Tensor& out", "Tensor& out, int* x")
        .replace("x.numel()", "1")
        .replace("x.const_data_ptr<float>()", "x")
    )
    [problem] = failure(with_ops)
    assert (problem.code, problem.file) == ("build.operators", source)
    assert problem.line == TWICE.splitlines().index('EXECUTORCH_LIBRARY(shout, "twice.out", twice);') + 1

    # a function that is declared and nowhere defined
    source.write_text("float factor();\n" + TWICE.replace("2 * x", "factor() * x"))
    [problem] = failure(with_ops)
    assert problem.code == "build.operators"
    assert "shout_ops does not link" in problem.message
    assert "undefined reference to `factor()'" in problem.message
    assert str(shout / "op.yaml") in problem.hint

    # a name that is not the schema's
    source.write_text(TWICE.replace('"twice.out"', '"thrice.out"'))
    problems = failure(with_ops)
    assert {problem.code for problem in problems} == {"audit.not_registered"}
    assert all("shout::twice.out of shout_ops" in problem.message for problem in problems)
    assert all("register shout::thrice.out" in problem.hint for problem in problems)

    # nothing registered
    source.write_text(TWICE.replace("EXECUTORCH_LIBRARY", "// EXECUTORCH_LIBRARY").replace("static Tensor", "Tensor"))
    problems = failure(with_ops)
    assert {problem.code for problem in problems} == {"audit.not_registered"}
    assert all("None of its sources names it" in problem.hint for problem in problems)


@pytest.mark.known_failure("operators-registered-twice")
def test_an_operator_of_executorchs_registered_again(with_ops: Builder, shout: Path) -> None:
    (shout / "twice.cpp").write_text(TWICE + 'EXECUTORCH_LIBRARY(aten, "add.out", twice);\n')
    problems = failure(with_ops)
    assert {problem.code for problem in problems} == {"audit.registered_twice"}
    by = f"aten::add.out registered by shout_ops ({shout}) and by libexecutorch_kernels_optimized.so"
    assert all(by in problem.message for problem in problems)
    # The runtime itself says so: the program of the build tree ends at its start.
    program = next((shout.parents[1] / "ws").rglob("cmake-build/list_kernels"))
    assert subprocess.run([program], capture_output=True, check=False).returncode != 0


@pytest.mark.known_failure("operators-registered-twice")
def test_two_libraries_that_register_one_operator(with_ops: Builder, shout: Path, tmp_path: Path) -> None:
    other = write_operators(
        tmp_path / "ops" / "loud",
        name="loud_ops",
        namespace="loud",
        source=TWICE.replace("shout", "loud") + 'EXECUTORCH_LIBRARY(shout, "twice.out", twice);\n',
    )
    problems = failure(with_ops, ops=("ops/shout", "ops/loud"))
    assert {problem.code for problem in problems} == {"audit.registered_twice"}
    assert f"registered by shout_ops ({shout}) and by loud_ops ({other})" in problems[0].message


@pytest.mark.known_failure("operators-registered-twice")
@pytest.mark.parametrize("target", ["host", "linux-aarch64"])
def test_what_only_a_start_tells(with_ops: Builder, shout: Path, target: str) -> None:
    again = 'EXECUTORCH_LIBRARY(shout, "twice.out", twice);\n'
    (shout / "twice.cpp").write_text(TWICE + again)
    problems = failure(with_ops, target=target)
    assert {problem.code for problem in problems} == {"audit.registered_twice"}
    by = f"list_kernels ends at its start: shout::twice.out is registered twice by shout_ops ({shout})"
    assert problems[0].message == by
    throwing = 'static int fails() { throw "no"; }\nstatic int failed = fails();\n'
    (shout / "twice.cpp").write_text(TWICE + throwing)
    problems = failure(with_ops, target=target)
    assert {problem.code for problem in problems} == {"audit.start"}
    assert problems[0].message.startswith("list_kernels does not start: killed by SIGABRT: terminate called after")
    assert not list((shout.parents[1] / "ws").rglob("stage/list_kernels"))


def test_a_target_that_nothing_runs_here(
    with_ops: Builder, shout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("etcli.build.starting.on_path", {}.get)
    (shout / "twice.cpp").write_text(TWICE + "#include <cstdlib>\nstatic int ended = (abort(), 1);\n")
    assert with_ops("linux-aarch64").manifest is not None


def test_two_functions_of_one_name(with_ops: Builder, shout: Path, tmp_path: Path) -> None:
    open_source = TWICE.replace("static Tensor", "Tensor")
    (shout / "twice.cpp").write_text(open_source)
    write_operators(
        tmp_path / "ops" / "loud", name="loud_ops", namespace="loud", source=open_source.replace("shout", "loud")
    )
    [problem] = failure(with_ops, ops=("ops/shout", "ops/loud"))
    assert problem.code == "build.operators"
    assert "multiple definition of `twice(" in problem.message
    assert "unnamed namespace" in problem.hint


def test_flags_and_definitions_reach_the_compiler(with_ops: Builder, shout: Path) -> None:
    write_operators(
        shout,
        source=TWICE
        + "#if LEVEL != 3 || !defined(LOUD) || !defined(__FAST_MATH__) || __cplusplus < 202002L || defined(ETCLI_OPENMP)\n#error flags\n#endif\n",
        more="definitions: [LOUD, LEVEL=3]\nflags: [-ffast-math, -std=c++20]\nopenmp: true\n",
    )
    assert with_ops().manifest is not None


@pytest.mark.known_failure("openmp-library-not-found", "openmp-flags-incomplete")
@pytest.mark.parametrize("target", ["host", "linux-aarch64"])
def test_openmp_is_linked_into_the_programs(with_ops: Builder, shout: Path, target: str) -> None:
    write_operators(
        shout,
        source="#ifndef ETCLI_OPENMP\n#error without\n#endif\n#include <omp.h>\n"
        + TWICE.replace("  for", "  #pragma omp parallel for num_threads(2)\n  for"),
        more="openmp: true\n",
    )
    result = with_ops(target, openmp="static")
    assert result.manifest is not None
    assert result.manifest.custom_ops[0].openmp
    needed = {library for file in result.manifest.stage if file.elf is not None for library in file.elf.needed}
    assert not [name for name in needed if "omp" in name]
    program = result.folder / "stage" / "list_kernels"
    assert b"GOMP_SPINCOUNT" in program.read_bytes()
    assert "shout::twice.out" in read_registrations(program).operators
    if target == "host":
        assert "shout::twice.out" in listed(program)


def test_a_build_without_openmp_has_none_inside(with_ops: Builder, shout: Path) -> None:
    """`build.openmp: static` is for libraries that can use it."""
    result = with_ops(openmp="static")
    assert result.manifest is not None
    assert b"GOMP_SPINCOUNT" not in (result.folder / "stage" / "list_kernels").read_bytes()
    assert not result.manifest.custom_ops[0].openmp


def test_an_openmp_archive_that_is_not_there(
    with_ops: Builder, shout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_operators(shout, more="openmp: true\n")
    compiler = tmp_path / "bin" / "g++"
    compiler.parent.mkdir()
    compiler.write_text('#!/bin/sh\ncase "$*" in *libgomp.a*) echo libgomp.a; exit;; esac\nexec /usr/bin/g++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(BuildError, match=r"has\s+no\s+libgomp\.a") as caught:
        with_ops(openmp="static")
    assert "build.openmp: off" in " ".join(str(caught.value).split())
