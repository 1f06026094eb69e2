"""Operators bound to PyTorch's dispatcher: compiled on first use against the PyTorch of this Python, kept in the cache folder."""

from __future__ import annotations

import json
from pathlib import Path

from etcli.common.errors import BuildError, ToolError
from etcli.common.templating import render
from etcli.ops.building import LibraryBuild, built, find_tools
from etcli.ops.schemas import functional_schema
from etcli.ops.trial import tried_apart
from etcli.output.console import Console
from etcli.tables.op_yaml import DESCRIPTION
from etcli.tables.operators import OperatorLibrary
from etcli.toolchain import cmake
from etcli.toolchain.elf import read_elf
from etcli.toolchain.pytorch import host_torch
from etcli.toolchain.registrations import read_registrations

_WITHOUT = "Or do without it: PyTorch then needs kernels for these operators from elsewhere."

# A library that cannot be loaded, or that registers what PyTorch does not take, ends the process.
_TRIAL = """\
import json
import sys
import torch
path, namespace, schemas, names = json.loads(sys.argv[1])
fragment = torch.library.Library(namespace, "FRAGMENT")
for schema in schemas:
    fragment.define(schema)
torch.ops.load_library(path)
print(*(name for name in names if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")))
"""


def torch_operators(library: OperatorLibrary) -> tuple[str, ...]:
    """What a binding of `library` has kernels for: the functional form of each operator, which is what models call.

    That of `aqlm::code2x8_lut_matmat.out` is `aqlm::code2x8_lut_matmat`, that of `shout::scaled.Scalar_out` is `shout::scaled.Scalar`.
    """
    names = {functional_schema(schema).partition("(")[0] for schema in library.schemas}
    return tuple(sorted(f"{library.namespace}::{name}" for name in names))


def torch_library(library: OperatorLibrary, console: Console | None = None, *, way_out: str = _WITHOUT) -> Path:
    """The shared library that registers CPU kernels of `library` with PyTorch, `lib<name>_torch.so`; compiled now if the cache lacks it.

    It is compiled as C++20 from the sources that op.yaml names under `torch`, with those of this machine's architecture, and linked with
    the PyTorch of this Python alone; `at::parallel_for` runs on PyTorch's own threads. It has to register a kernel for the CPU for every
    operator's functional form, where PyTorch has the schemas of op.yaml already; this is tried once in another process. `load_into_torch`
    loads it into this one. `way_out` ends the hint of most errors: how to do without the library.

    Raises:
        ToolError: compiler, CMake, ninja or PyTorch is missing, each with its remedy; or it does not compile (`operators.configure`,
            `operators.compile`), or cannot be loaded or registers too little (`operators.registrations`); or the cache folder cannot be
            written (`operators.cache`).
        BuildError: `operators.no_torch`: the library has no binding to PyTorch.
    """
    if not library.torch:
        raise BuildError(
            f"{library.name} has no binding to PyTorch",
            code="operators.no_torch",
            hint="Name its sources under torch: in op.yaml.",
            file=library.root / DESCRIPTION,
        )
    compiler, package = find_tools(host_torch, way_out)
    name = f"{library.name}_torch"
    # Clang's own OpenMP would be a second one in the process, with threads of its own; without it the kernels run on one thread.
    openmp = package.openmp is not None and compiler.kind == "gcc"
    project = render(
        "torch_binding.CMakeLists.txt.j2",
        library=library,
        name=name,
        triple=compiler.triple,
        cmake_minimum=cmake.MINIMUM,
        include_dirs=[path.relative_to(package.root).as_posix() for path in package.include_dirs],
        libraries=[path.relative_to(package.root).as_posix() for path in package.libraries],
        # PyTorch's headers ask for C++20, whatever the sources were written for.
        flags=[flag for flag in library.flags if not flag.startswith("-std=")],
        openmp=openmp,
    )

    def check(path: Path) -> None:
        if read_registrations(path, error=ToolError).operators or "libtorch_cpu.so" not in read_elf(path).needed:
            raise _wrong(library, "it is no binding to PyTorch")

    def prove(path: Path) -> None:
        schemas = dict.fromkeys(form for schema in library.schemas for form in (functional_schema(schema), schema))
        given = json.dumps([str(path), library.namespace, list(schemas), torch_operators(library)])
        if missing := tried_apart(_TRIAL, given, path.parent, lambda why: _wrong(library, why)).split():
            raise _wrong(library, f"it has no CPU kernel for {', '.join(missing)}")

    build = LibraryBuild(
        name=name,
        library=library,
        compiler=compiler,
        project=project,
        settings={"TORCH_ROOT": str(package.root), "ETCLI_OPERATOR_DIR": str(library.root)},
        determined_by={"torch": [package.version, package.commit]},
        check=check,
        way_out=way_out,
        prove=prove,
    )
    return built(build, console)


def _wrong(library: OperatorLibrary, why: str) -> ToolError:
    return ToolError(
        f"the PyTorch binding of {library.name} cannot be used: {why}",
        code="operators.registrations",
        hint="Have the sources under torch: in op.yaml register a kernel for every operator with TORCH_LIBRARY_IMPL(.., CPU, ..), and "
        "leave m.def out: the schemas are those of op.yaml.",
        file=library.root,
    )
