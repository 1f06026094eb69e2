"""The rendered project of target android: what goes into it by rule, and what CMake itself makes of its presets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from ndk_tree import make_ndk

from etcli.build.android import AndroidSettings, android_settings, cpu_flags
from etcli.build.components import components
from etcli.build.render import Toolset, render_project
from etcli.build.sources import read_sources
from etcli.common.assets import asset_dir
from etcli.common.errors import EtcliError, ExitCode
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.delegates import read_delegate
from etcli.tables.operators import OperatorLibrary, read_operators
from etcli.tables.socs import load_socs
from etcli.tables.targets import load_targets
from etcli.toolchain import cmake, ninja
from etcli.toolchain.compilers import Compiler
from etcli.toolchain.executorch import ExecutorchPackage
from etcli.toolchain.ndk import find_ndk

Recipes = Callable[..., LoadedRecipe]
ANDROID = load_targets()["android"]


@pytest.fixture
def render(tmp_path: Path, native: Path, make_recipe: Recipes) -> Callable[..., dict[str, str]]:
    """The files of a project for an NDK of a revision, without any NDK's compiler having been started."""

    def files(
        revision: str = "28.2.13676358",
        *,
        recipe: LoadedRecipe | None = None,
        api_level: int = 26,
        stl: str = "c++_static",
        libraries: tuple[OperatorLibrary, ...] = (),
        openmp: bool = False,
    ) -> dict[str, str]:
        loaded = recipe or make_recipe()
        root = tmp_path / f"ndk-{revision}"
        ndk = find_ndk(loaded, ANDROID, root if root.exists() else make_ndk(root, revision))
        compiler = Compiler(ndk.compiler, "clang", "14.0", ANDROID.triple, "clang", "")
        prefix = ExecutorchPackage(tmp_path / "prefix", "1.5.1", "1.5.1", None, "prefix", "installation")
        tools = Toolset(compiler, prefix, ninja.find(), ndk)
        settings = AndroidSettings(api_level, stl)  # type: ignore[arg-type]
        sources = read_sources(native)
        flags = cpu_flags(loaded, ANDROID)
        parts = components(loaded.recipe, libraries)
        return dict(
            render_project(ANDROID, tools, parts, sources, libraries, openmp=openmp, android=settings, cpu_flags=flags)
        )

    return files


def preset(files: dict[str, str]) -> dict[str, object]:
    [found] = json.loads(files["CMakePresets.json"])["configurePresets"]
    assert isinstance(found, dict)
    return found


def variables(files: dict[str, str]) -> dict[str, object]:
    found = preset(files)["cacheVariables"]
    assert isinstance(found, dict)
    return found


@pytest.mark.known_failure("executorch-package-not-found", "build-debug-as-release")
def test_the_preset_names_the_toolchain_by_the_environment_and_no_path(
    render: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    files = render(api_level=28, stl="c++_shared")
    assert preset(files)["toolchainFile"] == "$env{ANDROID_NDK}/build/cmake/android.toolchain.cmake"
    assert variables(files).items() >= {
        ("ANDROID_ABI", "arm64-v8a"),
        ("ANDROID_PLATFORM", "android-28"),
        ("ANDROID_STL", "c++_shared"),
        ("CMAKE_BUILD_TYPE", "Release"),
        ("CMAKE_FIND_ROOT_PATH_MODE_PACKAGE", "BOTH"),
    }
    assert "toolchain.cmake" not in files
    assert [name for name, text in files.items() if str(tmp_path) in text] == ["machine.cmake"]
    assert str(tmp_path / "ndk-28.2.13676358") in files["machine.cmake"]


def test_cmake_lists_the_preset(render: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    for name, text in render().items():
        (tmp_path / name).write_text(text)
    done = subprocess.run([cmake.find(), "--list-presets=all"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"android"') == 2  # to configure and to build


@pytest.mark.parametrize(
    ("revision", "option", "flexible"),
    [
        ("25.2.9519653", True, False),
        ("26.3.11579264", True, False),
        ("27.2.12479018", False, True),
        ("28.2.13676358", False, False),
    ],
)
@pytest.mark.known_failure("android-16-kb-pages")
def test_pages_of_16_kib_by_the_means_of_the_revision(
    render: Callable[..., dict[str, str]], revision: str, option: bool, flexible: bool
) -> None:
    files = render(revision)
    assert ('"LINKER:-z,max-page-size=16384"' in files["CMakeLists.txt"]) == option
    assert ("ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES" in variables(files)) == flexible


def test_the_shared_runtime_is_installed_where_it_is_used(render: Callable[..., dict[str, str]]) -> None:
    assert "libc++_shared.so" not in render()["CMakeLists.txt"]
    assert "libc++_shared.so" in render(stl="c++_shared")["CMakeLists.txt"]
    for text in render().values():
        assert "print-file-name" not in text  # that of a compiler for many targets answers for this machine


@pytest.mark.known_failure("neuron-imported-location", "neuron-exceptions-and-api-level")
def test_the_delegate_has_types_exceptions_and_androids_libraries(
    render: Callable[..., dict[str, str]], make_recipe: Recipes
) -> None:
    neuron = read_delegate(asset_dir("native") / "neuron")
    text = render(libraries=(neuron,))["CMakeLists.txt"]
    assert "target_compile_options(etcli_neuron PRIVATE -frtti -fexceptions)" in text
    [links] = [line for line in text.splitlines() if line.startswith("target_link_libraries(etcli_neuron ")]
    assert {"android", "log", "dl"} <= set(links.rstrip(")").split())
    assert "neuronusdk_adapter" not in text  # opened when the first program is loaded


def test_openmp_is_compiled_and_linked_in(render: Callable[..., dict[str, str]]) -> None:
    aqlm = read_operators(asset_dir("native") / "aqlm")
    text = render(libraries=(aqlm,), openmp=True)["CMakeLists.txt"]
    assert "target_compile_options(etcli_aqlm_ops PRIVATE -fopenmp)" in text
    assert "target_link_options(etcli_openmp INTERFACE -fopenmp -static-openmp)" in text
    assert "openmp" not in render(libraries=(aqlm,))["CMakeLists.txt"]


@pytest.mark.parametrize("soc", list(load_socs()))
@pytest.mark.known_failure("cpu-above-the-device")
def test_instructions_of_one_chip_only_for_recipes_of_that_chip(
    render: Callable[..., dict[str, str]], make_recipe: Recipes, soc: str
) -> None:
    export = {"backend": "neuron", "precision": "A16W8"}
    loaded = make_recipe(export=export, neuron={"platform": soc, "sdk": "/sdk"})
    text = render(recipe=loaded)["CMakeLists.txt"]
    [options] = [line for line in text.splitlines() if line.startswith("add_compile_options(-Wall")]
    assert options.rstrip(")").split()[-1].strip("[]") == f"-march={load_socs()[soc].march}"
    assert "+dotprod" in load_socs()[soc].march
    for other in (make_recipe(), make_recipe(export=export, neuron={"platform": soc, "sdk": "simulator"})):
        assert cpu_flags(other, ANDROID) == ()
    assert cpu_flags(loaded, load_targets()["linux-aarch64"]) == ()
    plain = render()
    assert not [name for name, text in plain.items() if "-march" in text or "-mcpu" in text or "native)" in text]


def settings(loaded: LoadedRecipe, *libraries: OperatorLibrary, shared: tuple[str, ...] = ()) -> AndroidSettings:
    found = android_settings(loaded, ANDROID, libraries, shared)
    assert found is not None
    return found


def own(folder: Path, name: str, api_level: int | None) -> OperatorLibrary:
    folder.mkdir()
    (folder / "a.cpp").write_text("")
    more = f"api_level: {api_level}\n" if api_level is not None else ""
    (folder / "op.yaml").write_text(
        f'name: {name}\nnamespace: mine\noperators: ["f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)"]\nsources: [a.cpp]\n{more}'
    )
    return read_operators(folder, own=True)


@pytest.mark.known_failure("android-function-of-a-later-api")
def test_the_api_level_is_the_lowest_that_everything_can_do_with(make_recipe: Recipes, tmp_path: Path) -> None:
    low, high = own(tmp_path / "low", "low_ops", None), own(tmp_path / "high", "high_ops", 28)
    assert settings(make_recipe()).api_level == 26
    assert settings(make_recipe(), low).api_level == 26
    assert settings(make_recipe(), low, high).api_level == 28
    assert settings(make_recipe(build={"api_level": 30}), high).api_level == 30
    for level, named in ((27, "high_ops"), (24, "the lowest that runners are built for")):
        with pytest.raises(EtcliError, match=named) as caught:
            settings(make_recipe(build={"api_level": level}), low, high)
        assert caught.value.exit == ExitCode.USAGE
        assert [problem.code for problem in caught.value.problems] == ["build.api_level"]


@pytest.mark.known_failure("android-library-not-pushed", "android-two-cxx-runtimes")
def test_the_runtime_is_inside_a_lone_program_and_shared_by_several_libraries(make_recipe: Recipes) -> None:
    assert settings(make_recipe()).stl == "c++_static"
    assert settings(make_recipe(), shared=("libneuron_backend.so",)).stl == "c++_shared"
    assert settings(make_recipe(build={"stl": "c++_shared"})).stl == "c++_shared"
    with pytest.raises(
        EtcliError, match=r"several C.. runtimes: the programs' own and that of libneuron_backend"
    ) as caught:
        settings(make_recipe(build={"stl": "c++_static"}), shared=("libneuron_backend.so",))
    assert (caught.value.problems[0].code, caught.value.exit) == ("build.stl", ExitCode.USAGE)


def test_the_simulated_npu_is_not_for_phones(make_recipe: Recipes) -> None:
    export = {"backend": "neuron", "precision": "A16W8"}
    loaded = make_recipe(export=export, neuron={"platform": "mt6991", "sdk": "simulator"})
    with pytest.raises(EtcliError, match="there is none for target android") as caught:
        settings(loaded)
    assert (caught.value.problems[0].code, caught.value.exit) == ("build.simulator", ExitCode.USAGE)
    assert android_settings(loaded, load_targets()["host"]) is None


def configured(folder: Path, **env: str) -> str:
    argv = [cmake.find(), "--preset", "android", f"-DCMAKE_MAKE_PROGRAM={ninja.find()}"]
    clean = {name: value for name, value in os.environ.items() if name != "ANDROID_NDK"}
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, env={**clean, **env})
    shutil.rmtree(folder / "cmake-build", ignore_errors=True)
    assert done.returncode != 0
    return " ".join((done.stdout + done.stderr).split())


def test_the_project_alone_says_what_ndk_it_wants(render: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    rendered = render("27.2.12479018")
    for name, text in rendered.items():
        if name != "machine.cmake":
            (project / name).write_text(text)
    text = configured(project)
    assert (
        "there is no Android NDK: set the environment variable ANDROID_NDK to the folder of NDK r27c (27.2.12479018)"
        in text
    )
    assert "CMAKE_CXX_COMPILER" not in text  # nothing misleading after it
    other = make_ndk(tmp_path / "other", "26.3.11579264")
    assert f"this project is for NDK r27c (27.2.12479018), and {other} is 26.3.11579264" in configured(
        project, ANDROID_NDK=str(other)
    )
    # What is named and is none has nothing else taken in its place.
    (project / "machine.cmake").write_text(rendered["machine.cmake"])
    wrong = configured(project, ANDROID_NDK=str(tmp_path / "nowhere"))
    assert "there is no Android NDK" in wrong
    assert f"{tmp_path}/nowhere/build/cmake" in wrong
