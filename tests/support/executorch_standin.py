"""A stand-in for an installation of ExecuTorch's own CMake project: the in-tree target names, static libraries, a small real registry.

The headers are the installed wheel's, those that the project installs; what they declare of the registries, of logging and of the platform
layer is implemented here, in small. Nothing in it loads a program: it shows how parts are found, linked, kept whole and audited.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from etcli.toolchain import cmake, ninja
from etcli.toolchain.executorch import host_package

AARCH64 = (
    "-DCMAKE_SYSTEM_NAME=Linux",
    "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
    "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++",
)
"""CMake's arguments for a stand-in of target linux-aarch64."""

HEADERS = ("runtime", "extension/kernel_util", "extension/tensor", "extension/data_loader")
"""Folders under `include/executorch` whose headers the project installs; `extension/memory_allocator` is not among them."""

PRIM_OPERATORS = ("aten::sym_size.int", "executorch_prim::add.Scalar")
CPU_OPERATORS = ("aten::add.out", "aten::mul.out")
QUANTIZED_OPERATORS = ("quantized_decomposed::add.out",)

_CORE = r"""
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/abort.h>
#include <executorch/runtime/platform/log.h>
#include <executorch/runtime/platform/runtime.h>

namespace executorch {
namespace runtime {
extern const char program_identifier[] = "@IDENTIFIER@";
namespace internal {
et_timestamp_t get_log_timestamp() { return 0; }
void vlogf(LogLevel, et_timestamp_t, const char* file, const char*, size_t line, const char* format, va_list list) {
  std::fprintf(stderr, "%s:%zu: ", file, line);
  std::vfprintf(stderr, format, list);
  std::fputc('\n', stderr);
}
}  // namespace internal
void runtime_init() {}
void runtime_abort() { std::abort(); }

static std::vector<Kernel>& kernels() {
  static std::vector<Kernel> all;
  return all;
}
Span<const Kernel> get_registered_kernels() { return {kernels().data(), kernels().size()}; }
Error register_kernels(const Span<const Kernel> added) {
  for (const Kernel& kernel : added) {
    for (const Kernel& known : kernels()) {
      if (std::strcmp(known.name_, kernel.name_) == 0) {
        std::fprintf(stderr, "Re-registering %s\n", kernel.name_);
        std::abort();
      }
    }
    kernels().push_back(kernel);
  }
  return Error::Ok;
}

static std::vector<Backend>& backends() {
  static std::vector<Backend> all;
  return all;
}
Error register_backend(const Backend& backend) {
  backends().push_back(backend);
  return Error::Ok;
}
BackendInterface::~BackendInterface() {}
size_t get_num_registered_backends() { return backends().size(); }
Result<const char*> get_backend_name(size_t index) { return backends().at(index).name; }
BackendInterface* get_backend_class(const char* name) {
  for (const Backend& known : backends()) {
    if (std::strcmp(known.name, name) == 0) return known.backend;
  }
  return nullptr;
}
}  // namespace runtime
}  // namespace executorch
"""
_KERNELS = r"""
#include <executorch/runtime/kernel/operator_registry.h>
using namespace executorch::runtime;
int @NEEDS@();
static void run(KernelRuntimeContext&, Span<EValue*>) { @NEEDS@(); }
static const Kernel table[] = {@KERNELS@};
[[maybe_unused]] static const Error registered = register_kernels({table, sizeof table / sizeof *table});
"""
_BACKEND = r"""
#include <executorch/runtime/backend/interface.h>
using namespace executorch::runtime;
int pthreadpool_create();
namespace {
struct Delegate final : BackendInterface {
  bool is_available() const override { return pthreadpool_create() == 0; }
  Result<DelegateHandle*> init(BackendInitContext&, FreeableBuffer*, ArrayRef<CompileSpec>) const override { return Error::NotSupported; }
  Error execute(BackendExecutionContext&, DelegateHandle*, Span<EValue*>) const override { return Error::NotSupported; }
};
Delegate delegate;
Backend backend{"XnnpackBackend", &delegate};
[[maybe_unused]] const Error registered = register_backend(backend);
}  // namespace
"""
_THREADPOOL = r"""
#include <cstdint>
#include <executorch/runtime/core/function_ref.h>
int pthreadpool_create();
int cpuinfo_initialize();
namespace executorch {
namespace extension {
bool parallel_for(const int64_t begin, const int64_t end, const int64_t, runtime::FunctionRef<void(int64_t, int64_t)> body) {
  body(begin, end);
  return true;
}
int64_t get_thread_count() { return 1 + pthreadpool_create() + cpuinfo_initialize(); }
int64_t get_thread_num() { return 0; }
void set_thread_num(int64_t) {}
}  // namespace extension
}  // namespace executorch
"""

# name: (what it is made of, what it is linked with, whether it registers something when a program starts)
_LIBRARIES: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "executorch_core": ("core", (), False),
    "executorch": ("prim", ("executorch_core",), True),
    "extension_data_loader": ("function:data_loader", ("executorch_core",), False),
    "extension_tensor": ("function:tensor", ("executorch_core",), False),
    "pthreadpool": ("function:pthreadpool_create", (), False),
    "cpuinfo": ("function:cpuinfo_initialize", (), False),
    "extension_threadpool": ("threadpool", ("executorch_core", "cpuinfo", "pthreadpool"), False),
    "optimized_kernels": ("function:optimized", ("executorch_core", "extension_threadpool"), False),
    "optimized_native_cpu_ops_lib": ("cpu", ("optimized_kernels", "executorch_core"), True),
    "quantized_kernels": ("function:quantized", ("executorch_core",), False),
    "quantized_ops_lib": ("quantized", ("quantized_kernels", "executorch_core"), True),
    "xnnpack_backend": ("backend", ("pthreadpool", "extension_threadpool", "executorch_core"), True),
}

_UPSTREAM = {
    "examples/mediatek/executor_runner/mtk_llama_executor_runner.cpp": r"""
#include <cstdio>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <gflags/gflags.h>
#include <pytorch/tokenizers/tiktoken.h>
#include "api/NeuronAdapter.h"
int llama_runtime();
int tiktoken();
int main() {
  for (const auto& kernel : executorch::runtime::get_registered_kernels()) std::printf("%s\n", kernel.name_);
  std::printf("%s\n", executorch::runtime::get_backend_name(0).get());
  return llama_runtime() + tiktoken() + gflags() + tokenizers() + NEURON_NO_ERROR;
}
""",
    "examples/models/llama/tokenizer/llama_tiktoken.cpp": "int tiktoken() { return 0; }\n",
    "examples/mediatek/executor_runner/llama_runner/CMakeLists.txt": """
add_library(mtk_llama_executor_lib STATIC LlamaRuntime.cpp)
target_link_libraries(mtk_llama_executor_lib PRIVATE ${_executor_runner_libs} neuron_backend log)
target_compile_options(mtk_llama_executor_lib PUBLIC ${_common_compile_options})
""",
    "examples/mediatek/executor_runner/llama_runner/LlamaRuntime.cpp": "int llama_runtime() { return 0; }\n",
    "third-party/gflags/CMakeLists.txt": """
cmake_minimum_required(VERSION 3.0.2)
project(gflags CXX)
add_library(gflags STATIC gflags.cpp)
target_include_directories(gflags PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}/include")
""",
    "third-party/gflags/gflags.cpp": "int gflags() { return 0; }\n",
    "third-party/gflags/include/gflags/gflags.h": "int gflags();\n",
    "extension/llm/tokenizers/CMakeLists.txt": """
if(NOT SUPPORT_REGEX_LOOKAHEAD)
  message(FATAL_ERROR "without lookahead")
endif()
add_library(tokenizers STATIC tokenizers.cpp)
""",
    "extension/llm/tokenizers/tokenizers.cpp": "int tokenizers() { return 0; }\n",
    "extension/llm/tokenizers/include/pytorch/tokenizers/tiktoken.h": "int tokenizers();\n",
}
"""Upstream's runner for MediaTek's NPU in small: what the real one consists of and how its parts are named."""

_NEURON = r"""
#include <executorch/runtime/backend/interface.h>
#include "api/NeuronAdapter.h"
using namespace executorch::runtime;
namespace {
struct Delegate final : BackendInterface {
  bool is_available() const override { return NEURON_NO_ERROR == 0; }
  Result<DelegateHandle*> init(BackendInitContext&, FreeableBuffer*, ArrayRef<CompileSpec>) const override { return Error::NotSupported; }
  Error execute(BackendExecutionContext&, DelegateHandle*, Span<EValue*>) const override { return Error::NotSupported; }
};
Delegate delegate;
Backend backend{"NeuropilotBackend", &delegate};
[[maybe_unused]] const Error registered = register_backend(backend);
}  // namespace
"""
_NEURON_PROJECT = """
option(EXECUTORCH_BUILD_NEURON "as in ExecuTorch" OFF)
if(EXECUTORCH_BUILD_NEURON)
  add_library(portable_ops_lib STATIC portable_ops_lib.cpp)
  set_target_properties(portable_ops_lib PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(portable_ops_lib PRIVATE executorch_core)
  target_include_directories(portable_ops_lib PRIVATE ${headers} ${headers}/${c10})
  target_compile_definitions(portable_ops_lib PRIVATE C10_USING_CUSTOM_GENERATED_MACROS)
  target_link_options(portable_ops_lib INTERFACE "SHELL:LINKER:--whole-archive $<TARGET_FILE:portable_ops_lib> LINKER:--no-whole-archive")
  add_library(neuron_backend SHARED neuron_backend.cpp)
  target_include_directories(neuron_backend PRIVATE backends/mediatek/runtime/include)
  target_link_libraries(neuron_backend PRIVATE executorch_core portable_ops_lib android log)
  target_link_options(neuron_backend INTERFACE "LINKER:--push-state,--no-as-needed,$<TARGET_FILE:neuron_backend>,--pop-state")
  install(TARGETS neuron_backend EXPORT ExecuTorchTargets DESTINATION lib)
endif()
"""
PORTABLE_OPERATORS = ("aten::add.out", "aten::sub.out")

_OPTIONS = {
    "extension_data_loader": "EXECUTORCH_BUILD_EXTENSION_DATA_LOADER",
    "extension_tensor": "EXECUTORCH_BUILD_EXTENSION_TENSOR",
    "pthreadpool": "EXECUTORCH_BUILD_PTHREADPOOL",
    "cpuinfo": "EXECUTORCH_BUILD_CPUINFO",
    "extension_threadpool": "EXECUTORCH_BUILD_PTHREADPOOL",
    "optimized_kernels": "EXECUTORCH_BUILD_KERNELS_OPTIMIZED",
    "optimized_native_cpu_ops_lib": "EXECUTORCH_BUILD_KERNELS_OPTIMIZED",
    "quantized_kernels": "EXECUTORCH_BUILD_KERNELS_QUANTIZED",
    "quantized_ops_lib": "EXECUTORCH_BUILD_KERNELS_QUANTIZED",
    "xnnpack_backend": "EXECUTORCH_BUILD_XNNPACK",
}
"""The option of the real project that brings each library; the others are always there."""

_ALL_ON = tuple(f"-D{option}=ON" for option in sorted(set(_OPTIONS.values())))

_CONFIG = """\
# Stand-in: only what a consumer of the real file sees.
include("${CMAKE_CURRENT_LIST_DIR}/ExecuTorchTargets.cmake")
set(EXECUTORCH_FOUND ON)
set(executorch_FOUND TRUE)
"""


def standin_prefix(
    folder: Path,
    *,
    arguments: Sequence[str] = (),
    release: str | None = None,
    identifier: str = "ET12",
    without: Collection[str] = (),
    build_type: str = "Release",
    logging: bool = True,
    exported_keep_whole: bool = True,
) -> Path:
    """Build the stand-in in `folder` and install it into `folder/prefix`, which is returned.

    Args:
        arguments: what CMake needs to build for another target, as `AARCH64`.
        release: what its `version.h` says; by default the installed wheel's.
        identifier: of the programs that it claims to read.
        without: in-tree targets that are left out, as an option of the project leaves them out.
        exported_keep_whole: whether targets carry the raw --whole-archive options that the real ones do.
    """
    source = folder / "executorch"
    made = [name for name in _LIBRARIES if name not in without]
    _write_sources(source, made, release or host_package().release, identifier, keep=exported_keep_whole)
    prefix = folder / "prefix"
    tree = folder / "tree"
    program = cmake.find()
    configure: list[str | Path] = [
        program,
        "-G",
        "Ninja",
        f"-DCMAKE_MAKE_PROGRAM={ninja.find()}",
        "-S",
        source,
        "-B",
        tree,
    ]
    steps: list[list[str | Path]] = [
        [
            *configure,
            f"-DCMAKE_BUILD_TYPE={build_type}",
            f"-DCMAKE_INSTALL_PREFIX={prefix}",
            *_ALL_ON,
            *_logging(logging),
            *arguments,
        ],
        [program, "--build", tree, "--target", "install", "--parallel", "2"],
    ]
    for argv in steps:
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return prefix


def standin_checkout(folder: Path, *, submodules: Sequence[str], upstream: bool = False) -> Path:
    """A Git checkout of the stand-in's sources in `folder/executorch`, with these submodules, all checked out; its path is returned.

    Its project has the options of the real one that bring the libraries, OFF by default. With `upstream` it has the runner and the delegate for
    MediaTek's NPU too, as changes that are not committed; the vendor's header is missing, as in the real one.
    """
    root = folder / "executorch"
    release = host_package().release
    _write_sources(root, list(_LIBRARIES), release, "ET12", keep=True)
    (root / "version.txt").write_text(f"{release}\n")
    tiny = folder / "tiny"
    tiny.mkdir()
    (tiny / "CMakeLists.txt").write_text("# a submodule\n")
    git(tiny, "init", "-q")
    git(tiny, "add", ".")
    git(tiny, "commit", "-q", "-m", "a submodule")
    commit = git(tiny, "rev-parse", "HEAD")
    git(root, "init", "-q")
    git(root, "config", "submodule.active", ".")
    (root / ".gitmodules").write_text(
        "".join(f'[submodule "{path}"]\n\tpath = {path}\n\turl = {tiny}\n' for path in submodules)
    )
    git(root, "add", ".")
    for path in submodules:
        git(root, "update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
        shutil.copytree(tiny, root / path)
    git(root, "commit", "-q", "-m", "ExecuTorch")
    if upstream:
        for name, text in _UPSTREAM.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        (root / "neuron_backend.cpp").write_text(_NEURON)
        (root / "portable_ops_lib.cpp").write_text(_source("portable", "ET12"))
        project = (root / "CMakeLists.txt").read_text()
        (root / "CMakeLists.txt").write_text(project.replace("install(EXPORT", _NEURON_PROJECT + "install(EXPORT"))
    return root


def git(folder: Path, *arguments: str) -> str:
    """Run git in `folder` and return what it says."""
    who = ("-c", "user.name=A Tester", "-c", "user.email=tester@example.org")
    done = subprocess.run(["git", "-C", folder, *who, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def _write_sources(source: Path, made: Sequence[str], release: str, identifier: str, *, keep: bool) -> None:
    source.mkdir(parents=True)
    for name in made:
        (source / f"{name}.cpp").write_text(_source(_LIBRARIES[name][0], identifier))
    (source / "executorch-config.cmake").write_text(_CONFIG)
    _write_headers(source / "include", release)
    (source / "CMakeLists.txt").write_text(_project(made, keep=keep))


def _logging(on: bool) -> list[str]:
    return [f"-DEXECUTORCH_ENABLE_LOGGING={'ON' if on else 'OFF'}"]


def _source(kind: str, identifier: str) -> str:
    what, _, name = kind.partition(":")
    if what == "function":
        return f"int {name}();\nint {name}() {{ return 0; }}\n"
    if what == "core":
        return _CORE.replace("@IDENTIFIER@", identifier)
    if what in ("backend", "threadpool"):
        return _BACKEND if what == "backend" else _THREADPOOL
    operators = {
        "prim": PRIM_OPERATORS,
        "cpu": CPU_OPERATORS,
        "quantized": QUANTIZED_OPERATORS,
        "portable": PORTABLE_OPERATORS,
    }[what]
    needs = {"prim": "prim", "cpu": "optimized", "quantized": "quantized", "portable": "prim"}[what]
    table = ", ".join(f'Kernel("{name}", run)' for name in operators)
    own = "int prim() { return 0; }\n" if what in ("prim", "portable") else ""
    return _KERNELS.replace("@NEEDS@", needs).replace("@KERNELS@", table) + own


def _project(made: Sequence[str], *, keep: bool) -> str:
    lines = [
        "cmake_minimum_required(VERSION 3.24)",
        "project(executorch LANGUAGES CXX)",
        "set(CMAKE_CXX_STANDARD 17)",
        "if(NOT CMAKE_BUILD_TYPE)\n  set(CMAKE_BUILD_TYPE Debug)\nendif()",
        *(
            f'option({name} "as in ExecuTorch" OFF)'
            for name in sorted({"EXECUTORCH_ENABLE_LOGGING", *_OPTIONS.values()})
        ),
        "if(NOT EXECUTORCH_ENABLE_LOGGING)\n  set(quiet ET_LOG_ENABLED=0)\nendif()",
        "set(headers ${CMAKE_CURRENT_SOURCE_DIR}/include)",
        "set(c10 executorch/runtime/core/portable_type/c10)",
    ]
    for name in made:
        _, links, registers = _LIBRARIES[name]
        lines += [
            f"if({_OPTIONS.get(name, 'TRUE')})",
            f"add_library({name} STATIC {name}.cpp)",
            f"set_target_properties({name} PROPERTIES POSITION_INDEPENDENT_CODE ON)",
            f"target_include_directories({name} PUBLIC $<BUILD_INTERFACE:${{headers}}> $<BUILD_INTERFACE:${{headers}}/${{c10}}> "
            "$<INSTALL_INTERFACE:include> $<INSTALL_INTERFACE:include/${c10}>)",
            f"target_compile_definitions({name} PUBLIC C10_USING_CUSTOM_GENERATED_MACROS ${{quiet}})",
            *(f"target_link_libraries({name} {_visibility(name)} {link})" for link in links if link in made),
        ]
        if registers and keep:
            flags = f"LINKER:--whole-archive $<TARGET_FILE:{name}> LINKER:--no-whole-archive"
            lines.append(f'target_link_options({name} INTERFACE "SHELL:{flags}")')
        if name == "executorch_core":
            lines.append("if(ANDROID)\n  target_link_libraries(executorch_core PUBLIC log)\nendif()")
        if name == "extension_threadpool":
            lines.append(f"target_compile_definitions({name} PUBLIC ET_USE_THREADPOOL)")
        lines += [f"install(TARGETS {name} EXPORT ExecuTorchTargets DESTINATION lib)", "endif()"]
    return "\n".join(
        [
            *lines,
            "install(DIRECTORY include/ DESTINATION include)",
            "install(EXPORT ExecuTorchTargets FILE ExecuTorchTargets.cmake DESTINATION lib/cmake/ExecuTorch)",
            "install(FILES executorch-config.cmake DESTINATION lib/cmake/ExecuTorch)",
            "",
        ]
    )


def _visibility(name: str) -> str:
    """As in the real project: the libraries of operators and of primitive ones hide what they are linked with."""
    return "PRIVATE" if name in ("executorch", "optimized_native_cpu_ops_lib", "quantized_ops_lib") else "PUBLIC"


def _write_headers(folder: Path, release: str) -> None:
    wheel = host_package().root / "include" / "executorch"
    for name in HEADERS:
        shutil.copytree(wheel / name, folder / "executorch" / name, dirs_exist_ok=True)
    version = "".join(
        f"#define ET_VERSION_{word} {number}\n"
        for word, number in zip(("MAJOR", "MINOR", "PATCH"), release.split("."), strict=True)
    )
    (folder / "executorch" / "runtime" / "core" / "version.h").write_text(
        f'#pragma once\n{version}#define ET_VERSION "{release}"\n'
    )
