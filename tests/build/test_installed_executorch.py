"""Builds against an installation of ExecuTorch: static libraries under in-tree names, taken in whole where they register something, once."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from executorch_standin import AARCH64, CPU_OPERATORS, PRIM_OPERATORS, standin_prefix

from etcli.build.components import Component
from etcli.build.stage import BuildResult
from etcli.build.tools import find_host_tools
from etcli.common.errors import BuildError, EtcliError, ToolError
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.targets import known_target
from etcli.toolchain import cmake

Builder = Callable[..., BuildResult]
Recipes = Callable[..., LoadedRecipe]

OWN_OPERATORS = ("etcli::last_row.out", "etcli::ring_attention.out")
OPERATORS = sorted((*OWN_OPERATORS, *CPU_OPERATORS, *PRIM_OPERATORS))


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in for this machine; not to be changed."""
    return standin_prefix(tmp_path_factory.mktemp("executorch"))


def from_prefix(root: Path) -> dict[str, object]:
    return {"executorch": {"from": "prefix", "root": str(root)}}


def said(program: Path) -> list[str]:
    return subprocess.run([program], capture_output=True, text=True, check=True, env={}).stdout.split()


def cmake_build(project: Path) -> subprocess.CompletedProcess[str]:
    """Configure and compile the project as a user would."""
    shutil.rmtree(project / "cmake-build", ignore_errors=True)
    for words in (["--preset", "host"], ["--build", "--preset", "host"]):
        argv: list[str | Path] = [cmake.find(), *words]
        done = subprocess.run(argv, cwd=project, capture_output=True, text=True)
        if done.returncode:
            break
    return done


@pytest.mark.known_failure("operators-dropped-by-linker")
@pytest.mark.known_failure("operators-whole-archive-order")
@pytest.mark.parametrize("raw_options", [True, False], ids=["with raw options", "without"])
def test_what_registers_itself_is_there_once(
    builder: Builder, make_recipe: Recipes, prefix: Path, tmp_path: Path, raw_options: bool
) -> None:
    """Whether or not the installation's targets carry the raw --whole-archive options that ExecuTorch gives them."""
    if not raw_options:
        prefix = standin_prefix(tmp_path / "plain", exported_keep_whole=False)
    recipe = make_recipe(build=from_prefix(prefix))
    assert not builder(recipe=recipe, dry_run=True).current
    result = builder(recipe=recipe)
    manifest = result.manifest
    assert manifest is not None
    stage = result.folder / "stage"
    # The stand-in's registry ends a program that registers an operator twice, as ExecuTorch's does.
    assert sorted(said(stage / "list_kernels")) == OPERATORS == list(manifest.operators)
    assert said(stage / "list_backends") == ["XnnpackBackend"] == list(manifest.backends)
    assert manifest.executorch_provider == "prefix"
    assert not [file.path for file in manifest.stage if "executorch" in file.path]
    assert builder(recipe=recipe).current

    # Without what keeps them whole, the linker leaves them out: the generated line is what holds.
    project = Path(shutil.copytree(result.folder, tmp_path / "without"))
    text = (project / "CMakeLists.txt").read_text()
    (project / "CMakeLists.txt").write_text(
        re.sub(r"(?m)^set_target_properties\(\w+ PROPERTIES LINK_LIBRARY_OVERRIDE .*\n", "", text)
    )
    assert (project / "CMakeLists.txt").read_text() != text
    done = cmake_build(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(said(project / "cmake-build" / "list_kernels")) == sorted(OWN_OPERATORS)
    assert said(project / "cmake-build" / "list_backends") == []


def test_a_replaced_library_builds_again(builder: Builder, make_recipe: Recipes, prefix: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(prefix, tmp_path / "installed"))
    recipe = make_recipe(build=from_prefix(root))
    assert builder(recipe=recipe).manifest is not None
    library = root / "lib" / "libexecutorch.a"
    library.write_bytes(library.read_bytes())
    assert any("ExecuTorch changed" in step for step in builder(recipe=recipe, dry_run=True).plan)


def test_a_project_in_other_hands_says_what_its_installation_lacks(
    builder: Builder, make_recipe: Recipes, prefix: Path, tmp_path: Path
) -> None:
    recipe = make_recipe(build=from_prefix(prefix))
    folder = builder(recipe=recipe, configure_only=True).folder
    poor = Path(shutil.copytree(prefix, tmp_path / "poor"))
    exported = poor / "lib/cmake/ExecuTorch/ExecuTorchTargets.cmake"
    exported.write_text(re.sub(r"xnnpack_backend", "another_backend", exported.read_text()))
    project = Path(shutil.copytree(folder, tmp_path / "project"))
    machine = project / "machine.cmake"
    machine.write_text(machine.read_text().replace(str(prefix), str(poor)))
    done = cmake_build(project)
    assert done.returncode != 0
    assert "has no xnnpack_backend" in " ".join(done.stderr.split())
    assert "-DEXECUTORCH_BUILD_XNNPACK=ON" in done.stderr


def test_an_installation_with_nothing_registered_does_not_pass_the_audit(
    builder: Builder, make_recipe: Recipes, prefix: Path, tmp_path: Path
) -> None:
    """As one whose kernels were left out of their library: everything compiles and links, and no program could run a model."""
    root = Path(shutil.copytree(prefix, tmp_path / "installed"))
    objects = tmp_path / "empty.o"
    subprocess.run(["g++", "-x", "c++", "-c", "-", "-o", objects], input="", text=True, check=True)
    for name in ("optimized_native_cpu_ops_lib", "executorch", "xnnpack_backend"):
        (root / "lib" / f"lib{name}.a").unlink()
        subprocess.run(["ar", "crs", root / "lib" / f"lib{name}.a", objects], check=True)
    with pytest.raises(EtcliError) as caught:
        builder(recipe=make_recipe(build=from_prefix(root)))
    assert isinstance(caught.value, BuildError) or {problem.exit_code for problem in caught.value.problems} == {7}
    assert "audit.not_registered" in {problem.code for problem in caught.value.problems}


def test_a_wrong_installation_is_refused_before_anything_is_written(
    builder: Builder, make_recipe: Recipes, prefix: Path, tmp_path: Path
) -> None:
    with pytest.raises(ToolError, match="EM_X86_64, linux-aarch64 needs EM_AARCH64"):
        builder(target="linux-aarch64", recipe=make_recipe(build=from_prefix(prefix)))
    with pytest.raises(ToolError, match="holds no installed ExecuTorch"):
        builder(recipe=make_recipe(build=from_prefix(tmp_path)))
    assert not list((tmp_path / "ws").rglob("CMakeLists.txt"))


def test_for_another_processor(builder: Builder, make_recipe: Recipes, tmp_path: Path) -> None:
    root = standin_prefix(tmp_path / "executorch", arguments=AARCH64)
    result = builder(target="linux-aarch64", recipe=make_recipe(build=from_prefix(root)))
    assert result.manifest is not None
    assert list(result.manifest.operators) == OPERATORS
    argv = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", str(result.folder / "stage" / "list_kernels")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == OPERATORS


def test_the_simulated_npu_needs_shared_libraries(make_recipe: Recipes, prefix: Path) -> None:
    recipe = make_recipe(build=from_prefix(prefix))
    parts = [Component("runtime")]
    find_host_tools(recipe, known_target("host"), None, None, parts)
    with pytest.raises(ToolError, match="needs ExecuTorch's shared libraries") as caught:
        find_host_tools(recipe, known_target("host"), None, None, parts, simulated=True)
    assert [problem.code for problem in caught.value.problems] == ["executorch.static"]
