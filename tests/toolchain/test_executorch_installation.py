"""An installation of ExecuTorch is read back and compared with what a build needs; every fault is told, with what to do."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from executorch_standin import standin_prefix

from etcli.common.errors import ToolError
from etcli.output.console import Console
from etcli.tables.executorch import load_executorch
from etcli.tables.targets import known_target
from etcli.toolchain.compilers import Compiler
from etcli.toolchain.executorch import Android, Wanted, check, find, host_package
from etcli.toolchain.executorch.prefix import read_installation

HOST = known_target("host")
ALL = ("runtime", "threadpool", "kernels_optimized", "kernels_quantized", "backend_xnnpack")
TARGETS = "lib/cmake/ExecuTorch/ExecuTorchTargets.cmake"
VERSION = "include/executorch/runtime/core/version.h"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in for this machine, not to be changed."""
    return standin_prefix(tmp_path_factory.mktemp("executorch"))


@pytest.fixture
def prefix(installed: Path, tmp_path: Path) -> Path:
    """A copy of it, to be broken."""
    return Path(shutil.copytree(installed, tmp_path / "prefix"))


def wanted(root: Path | None, **changes: object) -> Wanted:
    return dataclasses.replace(Wanted("prefix", root, components=ALL), **changes)  # type: ignore[arg-type]


def codes(root: Path, **changes: object) -> list[str]:
    with pytest.raises(ToolError) as caught:
        check(HOST, wanted(root, **changes))
    assert all(problem.hint and problem.exit_code == 3 for problem in caught.value.problems)
    return [problem.code.removeprefix("executorch.") for problem in caught.value.problems]


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_good_one(installed: Path) -> None:
    package = find(HOST, wanted(installed))
    assert (package.release, package.provider, package.static) == (host_package().release, "prefix", True)
    assert package.program_identifier() == host_package().program_identifier()
    assert (package.cmake_dir / "executorch-config.cmake").is_file()
    assert package.libraries / "libexecutorch_core.a" in package.library_files()
    found = read_installation(installed)
    assert found.logging
    assert set(found.files) == {"RELEASE"}
    assert {target for name in ALL for target in load_executorch().components[name].targets} <= found.targets


def _older(prefix: Path) -> None:
    replaced(prefix / VERSION, f'"{host_package().release}"', '"1.0.3"')


def _without_version(prefix: Path) -> None:
    (prefix / VERSION).unlink()


def _other_program(prefix: Path) -> None:
    library = prefix / "lib" / "libexecutorch_core.a"
    library.write_bytes(library.read_bytes().replace(b"ET12\0", b"ET99\0"))


def _no_program(prefix: Path) -> None:
    library = prefix / "lib" / "libexecutorch_core.a"
    library.write_bytes(library.read_bytes().replace(b"ET12\0", b"text\0"))


def _without_xnnpack(prefix: Path) -> None:
    replaced(prefix / TARGETS, "add_library(xnnpack_backend STATIC IMPORTED)", "")


def _without_file(prefix: Path) -> None:
    (prefix / "lib" / "libquantized_ops_lib.a").unlink()


def _empty_library(prefix: Path) -> None:
    (prefix / "lib" / "libquantized_ops_lib.a").write_bytes(b"!<arch>\n")


def _debug(prefix: Path) -> None:
    path = prefix / "lib/cmake/ExecuTorch/ExecuTorchTargets-release.cmake"
    text = path.read_text().replace("_RELEASE", "_DEBUG").replace("RELEASE", "DEBUG")
    path.with_name("ExecuTorchTargets-debug.cmake").write_text(text)
    path.unlink()


@pytest.mark.parametrize(
    ("breaks", "code", "words"),
    [
        (_older, "version", "is 1.0.3, and"),
        (_without_version, "version", "does not say its version"),
        (_other_program, "program", "programs of format ET99, and this Python's exports ET12"),
        (_no_program, "broken", "does not say which format"),
        (_without_xnnpack, "component", "has no xnnpack_backend, which backend_xnnpack needs"),
        (_without_file, "component", "lacks lib/libquantized_ops_lib.a"),
        (_empty_library, "archive.invalid", "libquantized_ops_lib.a is empty: it holds no object"),
        (_debug, "debug", "was built as debug"),
    ],
)
def test_a_fault(prefix: Path, breaks: Callable[[Path], None], code: str, words: str) -> None:
    breaks(prefix)
    assert codes(prefix) == [code]
    with pytest.raises(ToolError, match=re.escape(words)):
        check(HOST, wanted(prefix))


def test_what_would_bring_a_component_is_told(prefix: Path) -> None:
    _without_xnnpack(prefix)
    with pytest.raises(ToolError) as caught:
        check(HOST, wanted(prefix))
    assert "-DEXECUTORCH_BUILD_XNNPACK=ON" in str(caught.value.problems[0].hint)
    check(HOST, wanted(prefix, components=("runtime", "kernels_optimized")))  # who does not need it, does not miss it


@pytest.mark.known_failure("executorch-part-not-installed")
def test_every_fault_is_told_at_once(prefix: Path) -> None:
    for breaks in (_older, _other_program, _without_xnnpack, _debug):
        breaks(prefix)
    assert codes(prefix) == ["version", "debug", "component", "program"]


def test_one_for_another_machine(installed: Path) -> None:
    with pytest.raises(ToolError, match="EM_X86_64, linux-aarch64 needs EM_AARCH64") as caught:
        check(known_target("linux-aarch64"), wanted(installed))
    assert [problem.code for problem in caught.value.problems] == ["executorch.machine"]


def test_a_newer_one_does(prefix: Path) -> None:
    replaced(prefix / VERSION, f'"{host_package().release}"', f'"{host_package().release.split(".")[0]}.99.0"')
    assert find(HOST, wanted(prefix)).release.endswith(".99.0")


def test_one_without_log_messages_is_warned_of(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replaced(
        prefix / TARGETS, '"C10_USING_CUSTOM_GENERATED_MACROS"', '"C10_USING_CUSTOM_GENERATED_MACROS;ET_LOG_ENABLED=0"'
    )
    find(HOST, wanted(prefix), Console())
    assert "EXECUTORCH_ENABLE_LOGGING" in " ".join(capsys.readouterr().err.split())


def _android(**changes: object) -> Android:
    settings = Android(Path("/ndk"), "27.2.1", Path("/ndk/android.toolchain.cmake"), "arm64-v8a", 26, "c++_static")
    return dataclasses.replace(settings, **changes)  # type: ignore[arg-type]


def test_its_cache_tells_the_api_level(prefix: Path) -> None:
    """ExecuTorch's own scripts install into the build tree, whose cache says what it was configured with."""
    (prefix / "CMakeCache.txt").write_text("ANDROID_PLATFORM:STRING=android-30\n")
    assert codes(prefix, android=_android()) == ["api_level"]
    check(HOST, wanted(prefix, android=_android(api_level=30)))


@pytest.mark.known_failure("android-libcxx-of-another-ndk")
def test_another_ndks_clang_is_told_by_the_objects(tmp_path: Path) -> None:
    root = standin_prefix(tmp_path, arguments=["-DCMAKE_CXX_COMPILER=clang++"], without=[*_LATER])
    facts = {"components": ("runtime",), "android": _android()}
    ours = Compiler(Path("/clang++"), "clang", "99.0.1", "aarch64-linux-android", "clang version 99.0.1", "")
    assert codes(root, compiler=ours, **facts) == ["other_ndk"]


def test_an_installation_for_linux_is_none_for_android(installed: Path) -> None:
    ours = Compiler(Path("/clang++"), "clang", "18.0.1", "aarch64-linux-android", "clang version 18.0.1", "")
    assert codes(installed, compiler=ours, android=_android()) == ["machine"]
    check(HOST, wanted(installed, compiler=ours))


_LATER = (
    "xnnpack_backend",
    "quantized_ops_lib",
    "quantized_kernels",
    "optimized_native_cpu_ops_lib",
    "optimized_kernels",
)


@pytest.mark.parametrize(
    ("files", "inside", "words"),
    [
        (["share/cmake/executorch-config.cmake"], "", "from: wheel"),
        (["version.txt"], "", "from: source"),
        (
            ["version.txt", "cmake-out/lib/cmake/ExecuTorch/executorch-config.cmake"],
            "",
            "cmake-out, which holds an installation",
        ),
        (["lib/cmake/ExecuTorch/executorch-config.cmake"], "lib/cmake/ExecuTorch", "Name {root}."),
        ([], "", "CMAKE_INSTALL_PREFIX"),
    ],
)
def test_a_folder_without_one(tmp_path: Path, files: list[str], inside: str, words: str) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    with pytest.raises(ToolError) as caught:
        read_installation(tmp_path / inside)
    [problem] = caught.value.problems
    assert problem.code == "executorch.no_prefix"
    assert words.format(root=tmp_path) in str(problem.hint)
