"""Compiled operators for ExecuTorch's Python runtime: built on first use, kept in the cache folder."""

from __future__ import annotations

from pathlib import Path

from etcli.common.assets import asset_dir
from etcli.common.errors import ToolError
from etcli.common.templating import render
from etcli.ops.building import LibraryBuild, built, find_tools
from etcli.ops.trial import tried_apart
from etcli.output.console import Console
from etcli.tables.operators import AQLM, ATTENTION, OperatorLibrary, read_operators
from etcli.toolchain import cmake, executorch
from etcli.toolchain.registrations import read_registrations

_NO_VERIFY = "do not run what is exported (--no-verify)."
_WITHOUT = f"Or do without it: {_NO_VERIFY}"
_WITHOUT_ATTENTION = f"Or do without it: export with export.cache: shift, or {_NO_VERIFY}"

_TRIAL = """\
import sys
from pathlib import Path
from etcli.ops.loading import load_into_executorch
load_into_executorch(Path(sys.argv[1]))
"""


def attention_library(console: Console | None = None) -> Path:
    """`libetcli_attention.so` for the ExecuTorch of this Python: `etcli::ring_attention.out` and `etcli::last_row.out`.

    See `built_library`.
    """
    return built_library(read_operators(asset_dir("native") / ATTENTION), console, way_out=_WITHOUT_ATTENTION)


def aqlm_library(console: Console | None = None) -> Path:
    """`libetcli_aqlm_ops.so` for the ExecuTorch of this Python: `aqlm::code2x8_lut_matmat.out` and `aqlm::code1x8_lut_matmat.out`.

    See `built_library`.
    """
    return built_library(read_operators(asset_dir("native") / AQLM), console)


def built_library(library: OperatorLibrary, console: Console | None = None, *, way_out: str = _WITHOUT) -> Path:
    """The shared library of `library` for the ExecuTorch of this Python, compiled now if the cache does not hold it.

    It is kept under a hash of everything that determines it, so that it is compiled once for any number of processes and recipes, and
    again after a change of sources, compiler or ExecuTorch; one of the user's own is then loaded once in another process. `way_out` ends
    the hint of most errors: how to do without the library.

    Raises:
        ToolError: compiler, CMake, ninja or ExecuTorch is missing, each with its remedy; or it does not compile
            (`operators.configure`, `operators.compile`) or registers other operators than it says, or ends the process that loads it
            (`operators.registrations`); or the cache folder cannot be written (`operators.cache`).
        BuildError: the description of the library is wrong.
    """
    compiler, package = find_tools(executorch.host_package, way_out)
    project = render(
        "custom_op.CMakeLists.txt.j2",
        library=library,
        triple=compiler.triple,
        cmake_minimum=cmake.MINIMUM,
        executorch_release=package.release,
    )

    def check(path: Path) -> None:
        found = read_registrations(path, error=ToolError).operators
        if found != library.operators:
            raise ToolError(
                f"{library.name} registers {', '.join(found) or 'nothing'}, and its description says {', '.join(library.operators)}",
                code="operators.registrations",
                hint="Make the sources and op.yaml agree.",
                file=library.root,
            )

    def prove(path: Path) -> None:
        tried_apart(_TRIAL, str(path), path.parent, lambda why: _wrong(library, why))

    build = LibraryBuild(
        name=library.name,
        library=library,
        compiler=compiler,
        project=project,
        settings={"executorch_DIR": str(package.cmake_dir), "ETCLI_OPERATOR_DIR": str(library.root)},
        determined_by={"executorch": [package.version, package.commit]},
        check=check,
        way_out=way_out,
        prove=prove if library.own else None,
    )
    return built(build, console)


def _wrong(library: OperatorLibrary, why: str) -> ToolError:
    return ToolError(
        f"{library.name} cannot be used: {why}",
        code="operators.registrations",
        hint="Look at what its sources do when they are loaded: an operator is registered once, and nothing else is done.",
        file=library.root,
    )
