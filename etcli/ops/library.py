"""Compiled operators for ExecuTorch's Python runtime: built on first use, kept in the cache folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

from etcli.common.assets import asset_dir
from etcli.common.errors import Problem, Problems, ToolError
from etcli.common.files import remove_tree, write_atomically
from etcli.common.hashing import value_sha256
from etcli.common.locks import exclusive
from etcli.common.process import describe_exit, stream
from etcli.common.templating import render
from etcli.common.workspace import cache_dir
from etcli.output.console import Console
from etcli.tables.operators import ATTENTION, OperatorLibrary, read_operators
from etcli.tables.targets import buildable_target
from etcli.toolchain import cmake, compilers, executorch, ninja
from etcli.toolchain.build_failures import compile_errors, configure_errors, remedy
from etcli.toolchain.compilers import Compiler
from etcli.toolchain.executorch import ExecutorchPackage
from etcli.toolchain.registrations import read_registrations

_WITHOUT = "Or do without it: export with export.cache: shift, or do not run what is exported (--no-verify)."


def attention_library(console: Console | None = None) -> Path:
    """`libetcli_attention.so` for the ExecuTorch of this Python: `etcli::ring_attention.out` and `etcli::last_row.out`.

    See `built_library`.
    """
    return built_library(read_operators(asset_dir("native") / ATTENTION), console)


def built_library(library: OperatorLibrary, console: Console | None = None) -> Path:
    """The shared library of `library` for the ExecuTorch of this Python, compiled now if the cache does not hold it.

    It is kept under a hash of everything that determines it, so that it is compiled once for any number of processes and recipes, and
    again after a change of sources, compiler or ExecuTorch.

    Raises:
        ToolError: compiler, CMake, ninja or ExecuTorch is missing, each with its remedy; or it does not compile
            (`operators.configure`, `operators.compile`); or the cache folder cannot be written (`operators.cache`).
        BuildError: the description of the library is wrong.
    """
    problems = Problems()
    compiler = problems.attempt(lambda: compilers.verify(buildable_target("host")))
    problems.attempt(cmake.find)
    problems.attempt(ninja.find)
    package = problems.attempt(executorch.host_package)
    if problems or compiler is None or package is None:
        raise ToolError.many([_with_way_out(problem) for problem in problems.found])
    text = _project(library, compiler, package)
    key = value_sha256(
        {
            "project": text,
            "sources": dict(library.hashes),
            "executorch": [package.version, package.commit],
            "compiler": [compiler.description, compiler.stamp],
        }
    )
    folder = cache_dir() / "ops" / key
    path = folder / f"lib{library.name}.so"

    def waiting() -> None:
        if console is not None:
            console.note(f"waiting for another process that compiles {library.name}")

    try:
        if _is_sound(path, library):
            return path
        with exclusive(folder.with_name(f"{key}.lock"), on_wait=waiting):
            if not _is_sound(path, library):
                remove_tree(folder)
                if console is not None:
                    console.note(f"compiling {library.name} for this machine (once)")
                _build(library, compiler, package, text, folder, console)
    except OSError as error:
        raise ToolError(
            f"cannot keep {library.name} in {folder.parent}: {error.strerror or error}",
            code="operators.cache",
            hint="Free some space there, make it writable, or set ETCLI_CACHE_DIR to another folder.",
        ) from error
    return path


def _is_sound(path: Path, library: OperatorLibrary) -> bool:
    """Whether the library is there and registers its operators, as one that was cut short does not."""
    try:
        return read_registrations(path, error=ToolError).operators == library.operators
    except (FileNotFoundError, ToolError):
        return False


def _project(library: OperatorLibrary, compiler: Compiler, package: ExecutorchPackage) -> str:
    return render(
        "custom_op.CMakeLists.txt.j2",
        library=library,
        triple=compiler.triple,
        cmake_minimum=cmake.MINIMUM,
        executorch_release=package.release,
    )


def _build(
    library: OperatorLibrary,
    compiler: Compiler,
    package: ExecutorchPackage,
    text: str,
    folder: Path,
    console: Console | None,
) -> None:
    """Compile in a temporary folder and move the finished library's folder into place."""
    problems = Problems()
    driver = problems.attempt(cmake.verify)
    problems.attempt(ninja.verify)
    if problems or driver is None:
        raise ToolError.many([_with_way_out(problem) for problem in problems.found])
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_name(f"{folder.name}.log")
    with tempfile.TemporaryDirectory(prefix=".building.", dir=folder.parent) as name:
        work = Path(name)
        write_atomically(work / "CMakeLists.txt", text)
        configure = [
            *("-G", "Ninja", "-S", str(work), "-B", str(work / "build"), "-DCMAKE_BUILD_TYPE=Release"),
            *(f"-DCMAKE_MAKE_PROGRAM={ninja.find()}", f"-DCMAKE_CXX_COMPILER={compiler.path}"),
            *(f"-Dexecutorch_DIR={package.cmake_dir}", f"-DETCLI_OPERATOR_DIR={library.root}"),
        ]
        steps = (
            ("configure", configure),
            ("compile", ["--build", str(work / "build")]),
            ("install", ["--install", str(work / "build"), "--prefix", str(work / "done"), "--strip"]),
        )
        for step, arguments in steps:
            _cmake(driver.path, arguments, step, library, log, console)
        built = work / "done" / f"lib{library.name}.so"
        found = read_registrations(built, error=ToolError).operators
        if found != library.operators:
            raise ToolError(
                f"{library.name} registers {', '.join(found) or 'nothing'}, and its description says {', '.join(library.operators)}",
                code="operators.registrations",
                hint="Make the sources and op.yaml agree.",
                file=library.root,
            )
        (work / "done").rename(folder)
    log.unlink(missing_ok=True)


def _cmake(
    program: Path, arguments: list[str], step: str, library: OperatorLibrary, log: Path, console: Console | None
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
    errors = compile_errors(lines) if step == "compile" else configure_errors(lines)
    raise ToolError(
        f"{library.name} does not {step} here:" + "".join(f"\n    {line}" for line in errors),
        code=f"operators.{step}",
        hint=f"{remedy(errors) or 'See the whole log.'} Log: {log}. {_WITHOUT}",
        file=log,
    )


def _with_way_out(problem: Problem) -> Problem:
    hint = f"{problem.hint} {_WITHOUT}" if problem.hint else _WITHOUT
    return ToolError.problem(problem.message, code=problem.code, hint=hint, file=problem.file)
