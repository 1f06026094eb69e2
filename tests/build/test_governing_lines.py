"""Faults point at the line that decides about them: the recipe's where it says something, else the generated project's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ndk_tree import make_ndk

from etcli.build.android import AndroidSettings
from etcli.build.audit import auditing, closure, cpu, files, operators, runtimes, symbols
from etcli.build.audit.governing import GOVERNED, placed
from etcli.build.components import components
from etcli.build.render import Toolset, render_project
from etcli.build.sources import read_sources
from etcli.common.assets import asset_dir
from etcli.common.errors import BuildError
from etcli.recipe.loaded import LoadedRecipe, Location
from etcli.recipe.loader import load
from etcli.tables.operators import AQLM, ATTENTION, read_operators
from etcli.tables.targets import load_targets
from etcli.toolchain import ninja
from etcli.toolchain.compilers import Compiler
from etcli.toolchain.executorch import ExecutorchPackage
from etcli.toolchain.ndk import find_ndk

Recipes = Callable[..., LoadedRecipe]
LIBRARIES = tuple(read_operators(asset_dir("native") / name) for name in (ATTENTION, AQLM))


def project(name: str, loaded: LoadedRecipe, tmp_path: Path) -> dict[str, str]:
    """The generated project of a target, with operators and OpenMP."""
    target = load_targets()[name]
    ndk = find_ndk(loaded, target, make_ndk(tmp_path / "ndk", "27.2.12479018")) if name == "android" else None
    kind = "clang" if ndk is not None else "gcc"
    compiler = Compiler(Path("/usr/bin/c++"), kind, "14", target.triple, kind, "")
    package = ExecutorchPackage(
        tmp_path / "prefix",
        "1.5.1",
        "1.5.1",
        None,
        "prefix" if ndk else "installed",
        "installation" if ndk else "wheel",
    )
    settings = AndroidSettings(26, "c++_shared") if ndk is not None else None
    sources = read_sources(asset_dir("native"))
    parts = components(loaded.recipe, LIBRARIES)
    tools = Toolset(compiler, package, ninja.find(), ndk)
    return dict(render_project(target, tools, parts, sources, LIBRARIES, openmp=True, android=settings))


@pytest.mark.parametrize("name", load_targets())
def test_every_text_that_governs_is_in_the_project(name: str, make_recipe: Recipes, tmp_path: Path) -> None:
    loaded = make_recipe()
    written = project(name, loaded, tmp_path)
    android_only = ("audit.libcxx", "audit.cxx_runtime", "audit.cxx_exported", "audit.api_level", "audit.ndk_mixed")
    for code, governed in GOVERNED.items():
        if code == "audit.exports" or not governed.texts or (code in android_only and name != "android"):
            continue  # the first is of builds for apps, which have a template of their own
        if code == "audit.symbol_version" and name == "android":
            continue  # libc++ knows none
        found = placed(BuildError.problem("x", code=code), loaded, tmp_path, written)
        assert found.line is not None, code
        assert found.file is not None
        line = written[found.file.name].splitlines()[found.line - 1]
        assert any(text in line for _, text in governed.texts), code


def test_what_governs_are_faults_of_the_audit() -> None:
    modules = (auditing, closure, cpu, files, operators, runtimes, symbols)
    text = "".join(Path(str(module.__file__)).read_text() for module in modules)
    assert [code for code in GOVERNED if f'"{code}"' not in text and code != "audit.exports"] == []


def test_the_recipe_goes_before_the_project(tmp_path: Path) -> None:
    (tmp_path / "etcli.yaml").write_text(
        "name: small\nmodel: {source: model.gguf}\nbuild:\n  target: host\n  openmp: static\n  stl: c++_static\n"
    )
    loaded = load(str(tmp_path / "etcli.yaml"))
    problem = BuildError.problem("x", code="audit.openmp")
    assert placed(problem, loaded, tmp_path, {}).place == f"{tmp_path / 'etcli.yaml'}:5:3"
    assert placed(BuildError.problem("x", code="audit.cxx_runtime"), loaded, tmp_path, {}).line == 6


def test_what_is_set_on_the_command_line_has_no_line(make_recipe: Recipes, tmp_path: Path) -> None:
    loaded = make_recipe()
    set_there = LoadedRecipe(
        loaded.recipe, loaded.path, loaded.base, loaded.document, {"build.openmp": Location(None, None, None)}
    )
    found = placed(
        BuildError.problem("x", code="audit.openmp"),
        set_there,
        tmp_path,
        {"CMakeLists.txt": "\nadd_library(etcli_openmp)"},
    )
    assert found.place == f"{tmp_path / 'CMakeLists.txt'}:2"


def test_a_problem_with_a_line_keeps_it(make_recipe: Recipes, tmp_path: Path) -> None:
    problem = BuildError.problem("x", code="audit.openmp", file=tmp_path / "op.yaml", line=3)
    assert placed(problem, make_recipe(), tmp_path, {"CMakeLists.txt": "add_library(etcli_openmp)"}) == problem
    other = BuildError.problem("x", code="audit.not_elf")
    assert placed(other, make_recipe(), tmp_path, {}) == other


@pytest.mark.known_failure("operators-torch-binding-in-cross-build")
@pytest.mark.parametrize("name", load_targets())
def test_no_projects_sources_are_a_binding_to_pytorch(name: str, make_recipe: Recipes, tmp_path: Path) -> None:
    assert any("torch_binding.cpp" in library.torch for library in LIBRARIES)
    for text in project(name, make_recipe(), tmp_path).values():
        assert "torch_binding" not in text
        assert "TORCH_LIBRARY" not in text
