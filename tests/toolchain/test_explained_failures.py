"""Logs of builds that fail in the ways that users of this field report: the cause is named first, whatever follows from it.

The texts are written after what CMake 3.31, Ninja 1.12, clang 9 to 19, lld and GNU ld print; none is anybody's log.
"""

from __future__ import annotations

import re
import textwrap

import pytest

from etcli.tables.build_errors import build_messages, explain_build
from etcli.toolchain.build_failures import compile_errors, configure_errors, failure, remedy

NOT_A_TOOLCHAIN = """\
CMake Error at /opt/cmake/Modules/CMakeDetermineSystem.cmake:154 (message):
  Could not find toolchain file:
  "/opt/ndk-r26/build/cmake/android.toolchain.cmake"
Call Stack (most recent call first):
  CMakeLists.txt:16 (project)


CMake Error: CMake was unable to find a build program corresponding to "Ninja".  CMAKE_MAKE_PROGRAM is not set.
CMake Error: CMAKE_C_COMPILER not set, after EnableLanguage
CMake Error: CMAKE_CXX_COMPILER not set, after EnableLanguage
-- Configuring incomplete, errors occurred!
"""
OLD_NDK = """\
[1/3] Building CXX object third-party/xnnpack/CMakeFiles/microkernels-prod.dir/src/bf16-gemm/gen/bf16-gemm-1x8c2-minmax-neonbf16-bfdot.c.o
FAILED: third-party/xnnpack/CMakeFiles/microkernels-prod.dir/src/bf16-gemm/gen/bf16-gemm-1x8c2-minmax-neonbf16-bfdot.c.o
/opt/ndk/21.4.7075529/toolchains/llvm/prebuilt/linux-x86_64/bin/clang --target=aarch64-none-linux-android26 -march=armv8.2-a+bf16 -c x.c
clang: error: the clang compiler does not support '-march=armv8.2-a+bf16'
ninja: build stopped: subcommand failed.
"""
RELATIVE_NDK = """\
[12/40] Linking CXX static library libcpuinfo.a
FAILED: libcpuinfo.a
: && /usr/bin/cmake -E rm -f libcpuinfo.a && Library/Android/sdk/ndk/27.0.12077973/toolchains/llvm/prebuilt/darwin-x86_64/bin/llvm-ar qc libcpuinfo.a a.o
/bin/sh: 1: Library/Android/sdk/ndk/27.0.12077973/toolchains/llvm/prebuilt/darwin-x86_64/bin/llvm-ar: not found
ninja: build stopped: subcommand failed.
"""
NO_SUBMODULES = """\
-- The CXX compiler identification is Clang 17.0.2
CMake Error at backends/xnnpack/CMakeLists.txt:87 (add_subdirectory):
  The source directory

    /home/me/executorch/third-party/cpuinfo

  does not contain a CMakeLists.txt file.


-- Configuring incomplete, errors occurred!
"""
NO_SUBMODULE_HEADER = """\
FAILED: examples/runner.o
/home/me/executorch/extension/llm/runner/main.cpp:10:10: fatal error: 'gflags/gflags.h' file not found
"""
FLATC_OF_THE_TARGET = """\
[3/9] Generating program_generated.h
FAILED: schema/include/executorch/schema/program_generated.h
cd /home/me/executorch/schema && /home/me/out/third-party/flatbuffers/flatc --cpp --cpp-std c++11 program.fbs
/bin/sh: 1: /home/me/out/third-party/flatbuffers/flatc: Exec format error
ninja: build stopped: subcommand failed.
"""
FLATC_NOT_GIVEN = """\
CMake Error at schema/CMakeLists.txt:12 (message):
  FLATC_EXECUTABLE must be set when cross-compiling.
-- Configuring incomplete, errors occurred!
"""
CODEGEN = """\
FAILED: kernels/portable/RegisterCodegenUnboxedKernelsEverything.cpp
Traceback (most recent call last):
  File "/home/me/executorch/codegen/gen.py", line 21, in <module>
    from torchgen import dest
ModuleNotFoundError: No module named 'torchgen'
ninja: build stopped: subcommand failed.
"""
COMPONENT = """\
CMake Error at share/cmake/executorch-config.cmake:55 (message):
  this ExecuTorch package does not provide the required component
  'backend_cuda'.
-- Configuring incomplete, errors occurred!
"""
AOT = """\
FAILED: extension/llm/custom_ops/CMakeFiles/custom_ops_aot_lib.dir/op_sdpa_aot.cpp.o
/home/me/executorch/extension/llm/custom_ops/op_sdpa_aot.cpp:14:10: fatal error: 'torch/library.h' file not found
   14 | #include <torch/library.h>
1 error generated.
"""
AOT_LINK = """\
FAILED: libmine.so
ld.lld: error: undefined symbol: torch::Library::_def(c10::FunctionSchema&&, c10::OperatorName*)
>>> referenced by library.h:611
"""
NOT_FOUND = """\
CMake Error at CMakeLists.txt:34 (find_package):
  Could not find a package configuration file provided by "ExecuTorch" with
  any of the following names:

    ExecuTorchConfig.cmake
    executorch-config.cmake

  Add the installation prefix of "ExecuTorch" to CMAKE_PREFIX_PATH or set
  "ExecuTorch_DIR" to a directory containing one of the above files.
-- Configuring incomplete, errors occurred!
"""
OLD_NOT_FOUND = """\
CMake Error at CMakeLists.txt:9 (message):
  Could not find executorchConfig.cmake
"""
IMPORTED = """\
CMake Error in backends/mediatek/CMakeLists.txt:
  IMPORTED_LOCATION not set for imported target "neuron_buffer_allocator"
  configuration "Release".


-- Generating done (0.1s)
CMake Generate step failed.  Build files cannot be regenerated correctly.
"""
OLD_CMAKE = """\
CMake Error at CMakeLists.txt:8 (cmake_minimum_required):
  CMake 3.28 or higher is required.  You are running version 3.25.1
"""
FEATURE = """\
FAILED: CMakeFiles/mine.dir/dot.cpp.o
/home/me/ops/dot.cpp:7:10: error: always_inline function 'vdotq_s32' requires target feature 'dotprod', but would be inlined into function 'dot'
1 error generated.
"""
FEATURE_GCC = """\
/usr/include/arm_neon.h:28787:1: error: inlining failed in call to 'always_inline' 'int32x4_t vdotq_s32(int32x4_t, int8x16_t)': target specific option mismatch
"""
UNDECLARED = """\
/home/me/ops/dot.cpp:7:10: error: use of undeclared identifier 'vdotq_s32'
"""
UNAVAILABLE = """\
/home/me/delegate/memory.cpp:31:3: error: 'AHardwareBuffer_allocate' is unavailable: introduced in Android 26
"""
ALIGNED = """\
FAILED: libtorchao_ops.so
ld.lld: error: undefined symbol: aligned_alloc
>>> referenced by memory.cpp:12
"""
ALIGNED_CPP = """\
/home/me/ao/memory.h:20:17: error: no member named 'aligned_alloc' in namespace 'std'
"""
NO_EXCEPTIONS = """\
/home/me/executorch/backends/mediatek/runtime/NeuronLog.cpp:9:5: error: cannot use 'throw' with exceptions disabled
"""
NO_RTTI = """\
/home/me/executorch/backends/mediatek/runtime/NeuronBackend.cpp:9:5: error: use of typeid requires -frtti
"""
GCC_STATIC_OPENMP = """\
g++: error: unrecognized command-line option \u2018-static-openmp\u2019
"""
HEADER = """\
/home/me/et/extension/module/module.cpp:9:10: fatal error: 'executorch/extension/module/module.h' file not found
"""
KILLED = """\
g++: fatal error: Killed signal terminated program cc1plus
compilation terminated.
"""
CRASHED = """\
PLEASE submit a bug report to https://github.com/android-ndk/ndk/issues and include the crash backtrace.
clang++: error: clang frontend command failed with exit code 139 (use -v to see invocation)
"""
MACHINE = """\
ld.lld: error: lib/libexecutorch_core.a(runtime.cpp.o) is incompatible with aarch64linux
"""
NO_PIC = """\
ld.lld: error: relocation R_AARCH64_ADR_PREL_PG_HI21 cannot be used against symbol 'stderr'; recompile with -fPIC
"""
NO_OPENMP = """\
ld.lld: error: unable to find library -lomp
clang++: error: linker command failed with exit code 1 (use -v to see invocation)
"""
HALF_OPENMP = """\
[5/5] Linking CXX executable etcli_llama_runner
FAILED: etcli_llama_runner
ld.lld: error: undefined symbol: __kmpc_fork_call
>>> referenced by run.cpp:40
ld.lld: error: undefined symbol: omp_get_num_threads
"""
RUNNER_UTIL = """\
ld: error: unable to find library -lextension_runner_util
clang++: error: linker command failed with exit code 1 (use -v to see invocation)
"""
MODULE = """\
ld.lld: error: undefined symbol: executorch::extension::Module::execute(std::__ndk1::basic_string<char> const&)
>>> referenced by main.cpp:12
"""
OLD_MODULE = """\
main.cpp:(.text+0x1c): undefined reference to `torch::executor::Module::forward()'
"""
KERNELS = """\
/usr/bin/ld: cannot find -lcustom_ops: No such file or directory
"""
LIBRARY = """\
ld.lld: error: unable to find library -lpthreadpool
"""
LIBCXX = """\
ld.lld: error: undefined symbol: vtable for std::__ndk1::basic_ostringstream<char, std::__ndk1::char_traits<char>>
>>> referenced by log.cpp
>>>               log.cpp.o:(executorch::log()) in archive lib/libexecutorch_core.a
"""
ALLOCATOR = """\
ld.lld: error: undefined symbol: neuron::BufferAllocator::GetInstance()
"""
TWICE = """\
ld.lld: error: duplicate symbol: executorch::runtime::register_kernels(executorch::runtime::Span<executorch::runtime::Kernel const>)
>>> defined at operator_registry.cpp
"""
CXX_TWICE = """\
ld.lld: error: duplicate symbol: operator new(unsigned long)
>>> defined at new.cpp in archive libc++.a
"""

CORPUS = [
    ("toolchain_file", NOT_A_TOOLCHAIN, "no /opt/ndk-r26/build"),
    ("ndk_too_old", OLD_NDK, "does not know armv8.2-a+bf16. Of NDKs r25"),
    ("ndk_relative", RELATIVE_NDK, "Library/Android/sdk"),
    ("submodules", NO_SUBMODULES, "third-party/cpuinfo is empty"),
    ("submodules_header", NO_SUBMODULE_HEADER, "gflags/gflags.h"),
    ("flatc", FLATC_OF_THE_TARGET, "FLATC_EXECUTABLE"),
    ("flatc", FLATC_NOT_GIVEN, "executorch wheel"),
    ("codegen_python", CODEGEN, "torchgen is missing"),
    ("executorch_component", COMPONENT, "backend_cuda is missing"),
    ("aot_library", AOT, "*_AOT options off"),
    ("aot_library", AOT_LINK, "under torch: of op.yaml"),
    ("executorch_not_found", NOT_FOUND, "ROOT_PATH_MODE_PACKAGE=BOTH"),
    ("executorch_not_found", OLD_NOT_FOUND, "-Dexecutorch_DIR="),
    ("imported_location", IMPORTED, "neuron_buffer_allocator has no file"),
    ("cmake_too_old", OLD_CMAKE, "Install CMake 3.28"),
    ("target_feature", FEATURE, "vdotq_s32 needs more"),
    ("target_feature", FEATURE_GCC, "under architectures"),
    ("target_feature", UNDECLARED, "vdotq_s32 needs more"),
    ("unavailable", UNAVAILABLE, "AHardwareBuffer_allocate"),
    ("aligned_alloc", ALIGNED, "build.api_level: 28"),
    ("aligned_alloc", ALIGNED_CPP, "posix_memalign"),
    ("exceptions", NO_EXCEPTIONS, "-frtti -fexceptions"),
    ("exceptions", NO_RTTI, "-frtti -fexceptions"),
    ("static_openmp_gcc", GCC_STATIC_OPENMP, "build.openmp: static"),
    ("compiler_killed", KILLED, "--jobs 1"),
    ("compiler_fault", CRASHED, "another version of the compiler"),
    ("executorch_header", HEADER, "has to be called executorch"),
    ("linked_machine", MACHINE, "--clean"),
    ("not_pic", NO_PIC, "POSITION_INDEPENDENT_CODE"),
    ("openmp_not_static", NO_OPENMP, "libomp.a is missing"),
    ("openmp_not_linked", HALF_OPENMP, "__kmpc_fork_call is missing"),
    ("executorch_option", RUNNER_UTIL, "-DEXECUTORCH_BUILD_EXTENSION_RUNNER_UTIL=ON"),
    ("executorch_module", MODULE, "EXTENSION_MODULE=ON"),
    ("executorch_module", OLD_MODULE, "EXTENSION_MODULE=ON"),
    ("executorch_kernels", KERNELS, "_KERNELS_LLM"),
    ("library_not_found_by_linker", LIBRARY, "libpthreadpool"),
    ("libcxx_mixed", LIBCXX, "std::__ndk1::basic_ostringstream is missing"),
    ("neuron_allocator_era", ALLOCATOR, "before 0.7"),
    ("executorch_twice", TWICE, "executorch_core only"),
    ("cxx_runtime_twice", CXX_TWICE, "one build.stl"),
]


@pytest.mark.known_failure(
    "android-function-of-a-later-api",
    "android-libcxx-of-another-ndk",
    "android-ndk-relative-path",
    "android-ndk-too-old",
    "android-toolchain-file-missing",
    "android-two-cxx-runtimes",
    "cpu-instruction-without-its-flag",
    "executorch-flatc-of-the-target",
    "executorch-package-not-found",
    "executorch-part-not-installed",
    "executorch-submodules-missing",
    "neuron-exceptions-and-api-level",
    "neuron-imported-location",
    "openmp-flags-incomplete",
    "openmp-library-not-found",
    "operators-registered-twice",
    "operators-torch-binding-in-cross-build",
)
@pytest.mark.parametrize(("name", "log", "word"), CORPUS)
def test_a_log_is_explained_by_its_first_cause(name: str, log: str, word: str) -> None:
    lines = log.splitlines()
    found = explain_build(lines)
    assert found is not None
    assert (found.id, word in found.remedy) == (name, True), found
    told = failure("it failed", lines, compile_errors(lines) if "CMake Error" not in log else configure_errors(lines))
    assert told.message.startswith(f"it failed: {found.cause}:\n    ")
    assert told.hint == found.remedy
    assert found.remedy in (remedy(lines) or "")


def test_every_row_has_a_log() -> None:
    assert {message.id for message in build_messages()} == {name for name, _, _ in CORPUS}


def test_the_cause_counts_and_not_what_follows_from_it() -> None:
    log = [*OLD_NDK.splitlines(), *NO_OPENMP.splitlines()]
    assert explain_build(log).id == "ndk_too_old"  # type: ignore[union-attr]
    assert explain_build([*NO_OPENMP.splitlines(), *OLD_NDK.splitlines()]).id == "openmp_not_static"  # type: ignore[union-attr]


def test_the_telling_line_may_stand_beyond_those_that_are_shown() -> None:
    """CMake's try of a compiler that does not work: the reason comes after the first lines, indented."""
    log = textwrap.dedent(
        """\
        CMake Error at CMakeTestCXXCompiler.cmake:73 (message):
          The C++ compiler

            "/opt/ndk/bin/clang++"

          is not able to compile a simple test program.

          It fails with the following output:

            Change Dir: '/tmp/x'
            Run Build Command(s): ninja
            FAILED: x.o
            clang++: error: unsupported argument 'armv8.2-a+bf16' to option '-march='
        """
    ).splitlines()
    shown = configure_errors(log)
    assert not any("bf16" in line for line in shown)
    told = failure("CMake could not configure the build", log, shown)
    assert "too old for the instructions" in told.message.splitlines()[0]
    assert "The C++ compiler" in told.message


@pytest.mark.parametrize(
    "line",
    [
        "a.cpp:1:1: error: expected unqualified-id",
        "-- Looking for aligned_alloc - not found",
        "-- Could NOT find OpenMP (missing: OpenMP_CXX_FOUND)",
        "[1/2] Building CXX object flatc.dir/flatc.cpp.o",
        "/opt/ndk/toolchains/llvm/prebuilt/linux-x86_64/bin/clang++: warning: argument unused during compilation",
        "ld.lld: error: undefined symbol: mine::function(std::__ndk1::basic_string<char>)",
    ],
)
def test_nothing_is_made_up(line: str) -> None:
    assert explain_build([line]) is None


def test_an_unknown_failure_points_at_the_log() -> None:
    told = failure("the runner does not compile", ["a.cpp:1:1: error: what"], ["a.cpp:1:1: error: what"])
    assert told.message == "the runner does not compile:\n    a.cpp:1:1: error: what"
    assert told.hint == "See the whole log."


def test_a_log_is_untrusted_text() -> None:
    found = explain_build(["ld.lld: error: unable to find library -lx\x1b[31m", "a" * 200_000])
    assert found is not None
    assert not re.search(r"[\x00-\x1f]", found.remedy)
    assert explain_build(["undefined symbol: " * 20_000]) is None
