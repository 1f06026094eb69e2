"""Shared libraries compiled with CMake on first use and kept in the cache folder, whatever they are for."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from etcli.common.errors import Problem, Problems, ToolError
from etcli.common.files import remove_tree, write_atomically
from etcli.common.hashing import value_sha256
from etcli.common.locks import exclusive
from etcli.common.process import describe_exit, stream
from etcli.common.workspace import cache_dir
from etcli.output.console import Console
from etcli.tables.op_yaml import DESCRIPTION
from etcli.tables.operators import OperatorLibrary
from etcli.tables.targets import known_target
from etcli.toolchain import cmake, compilers, ninja
from etcli.toolchain.build_failures import (
    compile_errors,
    configure_errors,
    failure,
    first_error_in,
    link_errors_in,
    link_remedy,
    remedy,
)
from etcli.toolchain.compilers import Compiler

P = TypeVar("P")


@dataclass(frozen=True)
class LibraryBuild:
    """One shared library for this machine and how it is made.

    `name` is that of the file without `lib` and `.so`; `project` the text of its CMakeLists.txt, which installs the file into `.`;
    `settings` CMake variables that hold paths of this machine; `determined_by` what else decides what comes out, beside the project, the
    operators' sources and the compiler. `check` is called with a finished file before every use and raises ToolError where it is damaged
    or not what the description says; `prove` once, after it was compiled. `way_out` is a sentence on how to do without the library.
    """

    name: str
    library: OperatorLibrary
    compiler: Compiler
    project: str
    settings: Mapping[str, str]
    determined_by: Mapping[str, object]
    check: Callable[[Path], None]
    way_out: str
    prove: Callable[[Path], None] | None = None


def find_tools(package: Callable[[], P], way_out: str) -> tuple[Compiler, P]:
    """This machine's compiler and the package to compile against, CMake and ninja being there too.

    Raises:
        ToolError: any is missing; all that are missing at once, each with its remedy and the way out.
    """
    problems = Problems()
    compiler = problems.attempt(lambda: compilers.verify(known_target("host")))
    problems.attempt(cmake.find)
    problems.attempt(ninja.find)
    found = problems.attempt(package)
    if problems or compiler is None or found is None:
        raise ToolError.many([_with_way_out(problem, way_out) for problem in problems.found])
    return compiler, found


def built(build: LibraryBuild, console: Console | None = None) -> Path:
    """The shared library, compiled now if the cache does not hold it.

    It is kept under a hash of everything that determines it, so that it is compiled once for any number of processes and recipes, and
    again after a change of any of that.

    Raises:
        ToolError: CMake or ninja is too old; or it does not compile (`operators.configure`, `operators.compile`, `operators.install`) or
            is not what its description says; or the cache folder cannot be written (`operators.cache`).
        UsageError: CMake cannot build where the sources or the cache are (`build.path`).
    """
    key = value_sha256(
        {
            "project": build.project,
            "sources": dict(build.library.hashes),
            **build.determined_by,
            "compiler": [build.compiler.description, build.compiler.stamp],
        }
    )
    folder = cache_dir() / "ops" / key
    path = folder / f"lib{build.name}.so"

    def waiting() -> None:
        if console is not None:
            console.note(f"waiting for another process that compiles {build.name}")

    try:
        if _is_sound(path, build):
            return path
        cmake.check_path(folder, "Set ETCLI_CACHE_DIR to another folder.")
        cmake.check_path(build.library.root, "Move it.")
        with exclusive(folder.with_name(f"{key}.lock"), on_wait=waiting):
            if not _is_sound(path, build):
                remove_tree(folder)
                if console is not None:
                    console.note(f"compiling {build.name} for this machine (once)")
                _compile(build, folder, console)
    except OSError as error:
        raise ToolError(
            f"cannot keep {build.name} in {folder.parent}: {error.strerror or error}",
            code="operators.cache",
            hint="Free some space there, make it writable, or set ETCLI_CACHE_DIR to another folder.",
        ) from error
    return path


def _is_sound(path: Path, build: LibraryBuild) -> bool:
    """Whether the library is there and whole, as one that was cut short is not."""
    try:
        build.check(path)
    except (FileNotFoundError, ToolError):
        return False
    return True


def _compile(build: LibraryBuild, folder: Path, console: Console | None) -> None:
    """Compile in a temporary folder and move the finished library's folder into place."""
    problems = Problems()
    driver = problems.attempt(cmake.verify)
    problems.attempt(ninja.verify)
    if problems or driver is None:
        raise ToolError.many([_with_way_out(problem, build.way_out) for problem in problems.found])
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_name(f"{folder.name}.log")
    with tempfile.TemporaryDirectory(prefix=".building.", dir=folder.parent) as name:
        work = Path(name)
        write_atomically(work / "CMakeLists.txt", build.project)
        configure = [
            *("-G", "Ninja", "-S", str(work), "-B", str(work / "build"), "-DCMAKE_BUILD_TYPE=Release"),
            *(f"-DCMAKE_MAKE_PROGRAM={ninja.find()}", f"-DCMAKE_CXX_COMPILER={build.compiler.path}"),
            *(f"-D{variable}={value}" for variable, value in build.settings.items()),
        ]
        steps = (
            ("configure", configure),
            ("compile", ["--build", str(work / "build")]),
            ("install", ["--install", str(work / "build"), "--prefix", str(work / "done"), "--strip"]),
        )
        for step, arguments in steps:
            _cmake(driver.path, arguments, step, build, log, console)
        done = work / "done" / f"lib{build.name}.so"
        build.check(done)
        if build.prove is not None:
            build.prove(done)
        (work / "done").rename(folder)
    log.unlink(missing_ok=True)


def _cmake(
    program: Path, arguments: list[str], step: str, build: LibraryBuild, log: Path, console: Console | None
) -> None:
    lines: list[str] = []

    def keep(line: str) -> None:
        lines.append(line)
        if console is not None:
            console.detail(f"    {line}")

    env = {**dict.fromkeys(cmake.hidden_variables()), "LC_ALL": "C.UTF-8"}
    code = stream([program, *arguments], keep, env=env, log=log)
    if code == 0:
        return
    if code < 0:
        lines.append(f"cmake was {describe_exit(code)}")
    found = first_error_in(lines, build.library.root) if build.library.own else None
    if found is not None:
        raise ToolError(
            "\n    ".join((f"{found.message} (operator library {build.library.name})", *found.more)),
            code=f"operators.{step}",
            hint=f"{remedy([found.message]) or 'Correct the source.'} Log: {log}",
            file=found.file,
            line=found.line,
            column=found.column,
        )
    if build.library.own and step == "compile" and (unlinked := link_errors_in(lines)):
        description = build.library.root / DESCRIPTION
        raise ToolError(
            "".join((f"{build.name} does not link:", *(f"\n    {line}" for line in unlinked))),
            code="operators.compile",
            hint=f"{link_remedy(unlinked, description)} Log: {log}",
            file=description,
        )
    errors = compile_errors(lines) if step == "compile" else configure_errors(lines)
    explained = failure(f"{build.name} does not {step} here", lines, errors)
    raise ToolError(
        explained.message,
        code=f"operators.{step}",
        hint=f"{explained.hint} Log: {log}. {build.way_out}",
        file=log,
    )


def _with_way_out(problem: Problem, way_out: str) -> Problem:
    # A hint may end with a command, which its reader should not run together with a sentence.
    hint = f"{problem.hint.removesuffix('.')}. {way_out}" if problem.hint else way_out
    return ToolError.problem(problem.message, code=problem.code, hint=hint, file=problem.file)
