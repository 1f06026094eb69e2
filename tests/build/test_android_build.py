"""Whole builds for target android with a stand-in NDK and a stand-in ExecuTorch: found, configured, linked, audited, staged, and started."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from executorch_standin import CPU_OPERATORS, PRIM_OPERATORS, standin_prefix
from ndk_standin import StandIn, standin_ndk
from ndk_tree import write_revision
from operator_folders import TWICE, write_operators

from etcli.build import apps
from etcli.build.stage import BuildOptions, BuildResult, build
from etcli.cli import show
from etcli.common.errors import EtcliError, ExitCode
from etcli.common.workspace import Workspace
from etcli.manifests.build import StagedFile
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.toolchain import cmake, ninja, programs
from etcli.toolchain.elf import read_elf

pytestmark = pytest.mark.early

Builder = Callable[..., BuildResult]
Recipes = Callable[..., LoadedRecipe]
REVISION = "27.2.12479018"
ALWAYS = {*CPU_OPERATORS, *PRIM_OPERATORS, "etcli::ring_attention.out", "etcli::last_row.out"}
THREADED = """\
#include <executorch/extension/kernel_util/make_boxed_from_unboxed_functor.h>
using executorch::aten::Tensor;
static Tensor& twice(executorch::runtime::KernelRuntimeContext&, const Tensor& x, Tensor& out) {
  const float* from = x.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
#ifndef ETCLI_OPENMP
#error "compiled without OpenMP"
#endif
#pragma omp parallel for
  for (ssize_t i = 0; i < x.numel(); ++i) to[i] = 2 * from[i];
  return out;
}
EXECUTORCH_LIBRARY(shout, "twice.out", twice);
"""
WORK = """\
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <executorch/runtime/kernel/operator_registry.h>
const char* version();
static void refuse(const std::string& why) { throw std::runtime_error(why); }
int main() {
  version();
  std::thread([] {
    for (const auto& kernel : executorch::runtime::get_registered_kernels())
      if (std::string(kernel.name_) == "shout::twice.out") std::puts("twice");
  }).join();
  try {
    refuse("caught");
  } catch (const std::exception& error) {
    std::puts(error.what());
  }
}
"""
# What no test sees in its environment, read before the first begins.
REAL_NDK, REAL_BIONIC = os.environ.get("ANDROID_NDK", ""), os.environ.get("ETCLI_BIONIC_ROOT", "")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[StandIn, Path]:
    """The NDK, and an ExecuTorch that was compiled with it."""
    ndk = standin_ndk(tmp_path_factory.mktemp("ndk") / "ndk", REVISION)
    return ndk, standin_prefix(tmp_path_factory.mktemp("executorch"), arguments=ndk.arguments())


@pytest.fixture
def ndk(made: tuple[StandIn, Path], tmp_path: Path) -> StandIn:
    """One of this test's own, of the same files."""
    shutil.copytree(made[0].root, tmp_path / "ndk", symlinks=True)
    return StandIn(tmp_path / "ndk")


@pytest.fixture
def recipe(made: tuple[StandIn, Path], make_recipe: Recipes) -> Recipes:
    """Makes a recipe for target android with the stand-in for ExecuTorch; keywords are keys of `build`."""

    def make(**build: object) -> LoadedRecipe:
        build = {"target": "android", "executorch": {"from": "prefix", "root": str(made[1])}, **build}
        return make_recipe(build=build)

    return make


def staged(result: BuildResult) -> dict[str, StagedFile]:
    assert result.manifest is not None
    return {file.path: file for file in result.manifest.stage}


def listed(ndk: StandIn, program: Path) -> list[str]:
    done = ndk.run(program)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_dry_run_says_what_it_would_build_with(
    builder: Builder,
    recipe: Recipes,
    ndk: StandIn,
    made: tuple[StandIn, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ANDROID_NDK_HOME", str(ndk.root))
    result = builder("android", recipe=recipe(), dry_run=True)
    show.built(Console(verbosity=-1), result)
    said = capsys.readouterr().out
    assert [chosen.root for chosen in result.uses] == [ndk.root, made[1]]
    for chosen in result.uses:
        assert "".join(chosen.line.split()) in "".join(said.split())  # a terminal breaks the lines
    assert "named by $ANDROID_NDK_HOME" in result.uses[0].why
    assert "build.executorch says from: prefix" in result.uses[1].why


def test_from_nothing_to_a_stage_that_starts(
    builder: Builder, recipe: Recipes, ndk: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = builder("android", recipe=recipe(), ndk=ndk.root)
    manifest = result.manifest
    assert manifest is not None
    assert (manifest.ndk, manifest.api_level, manifest.stl) == (REVISION, 26, "c++_static")
    assert (manifest.machine, manifest.build_type, manifest.executorch_provider) == ("EM_AARCH64", "Release", "prefix")
    assert "clang" in manifest.compiler
    # Each program is alone: ExecuTorch and the C++ runtime are inside.
    files = staged(result)
    assert sorted(files) == ["list_backends", "list_kernels"]
    for file in files.values():
        elf = file.elf
        assert elf is not None
        assert elf.interpreter == "/system/bin/linker64"
        assert set(elf.needed) <= {"libc.so", "libm.so", "libdl.so", "liblog.so", "libandroid.so"}
        assert elf.load_alignment == 16384
        assert elf.run_path == "$ORIGIN"
    assert set(manifest.operators) == ALWAYS
    assert manifest.backends == ("XnnpackBackend",)
    moved = (result.folder / "stage").rename(tmp_path / "elsewhere")
    assert sorted(listed(ndk, moved / "list_kernels")) == list(manifest.operators)
    assert listed(ndk, moved / "list_backends") == ["XnnpackBackend"]
    moved.rename(result.folder / "stage")
    assert builder("android", recipe=recipe(), ndk=ndk.root).current
    show.built(Console(), result)
    assert f"NDK {REVISION}: Android API level 26 and above, c++_static" in capsys.readouterr().out


@pytest.mark.known_failure("android-libcxx-of-another-ndk")
def test_another_ndk_or_another_runtime_is_a_build_from_nothing(
    builder: Builder, recipe: Recipes, ndk: StandIn
) -> None:
    builder("android", recipe=recipe(ndk=str(ndk.root)), configure_only=True)
    write_revision(ndk.root, "27.3.13750724")
    [first, *_] = builder("android", recipe=recipe(ndk=str(ndk.root)), dry_run=True).plan
    assert first.startswith("remove the build tree: ")
    assert f"NDK changed from r27c {REVISION} ({ndk.root}) to r27d 27.3.13750724 ({ndk.root})" in first
    write_revision(ndk.root, REVISION)
    [first, *_] = builder("android", recipe=recipe(stl="c++_shared", api_level=28), ndk=ndk.root, dry_run=True).plan
    assert "API level changed from 26 to 28" in first
    assert "C++ runtime changed from c++_static to c++_shared" in first


def of_revision(folder: Path, revision: str) -> StandIn:
    """Another stand-in: that of r26 makes segments for pages of 4 KiB and that of r28 for 16 KiB, where nothing else is said."""
    return standin_ndk(folder / "other", revision)


@pytest.mark.known_failure("android-library-not-pushed")
def test_a_shared_runtime_goes_with_the_programs(builder: Builder, recipe: Recipes, tmp_path: Path) -> None:
    ndk = of_revision(tmp_path, "28.2.13676358")
    result = builder("android", recipe=recipe(stl="c++_shared"), ndk=ndk.root)
    files = staged(result)
    assert sorted(files) == ["libc++_shared.so", "list_backends", "list_kernels"]
    assert "list_kernels" in files["libc++_shared.so"].reason
    assert {file.elf.load_alignment for file in files.values() if file.elf is not None} == {16384}
    assert set(listed(ndk, result.folder / "stage" / "list_kernels")) == ALWAYS


def write_app_libraries(native: Path) -> None:
    """A C interface of one function that throws and catches, and a binding that calls it."""
    interface, binding = native / "capi", native / "jni"
    files = {
        interface / "library.yaml": (
            "library: etcli_runner\nsources: [interface.cpp]\nexports: exports.map\nheaders: [etcli_runner.h]\n"
            "includes: [capi]\nsystem: {android: [log]}\n"
        ),
        interface / "etcli_runner.h": '#define ETCLI_RUNNER_API 1\nextern "C" int etcli_runner_try(int);\n',
        interface / "interface.cpp": (
            '#include "etcli_runner.h"\n#include <stdexcept>\n#include <string>\nconst char* version();\n'
            '__attribute__((visibility("default"))) int etcli_runner_try(int n) {\n'
            "  try { if (n) throw std::runtime_error(std::string(version())); }\n"
            "  catch (const std::exception& error) { return error.what()[0]; }\n  return 0;\n}\n"
        ),
        interface / "exports.map": "{ global: etcli_runner_*; local: *; };\n",
        binding / "library.yaml": (
            "library: etcli_runner_jni\nsources: [binding.cpp]\nexports: exports.map\nfunctions: [JNI_OnLoad]\nincludes: [capi]\n"
        ),
        binding / "binding.cpp": (
            '#include "etcli_runner.h"\n#include <vector>\nextern "C" __attribute__((visibility("default"))) int JNI_OnLoad(void*) {\n'
            "  return std::vector<int>(3, etcli_runner_try(1)).at(2);\n}\n"
        ),
        binding / "exports.map": "{ global: JNI_OnLoad; local: *; };\n",
    }
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


@pytest.mark.known_failure("android-two-cxx-runtimes")
def test_libraries_for_an_app_share_one_runtime(
    builder: Builder, recipe: Recipes, ndk: StandIn, native: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_app_libraries(native)
    monkeypatch.setattr(apps, "asset_dir", {"native": native}.__getitem__)
    result = builder("android", recipe=recipe(), ndk=ndk.root, library=True)
    assert result.manifest is not None
    assert result.manifest.stl == "c++_shared"
    files = staged(result)
    assert {"libetcli_runner.so", "libetcli_runner_jni.so", "libc++_shared.so"} < set(files)
    for name in ("libetcli_runner.so", "libetcli_runner_jni.so"):
        elf = files[name].elf
        assert elf is not None
        assert "libc++_shared.so" in elf.needed
        assert elf.load_alignment == 16384
    with pytest.raises(
        EtcliError, match=r"several C.. runtimes: .* libetcli_runner.so, libetcli_runner_jni.so"
    ) as caught:
        builder("android", recipe=recipe(stl="c++_static"), ndk=ndk.root, library=True)
    assert caught.value.exit == ExitCode.USAGE


def build_component(
    builder: Builder, recipe: Recipes, native: Path, tmp_path: Path, ndk: Path, **build: object
) -> BuildResult:
    """A build with an operator library that uses OpenMP, and a program that uses threads and exceptions."""
    write_operators(tmp_path / "ops", source=THREADED, more="openmp: true\n")
    sources = native / "runner" / "sources.yaml"
    sources.write_text(sources.read_text().replace("programs:\n", "programs:\n  work: work.cpp\n"))
    (native / "runner" / "work.cpp").write_text(WORK)
    return builder("android", recipe=recipe(openmp="static", custom_ops=("./ops",), **build), ndk=ndk)


def check_component(result: BuildResult) -> None:
    """Each program is alone and finds all it needs on a phone."""
    files = staged(result)
    assert sorted(files) == ["list_backends", "list_kernels", "work"]
    for file in files.values():
        assert file.elf is not None
        assert not [name for name in file.elf.needed if "omp" in name or "c++" in name]
        assert file.elf.load_alignment == 16384
        assert file.elf.run_path == "$ORIGIN"  # clang adds a folder of its own, where it is not told otherwise
    assert result.manifest is not None
    assert "shout::twice.out" in result.manifest.operators


@pytest.mark.known_failure("openmp-library-not-found", "openmp-host-run-path", "android-16-kb-pages")
def test_openmp_threads_and_exceptions_are_inside_the_programs(
    builder: Builder, recipe: Recipes, native: Path, tmp_path: Path
) -> None:
    ndk = of_revision(tmp_path, "26.3.11579264")
    result = build_component(builder, recipe, native, tmp_path, ndk.root)
    check_component(result)
    assert listed(ndk, result.folder / "stage" / "work") == ["twice", "caught"]
    assert "shout::twice.out" in listed(ndk, result.folder / "stage" / "list_kernels")


@pytest.fixture
def real(tmp_path: Path) -> tuple[Path, Callable[[int], Path]]:
    """A real NDK, and what compiles the stand-in for ExecuTorch with it for an API level."""
    root = Path(REAL_NDK).absolute()

    def executorch(api_level: int) -> Path:
        return standin_prefix(tmp_path / "executorch", arguments=StandIn(root).arguments(api_level))

    return root, executorch


@pytest.mark.needs_ndk
@pytest.mark.parametrize("api_level", [26, 28])
def test_a_component_with_a_real_ndk(
    builder: Builder,
    recipe: Recipes,
    native: Path,
    tmp_path: Path,
    real: tuple[Path, Callable[[int], Path]],
    api_level: int,
) -> None:
    root, executorch = real
    prefix = {"from": "prefix", "root": str(executorch(api_level))}
    check_component(build_component(builder, recipe, native, tmp_path, root, api_level=api_level, executorch=prefix))
    shared = builder("android", recipe=recipe(stl="c++_shared", api_level=api_level, executorch=prefix), ndk=root)
    assert "libc++_shared.so" in staged(shared)


@pytest.mark.needs_ndk
@pytest.mark.needs_bionic
@pytest.mark.parametrize("api_level", [26, 28])
def test_a_component_with_a_real_ndk_runs(
    builder: Builder,
    recipe: Recipes,
    native: Path,
    tmp_path: Path,
    real: tuple[Path, Callable[[int], Path]],
    api_level: int,
) -> None:
    root, executorch = real
    prefix = {"from": "prefix", "root": str(executorch(api_level))}
    result = build_component(builder, recipe, native, tmp_path, root, api_level=api_level, executorch=prefix)
    argv = ["qemu-aarch64-static", "-L", REAL_BIONIC, result.folder / "stage" / "work"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (0, ["twice", "caught"]), done.stderr


@pytest.mark.known_failure("android-function-of-a-later-api")
def test_an_operator_that_needs_a_newer_android_raises_the_level(
    builder: Builder, recipe: Recipes, ndk: StandIn, tmp_path: Path
) -> None:
    write_operators(tmp_path / "ops", source=TWICE, more="api_level: 28\n")
    folder = builder("android", recipe=recipe(custom_ops=("./ops",)), ndk=ndk.root, configure_only=True).folder
    assert '"ANDROID_PLATFORM": "android-28"' in (folder / "CMakePresets.json").read_text()
    with pytest.raises(EtcliError, match="no libraries for API level 29") as caught:
        builder("android", recipe=recipe(api_level=29), ndk=ndk.root)
    assert caught.value.exit == ExitCode.ENVIRONMENT


@pytest.mark.known_failure("operators-registered-twice")
def test_a_source_that_registers_its_operator_twice_is_warned_of(
    builder: Builder, recipe: Recipes, ndk: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No program for Android starts here, and the linked file has the name once."""
    write_operators(tmp_path / "ops", source=TWICE)
    builder("android", recipe=recipe(custom_ops=("./ops",)), ndk=ndk.root, console=Console())
    assert "register_kernels" not in capsys.readouterr().err
    write_operators(tmp_path / "ops", source=TWICE + 'EXECUTORCH_LIBRARY(shout, "twice.out", twice);\n')
    builder("android", recipe=recipe(custom_ops=("./ops",)), ndk=ndk.root, console=Console())
    told = " ".join(capsys.readouterr().err.split())
    assert "calls register_kernels 2 times in a source that names shout::twice.out" in told


@pytest.mark.full
def test_every_source_of_ours_compiles_for_android(
    recipe: Recipes, ndk: StandIn, make_recipe: Recipes, tmp_path: Path
) -> None:
    """Delegate, operators with OpenMP and the runner; they are not linked, since the stand-in for ExecuTorch runs no program."""
    executorch = recipe().recipe.build.executorch.model_dump(by_alias=True)
    loaded = make_recipe(
        export={"backend": "neuron", "precision": "A16W8"},
        neuron={"platform": "mt6991"},
        build={"target": "android", "openmp": "static", "custom_ops": ("aqlm",), "executorch": executorch},
    )
    options = BuildOptions("android", ndk=ndk.root, configure_only=True)
    folder = build(loaded, Workspace(tmp_path / "ws", "small"), options, Console(verbosity=-1)).folder
    argv = [
        cmake.find(),
        "--build",
        "--preset",
        "android",
        "--target",
        "etcli_runner",
        "etcli_attention",
        "etcli_aqlm_ops",
        "etcli_neuron",
    ]
    done = subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, env={**os.environ, "ANDROID_NDK": str(ndk.root)}
    )
    assert done.returncode == 0, done.stdout
    assert "warning:" not in done.stdout
    commands = (folder / "cmake-build" / "compile_commands.json").read_text()
    assert "-march=armv8.2-a+dotprod+fp16" in commands  # mt6991 has it


def test_the_project_works_without_etcli(builder: Builder, recipe: Recipes, ndk: StandIn, tmp_path: Path) -> None:
    rendered = builder("android", recipe=recipe(), ndk=ndk.root, configure_only=True).folder
    path = os.pathsep.join((str(cmake.find().parent), str(ninja.find().parent), "/usr/bin", "/bin"))
    for name, env in (("variable", {"ANDROID_NDK": str(ndk.root)}), ("machine", {})):
        project = tmp_path / name
        project.mkdir()
        for file in ("CMakeLists.txt", "CMakePresets.json", "machine.cmake"):
            shutil.copy(rendered / file, project)
        if env:  # as on another machine, which has its own
            text = (project / "machine.cmake").read_text()
            (project / "machine.cmake").write_text("".join(line for line in text.splitlines(True) if "NDK" not in line))
        steps = [["cmake", "--preset", "android"]]
        if env:
            steps += [
                ["cmake", "--build", "--preset", "android"],
                ["cmake", "--install", "cmake-build", "--prefix", "out", "--strip"],
            ]
        for argv in steps:
            done = subprocess.run(argv, cwd=project, capture_output=True, text=True, env={"PATH": path, **env})
            assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "variable" / "out"
    assert read_elf(out / "list_kernels").run_path == "$ORIGIN"
    assert set(listed(ndk, out / "list_kernels")) == ALWAYS


@pytest.mark.known_failure("android-missing-one-by-one")
def test_all_that_is_missing_is_told_at_once(
    builder: Builder, make_recipe: Recipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(name: str, path: str | None = None) -> None:
        return None

    monkeypatch.setattr(programs.shutil, "which", nowhere)
    with pytest.raises(EtcliError) as caught:
        builder("android", recipe=make_recipe(build={"target": "android"}))
    assert caught.value.exit == ExitCode.ENVIRONMENT
    found = {problem.code for problem in caught.value.problems}
    assert found == {"ndk.missing", "executorch.not_provided", "cmake.missing", "ninja.missing"}
    assert all(problem.hint for problem in caught.value.problems)
