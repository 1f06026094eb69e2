"""An installation of ExecuTorch that the user has: read back, and compared with what a build needs of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import EtcliError, Problem, Problems, ToolError
from etcli.output.console import Console
from etcli.tables.executorch import load_executorch
from etcli.tables.targets import Target
from etcli.toolchain.archives import first_object
from etcli.toolchain.cmake import cache_value
from etcli.toolchain.executorch.package import ExecutorchPackage, release_numbers
from etcli.toolchain.executorch.wanted import Wanted
from etcli.toolchain.executorch.wheel import host_package

CONFIG = "executorch-config.cmake"
CORE = "libexecutorch_core.a"

_VERSION = re.compile(r'^#define ET_VERSION "(\d+)\.(\d+)\.(\d+)"', re.MULTILINE)
_TARGET = re.compile(r"^add_library\((\S+) ", re.MULTILINE)
_LOCATION = re.compile(r'IMPORTED_LOCATION_(\w+) "\$\{_IMPORT_PREFIX\}/([^"]+)"')
_OPTIMISED = ("RELEASE", "RELWITHDEBINFO", "MINSIZEREL")
_LEVEL = re.compile(r"(?:android-)?(\d+)")


@dataclass(frozen=True)
class Installation:
    """What an installation says of itself.

    `targets` are the CMake targets that it exports, `files` the library of each, relative to `root`, by build type in capitals;
    `logging` whether it was compiled with log messages; `cache` its CMakeCache.txt where it was installed into its own build tree, as
    ExecuTorch's scripts do.
    """

    root: Path
    version: str | None
    targets: frozenset[str]
    files: dict[str, dict[str, str]]
    logging: bool
    cache: Path | None


def config_dir(root: Path) -> Path | None:
    """The folder of the CMake package of the installation in `root`; None where there is none."""
    folders = (root / name / "cmake" / "ExecuTorch" for name in ("lib", "lib64"))
    return next((folder for folder in folders if (folder / CONFIG).is_file()), None)


def read_installation(root: Path) -> Installation:
    """What the installation in `root` holds, from its CMake package and headers; nothing is run.

    Raises:
        ToolError: code `executorch.no_prefix`: there is none.
    """
    folder = config_dir(root)
    if folder is None:
        raise ToolError(
            f"{root} holds no installed ExecuTorch", code="executorch.no_prefix", hint=_elsewhere(root), file=root
        )
    try:
        exported = (folder / "ExecuTorchTargets.cmake").read_text(encoding="utf-8")
        files: dict[str, dict[str, str]] = {}
        for path in sorted(folder.glob("ExecuTorchTargets-*.cmake")):
            for build_type, file in _LOCATION.findall(path.read_text(encoding="utf-8")):
                name = re.sub(r"^lib|\.(a|so)(\.\d+)*$", "", Path(file).name)
                files.setdefault(build_type, {})[name] = file
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(
            f"the ExecuTorch in {root} cannot be read: {error}",
            code="executorch.no_prefix",
            hint="Install it again: cmake --build TREE --target install.",
            file=folder,
        ) from None
    header = root / "include" / "executorch" / "runtime" / "core" / "version.h"
    version = _VERSION.search(header.read_text(encoding="utf-8", errors="replace")) if header.is_file() else None
    cache = root / "CMakeCache.txt"
    return Installation(
        root,
        ".".join(version.groups()) if version else None,
        frozenset(_TARGET.findall(exported)),
        files,
        logging="ET_LOG_ENABLED=0" not in exported,
        cache=cache if cache.is_file() else None,
    )


def prefix_package(target: Target, wanted: Wanted, root: Path, console: Console | None = None) -> ExecutorchPackage:
    """The installation in `root` as a package for `target`, if it has all that `wanted` names and runs what this machine exports.

    Raises:
        ToolError: every fault of it, at once: `executorch.no_prefix`, `executorch.version`, `executorch.program`, `executorch.component`,
            `executorch.machine`, `executorch.debug`, `executorch.api_level`, `executorch.other_ndk`, `executorch.broken`, `archive.invalid`.
    """
    found = read_installation(root)
    package = ExecutorchPackage(root, found.version or "", found.version or "", None, "prefix", "installation")
    problems = Problems()
    for problem in (*_release_problems(found), *_component_problems(found, wanted), *_android_problems(found, wanted)):
        problems.add(problem)
    for check in (_machine, _program):
        try:
            problems.add(check(package, target, wanted))
        except EtcliError as error:
            problems.absorb(error)
    problems.raise_if_any(ToolError)
    if not found.logging and console is not None:
        console.warn(
            f"the ExecuTorch in {root} was compiled without log messages: a failure on the device says an error number only. "
            "Build it with -DEXECUTORCH_ENABLE_LOGGING=ON.",
            code="executorch.logging",
        )
    return package


def _elsewhere(root: Path) -> str:
    """Where the user may have meant."""
    if (root / "share" / "cmake" / CONFIG).is_file():
        return "It is a Python package: use build.executorch: {from: wheel}."
    if (root / "version.txt").is_file():
        inside = [path for path in sorted(root.glob("cmake-*")) if config_dir(path) is not None]
        if inside:
            return f"It is a checkout: name {inside[0]}, which holds an installation, or use from: source."
        return "It is a checkout: use build.executorch: {from: source}."
    for parent in root.parents:
        if config_dir(parent) is not None:
            return f"Name {parent}."
    return f"Name the folder that lib/cmake/ExecuTorch/{CONFIG} stands in (CMAKE_INSTALL_PREFIX of its build)."


def _release_problems(found: Installation) -> Iterator[Problem]:
    host = host_package()
    if found.version is None:
        yield _problem(
            "version",
            f"the ExecuTorch in {found.root} does not say its version (include/executorch/runtime/core/version.h)",
            f"Build and install ExecuTorch {host.release}.",
        )
        return
    ours, theirs = release_numbers(host.release), release_numbers(found.version)
    if theirs < ours or theirs[0] != ours[0]:
        yield _problem(
            "version",
            f"the ExecuTorch in {found.root} is {found.version}, and {host.release} exports the programs and is what the runner is written for",
            f"Build ExecuTorch {host.release} (git checkout v{host.release}), or export with executorch=={found.version}.",
        )


def _component_problems(found: Installation, wanted: Wanted) -> Iterator[Problem]:
    libraries = next((found.files[name] for name in _OPTIMISED if name in found.files), None)
    if libraries is None and found.files:
        yield _problem(
            "debug",
            f"the ExecuTorch in {found.root} was built as {', '.join(found.files).lower()}: it is many times slower than Release",
            "Configure it with -DCMAKE_BUILD_TYPE=Release (--config has no effect with Ninja or Make) and install it again.",
        )
    for name, row in load_executorch().chosen(wanted.components).items():
        absent = [one for one in row.targets if one not in found.targets]
        if absent:
            yield _problem(
                "component",
                f"the ExecuTorch in {found.root} has no {' and no '.join(absent)}, which {name} needs",
                f"Configure it with {' '.join(f'-D{option}=ON' for option in row.options)} and install it again.",
            )
            continue
        gone = [
            file for one in row.targets if (file := (libraries or {}).get(one)) and not (found.root / file).is_file()
        ]
        if gone:
            yield _problem(
                "component",
                f"the ExecuTorch in {found.root} lacks {', '.join(gone)}, which its CMake package names",
                "Install it again: cmake --build TREE --target install.",
            )
            continue
        yield from _empty_libraries(found.root / file for one in row.targets if (file := (libraries or {}).get(one)))


def _empty_libraries(files: Iterable[Path]) -> Iterator[Problem]:
    """Static libraries that hold nothing, as an interrupted build leaves them: a linker takes one in and misses its symbols, or nothing."""
    for file in files:
        if file.suffix != ".a" or file.name == CORE:  # the core is read for its machine
            continue
        try:
            first_object(file, error=ToolError)
        except EtcliError as error:
            yield from error.problems


def _android_problems(found: Installation, wanted: Wanted) -> Iterator[Problem]:
    """What its build tree's cache tells, where that is there."""
    if wanted.android is None or found.cache is None:
        return
    level = _LEVEL.fullmatch(cache_value(found.cache, "ANDROID_PLATFORM") or "")
    if level is not None and int(level[1]) > wanted.android.api_level:
        yield _problem(
            "api_level",
            f"the ExecuTorch in {found.root} was built for API level {level[1]}, and the runner for {wanted.android.api_level}",
            f"Build it with -DANDROID_PLATFORM=android-{wanted.android.api_level}, or set build.api_level to {level[1]}.",
        )


def _machine(package: ExecutorchPackage, target: Target, wanted: Wanted) -> Problem | None:
    library = package.libraries / CORE
    core = first_object(library, error=ToolError)
    if core.machine != target.machine:
        return _problem(
            "machine",
            f"the ExecuTorch in {package.root} is for {core.machine}, {target.name} needs {target.machine}",
            f"Name one that was built for {target.title}.",
        )
    if wanted.android is None or wanted.compiler is None:
        return None
    if core.compiler.startswith("GCC:"):  # which no NDK since r18 has
        return _problem(
            "machine",
            f"the ExecuTorch in {package.root} is for Linux, not for Android: it was compiled by {core.compiler}, and an NDK has clang",
            f"Name one that was built for {target.title}, with -DCMAKE_TOOLCHAIN_FILE={wanted.android.toolchain_file}.",
        )
    ours = int(wanted.compiler.version.split(".")[0])
    if core.clang is not None and core.clang != ours:
        return _problem(
            "other_ndk",
            f"the ExecuTorch in {package.root} was compiled with clang {core.clang} of another NDK, and {wanted.android.ndk} has clang {ours}: "
            "their C++ libraries do not mix",
            "Build it with the same NDK, from a build folder of its own, or name the NDK that built it.",
        )
    return None


def _program(package: ExecutorchPackage, _target: Target, _wanted: Wanted) -> Problem | None:
    ours, theirs = host_package().program_identifier(), package.program_identifier()
    if ours == theirs:
        return None
    return _problem(
        "program",
        f"the ExecuTorch in {package.root} runs programs of format {theirs}, and this Python's exports {ours}",
        f"Build ExecuTorch {host_package().release} (git checkout v{host_package().release}).",
    )


def _problem(code: str, message: str, hint: str) -> Problem:
    return ToolError.problem(message, code=f"executorch.{code}", hint=hint)
