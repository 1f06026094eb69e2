"""ExecuTorch compiled from a checkout: verified before anything starts, exactly what is needed compiled, kept under what decides it."""

from __future__ import annotations

import dataclasses
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from executorch_standin import git, standin_checkout

from etcli.common.errors import BuildError, EtcliError, ToolError
from etcli.output.console import Console
from etcli.tables.executorch import load_executorch
from etcli.tables.targets import known_target
from etcli.toolchain import compilers
from etcli.toolchain.executorch import Android, Wanted, check, find, first_step, host_package
from etcli.toolchain.executorch.flatc import host_flatc
from etcli.toolchain.executorch.prefix import read_installation
from etcli.toolchain.executorch.source import plan_source

HOST = known_target("host")
PARTS = ("runtime", "threadpool", "kernels_optimized", "backend_xnnpack")
XNNPACK = "backends/xnnpack/third-party/XNNPACK"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the stand-in, not to be changed."""
    return standin_checkout(tmp_path_factory.mktemp("checkout"), submodules=load_executorch().submodules(PARTS))


@pytest.fixture
def checkout(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, and a cache of this test's own."""
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    return Path(shutil.copytree(original, tmp_path / "executorch", symlinks=True))


def wanted(root: Path, **changes: object) -> Wanted:
    return dataclasses.replace(Wanted("source", root, components=PARTS, compiler=compilers.verify(HOST)), **changes)  # type: ignore[arg-type]


def codes(root: Path, **changes: object) -> list[str]:
    with pytest.raises(EtcliError) as caught:
        check(HOST, wanted(root, **changes))
    assert all(problem.hint for problem in caught.value.problems)
    return [problem.code for problem in caught.value.problems]


@pytest.mark.known_failure("build-debug-as-release")
def test_it_is_compiled_once_with_what_is_needed(checkout: Path, tmp_path: Path) -> None:
    want = wanted(checkout)
    assert first_step(HOST, want) == f"compile ExecuTorch from {checkout}"
    package = find(HOST, want)
    assert (package.provider, package.release, package.static) == ("source", host_package().release, True)
    assert package.commit == git(checkout, "rev-parse", "HEAD")
    found = read_installation(package.root)
    assert "xnnpack_backend" in found.targets
    assert "quantized_ops_lib" not in found.targets  # nothing needs it
    assert set(found.files) == {"RELEASE"}
    assert found.logging
    assert git(checkout, "status", "--porcelain") == ""
    # Nothing but the installation and locks is left.
    kept = {path.name for path in (tmp_path / "cache" / "executorch").iterdir() if path.suffix != ".lock"}
    assert kept == {package.root.name}

    stamp = (package.libraries / "libexecutorch.a").stat().st_mtime_ns
    assert first_step(HOST, want) is None
    assert find(HOST, want) == package
    assert (package.libraries / "libexecutorch.a").stat().st_mtime_ns == stamp


def test_what_decides_the_result_is_in_the_key(checkout: Path) -> None:
    ndk = Android(Path("/ndk"), "27.2.1", Path("/ndk/android.toolchain.cmake"), "arm64-v8a", 26, "c++_static")
    android = known_target("android")
    keys = [plan_source(HOST, wanted(checkout), checkout).key]
    keys.append(plan_source(HOST, wanted(checkout, components=("runtime",)), checkout).key)
    keys.append(plan_source(known_target("linux-aarch64"), wanted(checkout), checkout).key)
    for changes in ({}, {"revision": "28.0.1"}, {"api_level": 28}, {"stl": "c++_shared"}):
        settings = dataclasses.replace(ndk, **changes)  # type: ignore[arg-type]
        keys.append(plan_source(android, wanted(checkout, android=settings), checkout).key)
    (checkout / "executorch.cpp").write_text((checkout / "executorch.cpp").read_text() + "// changed\n")
    keys.append(plan_source(HOST, wanted(checkout), checkout).key)
    (checkout / "new.h").write_text("")
    keys.append(plan_source(HOST, wanted(checkout), checkout).key)
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "another")
    keys.append(plan_source(HOST, wanted(checkout), checkout).key)
    assert len(set(keys)) == len(keys)


def test_settings_for_android(checkout: Path) -> None:
    file = Path("/ndk/build/cmake/android.toolchain.cmake")
    options = (("ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES", "ON"),)
    ndk = Android(Path("/ndk"), "27.2.1", file, "arm64-v8a", 28, "c++_static", options)
    settings = plan_source(known_target("android"), wanted(checkout, android=ndk), checkout).settings
    assert settings["CMAKE_TOOLCHAIN_FILE"] == str(file)
    assert (settings["ANDROID_ABI"], settings["ANDROID_PLATFORM"], settings["ANDROID_STL"]) == (
        "arm64-v8a",
        "android-28",
        "c++_static",
    )
    assert settings["ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES"] == "ON"
    assert (settings["CMAKE_BUILD_TYPE"], settings["EXECUTORCH_ENABLE_LOGGING"]) == ("Release", "ON")
    assert settings["EXECUTORCH_BUILD_KERNELS_QUANTIZED_AOT"] == "OFF"


@pytest.mark.known_failure("executorch-submodules-missing")
def test_missing_submodules_are_told_with_the_command(checkout: Path) -> None:
    for path in (XNNPACK, "third-party/flatbuffers"):
        shutil.rmtree(checkout / path)
        (checkout / path).mkdir()
    with pytest.raises(ToolError) as caught:
        check(HOST, wanted(checkout))
    [problem] = caught.value.problems
    assert problem.code == "executorch.submodules"
    assert "third-party/flatbuffers" in problem.message
    assert f"submodule update --init --recursive {XNNPACK} third-party/flatbuffers" in str(problem.hint)
    # What this build does not compile may be absent.
    shutil.copytree(checkout / "third-party/json", checkout / "third-party/flatbuffers", dirs_exist_ok=True)
    check(HOST, wanted(checkout, components=("runtime",)))


def test_a_moved_submodule_is_warned_of(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / XNNPACK / "CMakeLists.txt").write_text("# another\n")
    git(checkout / XNNPACK, "commit", "-q", "-a", "-m", "another")
    find(HOST, wanted(checkout), Console())
    assert f"{XNNPACK} stands at another commit" in " ".join(capsys.readouterr().err.split())


def test_faults_of_a_checkout(checkout: Path, tmp_path: Path) -> None:
    assert codes(tmp_path / "none") == ["executorch.no_checkout"]
    renamed = checkout.rename(tmp_path / "executorch-1.5")
    assert codes(renamed) == ["executorch.folder_name"]
    renamed.rename(checkout)
    (checkout / "version.txt").write_text("0.4.0\n")
    shutil.rmtree(checkout / XNNPACK)
    (checkout / XNNPACK).mkdir()
    assert codes(checkout) == ["executorch.submodules"]
    shutil.rmtree(checkout / ".git")
    assert codes(checkout) == ["executorch.git"]


def test_an_older_release_is_refused_with_the_command(checkout: Path) -> None:
    (checkout / "version.txt").write_text("1.0.0a0\n")
    with pytest.raises(ToolError, match=r"is of ExecuTorch 1\.0\.0, and") as caught:
        check(HOST, wanted(checkout))
    assert f"checkout v{host_package().release}" in str(caught.value.problems[0].hint)


def test_what_cmake_says_is_kept_and_explained(checkout: Path) -> None:
    project = checkout / "CMakeLists.txt"
    text = project.read_text()
    project.write_text(text + 'message(FATAL_ERROR "the moon is in the wrong phase")\n')
    with pytest.raises(BuildError, match="the moon is in the wrong phase") as caught:
        find(HOST, wanted(checkout))
    [problem] = caught.value.problems
    assert problem.code == "executorch.configure"
    assert problem.file is not None
    assert "wrong phase" in problem.file.read_text()
    # Once put right it goes on, in the same tree where only a source was wrong.
    project.write_text(text)
    source = checkout / "cpuinfo.cpp"
    source.write_text("#error broken\n")
    with pytest.raises(BuildError, match="#error broken") as caught:
        find(HOST, wanted(checkout))
    assert caught.value.problems[0].code == "executorch.compile"
    git(checkout, "checkout", "-q", "cpuinfo.cpp")
    assert find(HOST, wanted(checkout)).provider == "source"


def _program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_flatc_is_this_machines_and_of_the_checkouts_version(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = checkout / "third-party/flatbuffers/include/flatbuffers/base.h"
    assert host_flatc(checkout) is None  # nothing is known of what it wants: the project builds its own
    header.parent.mkdir(parents=True)
    wheel = host_package().root / "data" / "bin" / "flatc"
    said = subprocess.run([wheel, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    lines = [
        f"#define FLATBUFFERS_VERSION_{word} {number}\n"
        for word, number in zip(("MAJOR", "MINOR", "REVISION"), said.split("."), strict=True)
    ]
    header.write_text("".join(lines))
    assert host_flatc(checkout) == wheel
    header.write_text("".join((*lines[:2], "#define FLATBUFFERS_VERSION_REVISION 9999\n")))
    assert host_flatc(checkout) is None
    header.write_text("".join(lines))
    own = _program(tmp_path / "flatc", f"#!/bin/sh\necho flatc version {said}\n")
    monkeypatch.setenv("FLATC_EXECUTABLE", str(own))
    assert host_flatc(checkout) == own
    _program(own, "#!/bin/sh\necho flatc version 1.2.3\n")
    with pytest.raises(ToolError, match=r"is version 1\.2\.3, and"):
        host_flatc(checkout)


@pytest.mark.known_failure("executorch-flatc-of-the-target")
def test_the_targets_flatc_is_refused(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flatc = tmp_path / "flatc"
    subprocess.run(
        ["aarch64-linux-gnu-g++", "-x", "c++", "-", "-o", flatc], input="int main() {}", text=True, check=True
    )
    monkeypatch.setenv("FLATC_EXECUTABLE", str(flatc))
    with pytest.raises(ToolError, match="is for EM_AARCH64, and runs here") as caught:
        check(HOST, wanted(checkout))
    assert [problem.code for problem in caught.value.problems] == ["executorch.flatc"]
