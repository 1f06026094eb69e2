"""Failures made with the tools themselves, so that what is known of their messages is what they say: clang with lld, GCC with GNU ld, CMake."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from etcli.tables.build_errors import explain_build
from etcli.toolchain import cmake
from etcli.toolchain.build_failures import compile_errors, configure_errors, failure

CLANG = ("clang++", "--target=aarch64-linux-gnu", "-fuse-ld=lld")
GCC = ("aarch64-linux-gnu-g++",)
BOTH = (CLANG, GCC)
NEON = "#include <arm_neon.h>\nint32x4_t f(int32x4_t a, int8x16_t b) { return vdotq_s32(a, b, b); }\n"
NOWHERE = 'extern int gone __asm__("{}"); int f() {{ return gone; }}\n'

CASES = [
    ("ndk_too_old", BOTH, "int x;", ("-march=armv8.2-a+later",)),
    ("ndk_too_old", BOTH, "int x;", ("-march=armv8.99-a",)),
    ("ndk_too_old", BOTH, "int x;", ("-mcpu=cortex-a9999",)),
    ("target_feature", BOTH, NEON, ("-march=armv8-a",)),
    ("exceptions", BOTH, "void f() { throw 1; }", ("-fno-exceptions",)),
    (
        "exceptions",
        BOTH,
        "#include <typeinfo>\nstruct A { virtual ~A(); }; bool f(A& a) { return typeid(a) == typeid(A); }",
        ("-fno-rtti",),
    ),
    ("aot_library", BOTH, "#include <torch/library.h>\n", ()),
    ("executorch_header", BOTH, "#include <executorch/extension/module/module.h>\n", ()),
    ("submodules_header", BOTH, "#include <gflags/gflags.h>\n", ()),
    ("static_openmp_gcc", (GCC,), "int x;", ("-static-openmp",)),
    ("openmp_not_static", BOTH, "int main() {}", ("-lomp",)),
    ("executorch_option", BOTH, "int main() {}", ("-lextension_runner_util",)),
    ("executorch_kernels", BOTH, "int main() {}", ("-lxnnpack_backend",)),
    ("library_not_found_by_linker", BOTH, "int main() {}", ("-lpthreadpool",)),
    ("openmp_not_linked", (GCC,), 'extern "C" void GOMP_parallel(); int main() { GOMP_parallel(); }', ()),
    ("openmp_not_linked", (CLANG,), 'extern "C" void __kmpc_fork_call(); int main() { __kmpc_fork_call(); }', ()),
    (
        "aligned_alloc",
        BOTH,
        NOWHERE.format("aligned_alloc") + "int main() { return f(); }",
        ("-nostdlib", "-Wl,-e,main"),
    ),
    ("libcxx_mixed", BOTH, NOWHERE.format("_ZNSt6__ndk14coutE") + "int main() { return f(); }", ()),
    (
        "executorch_module",
        BOTH,
        "namespace executorch { namespace extension { struct Module { void execute(); }; } }\n"
        "int main() { executorch::extension::Module m; m.execute(); }",
        (),
    ),
    (
        "neuron_allocator_era",
        BOTH,
        "struct BufferAllocator { static BufferAllocator& GetInstance(); };\nint main() { BufferAllocator::GetInstance(); }",
        (),
    ),
]


@pytest.mark.parametrize(
    ("name", "tools", "text", "flags"), CASES, ids=[f"{case[0]}-{index}" for index, case in enumerate(CASES)]
)
def test_what_compilers_and_linkers_say(
    name: str, tools: tuple[tuple[str, ...], ...], text: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    source = tmp_path / "a.cpp"
    source.write_text(text)
    links = "main" in text
    for tool in tools:
        argv = [*tool, *(() if links else ("-c",)), str(source), "-o", str(tmp_path / "a.out"), *flags]
        done = subprocess.run(argv, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
        assert done.returncode != 0, argv
        lines = done.stderr.splitlines()
        found = explain_build(lines)
        assert found is not None, done.stderr
        assert found.id == name, done.stderr
        assert failure("x", lines, compile_errors(lines)).message.startswith(f"x: {found.cause}:\n"), done.stderr


def test_what_stands_twice(tmp_path: Path) -> None:
    text = "namespace executorch { namespace runtime { int register_kernels() { return 0; } } } void* operator new(unsigned long) { return 0; }"
    for tool in BOTH:
        for name, first in (
            ("executorch_twice", text.partition("void*")[0]),
            ("cxx_runtime_twice", "void*" + text.partition("void*")[2]),
        ):
            for file in ("a", "b"):
                (tmp_path / f"{file}.cpp").write_text(first)
            argv = [
                *tool,
                "-shared",
                "-fPIC",
                str(tmp_path / "a.cpp"),
                str(tmp_path / "b.cpp"),
                "-o",
                str(tmp_path / "x.so"),
            ]
            done = subprocess.run(argv, capture_output=True, text=True)
            found = explain_build(done.stderr.splitlines())
            assert found is not None, done.stderr
            assert found.id == name, done.stderr


def test_what_is_for_another_machine_or_not_position_independent(tmp_path: Path) -> None:
    source = tmp_path / "a.cpp"
    source.write_text("extern int x; int* f() { return &x; } int x;")
    for tool in BOTH:
        subprocess.run(["g++", "-c", str(source), "-o", str(tmp_path / "host.o")], check=True)
        done = subprocess.run(
            [*tool, "-shared", str(tmp_path / "host.o"), "-o", str(tmp_path / "x.so")], capture_output=True, text=True
        )
        assert explain_build(done.stderr.splitlines()).id == "linked_machine", done.stderr  # type: ignore[union-attr]
        subprocess.run([*tool, "-c", "-fno-pic", str(source), "-o", str(tmp_path / "a.o")], check=True)
        done = subprocess.run(
            [*tool, "-shared", str(tmp_path / "a.o"), "-o", str(tmp_path / "x.so")], capture_output=True, text=True
        )
        assert explain_build(done.stderr.splitlines()).id == "not_pic", done.stderr  # type: ignore[union-attr]


@pytest.mark.known_failure(
    "android-toolchain-file-missing",
    "executorch-submodules-missing",
    "executorch-package-not-found",
    "neuron-imported-location",
)
@pytest.mark.parametrize(
    ("name", "text", "arguments"),
    [
        ("toolchain_file", "project(x CXX)", ("-DCMAKE_TOOLCHAIN_FILE=/nowhere/build/cmake/android.toolchain.cmake",)),
        ("submodules", "project(x NONE)\nadd_subdirectory(third-party/cpuinfo)", ()),
        ("executorch_not_found", "project(x NONE)\nfind_package(executorch REQUIRED CONFIG)", ()),
        ("executorch_not_found", "project(x NONE)\nfind_package(executorch REQUIRED)", ()),
        ("cmake_too_old", "cmake_minimum_required(VERSION 99.1)", ()),
        (
            "imported_location",
            "project(x CXX)\nadd_library(neuron_buffer_allocator SHARED IMPORTED)\nadd_library(y SHARED x.cpp)\n"
            "target_link_libraries(y neuron_buffer_allocator)",
            (),
        ),
    ],
)
def test_what_cmake_says(name: str, text: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "third-party" / "cpuinfo").mkdir(parents=True)
    (tmp_path / "x.cpp").write_text("")
    (tmp_path / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.28)\n{text}\n")
    argv = [str(cmake.find()), "-S", str(tmp_path), "-B", str(tmp_path / "out"), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode != 0
    lines = (done.stdout + done.stderr).splitlines()
    told = failure("x", lines, configure_errors(lines))
    found = explain_build(lines)
    assert found is not None, lines
    assert found.id == name, lines
    assert told.message.startswith(f"x: {found.cause}:\n")
