"""A stand-in for Android's NDK: its layout and its CMake variables around Debian's clang and aarch64 cross libraries.

What it makes asks for Android's loader and for `libc.so`, `libm.so`, `libdl.so`, which are stubs here with glibc's symbols, so that a whole build
for target android goes through discovery, configuration, linking and the audit. It proves nothing about bionic or libc++: only a real NDK does.
`StandIn.run` starts such a program all the same, under qemu, with glibc behind those names.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from ndk_tree import TRIPLE, write_revision

from etcli.tables.ndk import ndk_facts, revision_numbers

GLIBC = Path("/usr/aarch64-linux-gnu/lib")
_COMPILER_TARGET = "aarch64-linux-gnu"
_DL = ("dlopen", "dlsym", "dlclose", "dlerror", "dladdr")
_LOG = ("__android_log_print", "__android_log_write", "__android_log_vprint")
_ANDROID = tuple(f"AHardwareBuffer_{name}" for name in ("allocate", "release", "lock", "unlock", "describe"))

# As much of the real one's variables as a project can rely on, and its strictness about what is undefined.
_TOOLCHAIN = r"""
set(ANDROID_NDK "${CMAKE_CURRENT_LIST_DIR}/../..")
cmake_path(ABSOLUTE_PATH ANDROID_NDK NORMALIZE)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ANDROID_ABI ANDROID_PLATFORM ANDROID_STL ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES)
if(NOT ANDROID_ABI STREQUAL "arm64-v8a")
  message(FATAL_ERROR "the stand-in is for arm64-v8a, not for \"${ANDROID_ABI}\"")
endif()
if(NOT ANDROID_PLATFORM MATCHES "^android-([0-9]+)$")
  message(FATAL_ERROR "ANDROID_PLATFORM is \"${ANDROID_PLATFORM}\"")
endif()
set(ANDROID_PLATFORM_LEVEL ${CMAKE_MATCH_1})
set(CMAKE_SYSTEM_NAME Android)
set(CMAKE_SYSTEM_VERSION 1)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(ANDROID_TOOLCHAIN_ROOT "${ANDROID_NDK}/toolchains/llvm/prebuilt/@HOST@")
foreach(language C CXX)
  set(CMAKE_${language}_COMPILER_TARGET @TARGET@)
endforeach()
set(CMAKE_C_COMPILER "${ANDROID_TOOLCHAIN_ROOT}/bin/clang")
set(CMAKE_CXX_COMPILER "${ANDROID_TOOLCHAIN_ROOT}/bin/clang++")
foreach(tool AR RANLIB STRIP)
  string(TOLOWER ${tool} name)
  set(CMAKE_${tool} "${ANDROID_TOOLCHAIN_ROOT}/bin/llvm-${name}" CACHE FILEPATH "")
endforeach()
set(libraries "${ANDROID_TOOLCHAIN_ROOT}/sysroot/usr/lib/@TRIPLE@")
if(NOT IS_DIRECTORY "${libraries}/${ANDROID_PLATFORM_LEVEL}")
  message(FATAL_ERROR "there are no libraries for API level ${ANDROID_PLATFORM_LEVEL}")
endif()
# What glibc keeps out of its shared library.
set(CMAKE_CXX_STANDARD_LIBRARIES_INIT "@GLIBC@/libc_nonshared.a")
set(page 4096)
if(@MAJOR@ GREATER_EQUAL 28 OR (@MAJOR@ EQUAL 27 AND ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES))
  set(page 16384)
endif()
set(flags "-isystem ${ANDROID_TOOLCHAIN_ROOT}/sysroot/usr/include -DANDROID -ffunction-sections -fdata-sections")
string(APPEND flags " -fstack-protector-strong -Wformat -Werror=format-security")
set(link "-fuse-ld=lld -static-libgcc -L${libraries}/${ANDROID_PLATFORM_LEVEL} -L${libraries}")
string(APPEND link " -Wl,-z,max-page-size=${page} -Wl,--no-undefined -Wl,--fatal-warnings -Wl,--gc-sections")
if(ANDROID_STL STREQUAL "c++_static")
  string(APPEND link " -static-libstdc++")
elseif(ANDROID_STL STREQUAL "c++_shared")
  string(APPEND link " -nostdlib++")
  string(PREPEND CMAKE_CXX_STANDARD_LIBRARIES_INIT "-lc++_shared -lm ")
else()
  message(FATAL_ERROR "ANDROID_STL is \"${ANDROID_STL}\"")
endif()
foreach(language C CXX)
  set(CMAKE_${language}_FLAGS_INIT "${flags}")
endforeach()
set(CMAKE_EXE_LINKER_FLAGS_INIT "${link} -Wl,--dynamic-linker=/system/bin/linker64")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${link}")
set(CMAKE_MODULE_LINKER_FLAGS_INIT "${link}")
set(CMAKE_FIND_ROOT_PATH "${ANDROID_TOOLCHAIN_ROOT}/sysroot")
foreach(kind PROGRAM LIBRARY INCLUDE PACKAGE)
  if(NOT CMAKE_FIND_ROOT_PATH_MODE_${kind})
    set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
  endif()
endforeach()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
"""

_OPENMP_HEADER = """\
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
int omp_get_max_threads(void);
int omp_get_num_threads(void);
int omp_get_thread_num(void);
int omp_get_num_procs(void);
int omp_in_parallel(void);
void omp_set_num_threads(int);
void omp_set_dynamic(int);
#ifdef __cplusplus
}
#endif
"""

# One thread does the work of all: enough to show where the runtime is linked, and that it is there once.
_OPENMP = r"""
#include <stdarg.h>
typedef void (*Task)(int*, int*, ...);
void __kmpc_fork_call(void* place, int count, Task task, ...) {
  void* a[8] = {0};
  int zero = 0, bound = 0;
  va_list list;
  va_start(list, task);
  for (int i = 0; i < count && i < 8; ++i) a[i] = va_arg(list, void*);
  va_end(list);
  (void)place;
  task(&zero, &bound, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
}
int __kmpc_global_thread_num(void* place) { (void)place; return 0; }
void __kmpc_push_num_threads(void* place, int thread, int threads) { (void)place, (void)thread, (void)threads; }
void __kmpc_for_static_fini(void* place, int thread) { (void)place, (void)thread; }
#define INIT(name, type)                                                                                                            \
  void name(void* place, int thread, int kind, int* last, type* low, type* high, type* stride, type step, type chunk) {              \
    (void)place, (void)thread, (void)kind, (void)step, (void)chunk;                                                                  \
    *last = 1, *stride = *high - *low + 1;                                                                                           \
  }
INIT(__kmpc_for_static_init_4, int)
INIT(__kmpc_for_static_init_4u, unsigned)
INIT(__kmpc_for_static_init_8, long)
INIT(__kmpc_for_static_init_8u, unsigned long)
int __kmpc_reduce_nowait(void* place, int thread, int count, long size, void* data, void (*reduce)(void*, void*), void* lock) {
  (void)place, (void)thread, (void)count, (void)size, (void)data, (void)reduce, (void)lock;
  return 1;
}
void __kmpc_end_reduce_nowait(void* place, int thread, void* lock) { (void)place, (void)thread, (void)lock; }
void __kmpc_barrier(void* place, int thread) { (void)place, (void)thread; }
static int threads = 1;
int omp_get_max_threads(void) { return threads; }
int omp_get_num_threads(void) { return 1; }
int omp_get_thread_num(void) { return 0; }
int omp_get_num_procs(void) { return 1; }
int omp_in_parallel(void) { return 0; }
void omp_set_num_threads(int wanted) { threads = wanted; }
void omp_set_dynamic(int dynamic) { (void)dynamic; }
const char etcli_standin_openmp[] = "LLVM OMP stand-in";
"""


@dataclass(frozen=True)
class StandIn:
    """The stand-in in the folder `root`."""

    root: Path

    @property
    def tools(self) -> Path:
        """The folder of its programs for this machine, with the sysroot beside `bin`."""
        return self.root / "toolchains" / "llvm" / "prebuilt" / ndk_facts().hosts[platform.system()]

    @property
    def libraries(self) -> Path:
        """The folder of its libraries for phones."""
        return self.tools / "sysroot" / "usr" / "lib" / TRIPLE

    def arguments(self, api_level: int = 26, stl: str = "c++_static") -> tuple[str, ...]:
        """What tells CMake to build with it."""
        return (
            f"-DCMAKE_TOOLCHAIN_FILE={self.root / ndk_facts().toolchain_file}",
            "-DANDROID_ABI=arm64-v8a",
            f"-DANDROID_PLATFORM=android-{api_level}",
            f"-DANDROID_STL={stl}",
        )

    def run(self, program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program that it made under qemu, in its own folder as on a device; glibc stands for bionic."""
        system = self.root / "device" / "system"
        if not system.exists():
            (system / "bin").mkdir(parents=True)
            (system / "lib64").mkdir()
            shutil.copy(GLIBC / "ld-linux-aarch64.so.1", system / "bin" / "linker64")
            for name, real in (("libc.so", "libc.so.6"), ("libm.so", "libm.so.6"), ("libdl.so", "libdl.so.2")):
                (system / "lib64" / name).symlink_to(GLIBC / real)
            for name in ("liblog.so", "libandroid.so"):
                shutil.copy(next(self.libraries.glob(f"[0-9]*/{name}")), system / "lib64" / name)
        argv = [
            "qemu-aarch64-static",
            "-L",
            str(self.root / "device"),
            "-E",
            f"LD_LIBRARY_PATH={system / 'lib64'}:{GLIBC}",
        ]
        return subprocess.run(
            [*argv, program, *arguments], capture_output=True, text=True, timeout=120, cwd=program.parent
        )


def standin_ndk(root: Path, revision: str = "28.2.13676358", *, api_levels: tuple[int, ...] = (26, 28)) -> StandIn:
    """Make the stand-in in `root`, which says that it is of `revision` and treats pages as that does."""
    ndk = StandIn(root)
    write_revision(root, revision)
    (ndk.tools / "bin").mkdir(parents=True)
    for name in ("clang", "clang++", "ld.lld", "llvm-ar", "llvm-ranlib", "llvm-strip"):
        found = shutil.which(name)
        assert found is not None, f"{name} is not here: ./dev setup installs it"
        (ndk.tools / "bin" / name).symlink_to(found)
    headers = ndk.tools / "sysroot" / "usr" / "include"
    headers.mkdir(parents=True)
    (headers / "omp.h").write_text(_OPENMP_HEADER)
    toolchain = root / ndk_facts().toolchain_file
    toolchain.parent.mkdir(parents=True)
    words = {
        "HOST": ndk.tools.name,
        "TARGET": _COMPILER_TARGET,
        "TRIPLE": TRIPLE,
        "MAJOR": str(revision_numbers(revision)[0]),
        "GLIBC": str(GLIBC),
    }
    toolchain.write_text(re.sub(r"@(HOST|TARGET|TRIPLE|MAJOR|GLIBC)@", lambda found: words[found[1]], _TOOLCHAIN))
    for level in api_levels:
        _stubs(ndk, ndk.libraries / str(level))
    _archive(ndk, ndk.libraries / "libomp.a", _OPENMP)
    _shared_runtime(ndk, ndk.libraries / str(min(api_levels)))
    return ndk


def _stubs(ndk: StandIn, folder: Path) -> None:
    folder.mkdir(parents=True)
    functions, objects = _dynamic_symbols(GLIBC / "libc.so.6")
    more, guards = _dynamic_symbols(GLIBC / "ld-linux-aarch64.so.1")
    _stub(ndk, folder / "libc.so", (functions | more) - set(_DL), objects | guards)
    _stub(ndk, folder / "libm.so", *_dynamic_symbols(GLIBC / "libm.so.6"))
    for name, symbols in (("libdl.so", _DL), ("liblog.so", _LOG), ("libandroid.so", _ANDROID)):
        _stub(ndk, folder / name, set(symbols), {})


def _dynamic_symbols(path: Path) -> tuple[set[str], dict[str, int]]:
    """Functions, and objects with their sizes in bytes."""
    functions: set[str] = set()
    objects: dict[str, int] = {}
    with path.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        for symbol in table.iter_symbols():
            kind = symbol["st_info"]["type"]
            if symbol["st_shndx"] == "SHN_UNDEF" or not symbol.name or symbol.name.startswith("GLIBC"):
                continue
            if kind in ("STT_FUNC", "STT_LOOS", "STT_GNU_IFUNC"):
                functions.add(symbol.name)
            elif kind == "STT_OBJECT":
                objects[symbol.name] = symbol["st_size"]
    return functions, objects


def _stub(ndk: StandIn, path: Path, functions: set[str], objects: dict[str, int]) -> None:
    lines = [".text"]
    for name in sorted(functions):
        lines += [f".globl {name}", f".type {name}, %function", f"{name}:"]
    lines += ["ret", ".bss"]
    for name, size in sorted(objects.items()):
        lines += [
            f".globl {name}",
            f".type {name}, %object",
            f".size {name}, {size}",
            ".balign 16",
            f"{name}:",
            f".zero {size}",
        ]
    source = path.with_suffix(".s")
    source.write_text("\n".join([*lines, ""]))
    _compile(ndk, "-nostdlib", "-shared", f"-Wl,-soname,{path.name}", "-o", path, source)
    source.unlink()


def _archive(ndk: StandIn, path: Path, text: str) -> None:
    source, built = path.with_suffix(".c"), path.with_suffix(".o")
    source.write_text(text)
    _compile(ndk, "-O2", "-fPIC", "-c", "-o", built, source)
    subprocess.run([ndk.tools / "bin" / "llvm-ar", "rcs", path, built], check=True)
    source.unlink()
    built.unlink()


def _shared_runtime(ndk: StandIn, stubs: Path) -> None:
    """GNU's C++ library under the name of the NDK's."""
    words = [
        "-shared",
        "-Wl,-soname,libc++_shared.so",
        "-Wl,-z,max-page-size=16384",
        "-Wl,-Bsymbolic",
        "-nostdlib",
        f"-L{stubs}",
    ]
    words += [
        "-Wl,--whole-archive",
        _of_gcc("libstdc++.a"),
        "-Wl,--no-whole-archive",
        _of_gcc("libgcc_eh.a"),
        _of_gcc("libgcc.a"),
    ]
    words.append(str(GLIBC / "libc_nonshared.a"))
    _compile(ndk, *words, "-lm", "-lc", "-o", ndk.libraries / "libc++_shared.so")


def _of_gcc(name: str) -> str:
    argv = ["aarch64-linux-gnu-g++", f"-print-file-name={name}"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def _compile(ndk: StandIn, *words: str | os.PathLike[str]) -> None:
    argv = [ndk.tools / "bin" / "clang", f"--target={_COMPILER_TARGET}", "-fuse-ld=lld", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
