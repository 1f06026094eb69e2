"""The aarch64 build of the real runner, and the generated project used without etcli."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from etcli.build.stage import BuildOptions, BuildResult, build
from etcli.common.assets import asset_dir
from etcli.common.workspace import Workspace
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.targets import load_targets
from etcli.toolchain import cmake, ninja, qemu
from etcli.toolchain.elf import read_elf
from etcli.toolchain.executorch import wheel_for

Builder = Callable[..., BuildResult]
Recipes = Callable[..., LoadedRecipe]
TARGET = load_targets()["linux-aarch64"]


def emulated(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [qemu.find(TARGET), "-L", str(TARGET.sysroot), program, *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120)


def test_the_runner_for_aarch64(make_recipe: Recipes, tmp_path: Path) -> None:
    loaded = make_recipe()
    options = BuildOptions("linux-aarch64", library=True)
    result = build(loaded, Workspace(tmp_path / "ws", "small"), options, Console(verbosity=-1))
    manifest = result.manifest
    assert manifest is not None
    assert manifest.machine == "EM_AARCH64"
    assert manifest.executorch_provider == "wheel:manylinux_2_28_aarch64"
    assert manifest.backends == ("XnnpackBackend",)
    assert {"aten::add.out", "aten::sym_size.int", "executorch_prim::et_view.default"} <= set(manifest.operators)
    assert {"etcli::ring_attention.out", "etcli::last_row.out"} <= set(manifest.operators)
    staged = {file.path: file.elf for file in manifest.stage}
    assert {"etcli_llama_runner", "etcli_executor_runner"} <= set(staged)
    for elf in staged.values():
        assert elf is not None
        assert elf.machine == "EM_AARCH64"
        assert elf.load_alignment >= 65536
    version = emulated(result.folder / "stage" / "etcli_llama_runner", "--version")
    assert version.returncode == 0
    assert "1.5.1" in version.stdout

    # The library for apps stands beside it, and an app in C that was linked with it alone loads it.
    library, client = result.folder / "library", tmp_path / "client"
    libraries = library / "jniLibs" / "arm64-v8a"
    source = asset_dir("native") / "capi" / "tests" / "client.c"
    flags = ["-std=c99", "-D_POSIX_C_SOURCE=200809L", f"-I{library / 'include'}", f"-L{libraries}", "-pthread"]
    linked = ["-letcli_runner", f"-Wl,-rpath,{libraries}", f"-Wl,-rpath-link,{libraries}"]
    subprocess.run([TARGET.compiler.c[0], *flags, source, *linked, "-o", client], check=True)
    refused = emulated(client, str(tmp_path / "absent.cfg"), "1")
    assert refused.returncode == 1
    api, load = refused.stdout.splitlines()
    assert api.startswith("api 2 of 2, ")
    assert (load, refused.stderr) == (
        "load 3 runner.file",
        f"cannot open {tmp_path / 'absent.cfg'}: No such file or directory\n",
    )

    # Only machine.cmake holds paths of this machine.
    paths = [str(tmp_path), str(asset_dir("native")), str(wheel_for(TARGET).root), str(ninja.find())]
    machine = (result.folder / "machine.cmake").read_text()
    assert all(path in machine for path in paths[1:])
    for name in ("CMakeLists.txt", "CMakePresets.json", "toolchain.cmake"):
        text = (result.folder / name).read_text()
        assert not [path for path in paths if path in text], name


def test_the_project_works_without_etcli(builder: Builder, tmp_path: Path) -> None:
    rendered = builder("linux-aarch64", configure_only=True).folder
    project = tmp_path / "mine"
    project.mkdir()
    for path in rendered.iterdir():
        if (path.is_file() and path.suffix != ".json") or path.name == "CMakePresets.json":
            shutil.copy(path, project)
    assert sorted(path.name for path in project.iterdir()) == [
        "CMakeLists.txt",
        "CMakePresets.json",
        "machine.cmake",
        "toolchain.cmake",
    ]
    for arguments in (
        ["--preset", "linux-aarch64"],
        ["--build", "--preset", "linux-aarch64"],
        ["--install", "cmake-build", "--prefix", "out", "--strip"],
    ):
        done = subprocess.run([cmake.find(), *arguments], cwd=project, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    # In the build tree a program finds its libraries where they were linked, in the installed folder beside itself.
    assert read_elf(project / "out" / "list_kernels").run_path == "$ORIGIN"
    assert "aten::add.out" in emulated(project / "out" / "list_kernels").stdout.split()
    assert emulated(project / "out" / "list_backends").stdout.split() == ["XnnpackBackend"]

    # Without machine.cmake it says what another machine has to give.
    (project / "machine.cmake").unlink()
    shutil.rmtree(project / "cmake-build")
    argv = [cmake.find(), "--preset", "linux-aarch64", f"-DCMAKE_MAKE_PROGRAM={ninja.find()}"]
    done = subprocess.run(argv, cwd=project, capture_output=True, text=True)
    assert done.returncode != 0
    assert "executorch_DIR names no folder" in " ".join(done.stderr.split())
