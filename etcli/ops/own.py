"""An operator library of the user's own in this machine's Python: its schemas for export, its kernels for ExecuTorch's runtime."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from etcli.common.errors import UsageError
from etcli.common.paths import written_path
from etcli.ops.library import built_library
from etcli.ops.loading import load_into_executorch, load_into_torch
from etcli.ops.schemas import functional_schema, registered_schema
from etcli.ops.torch_library import torch_library, torch_operators
from etcli.output.console import Console
from etcli.tables.op_yaml import DESCRIPTION
from etcli.tables.operators import OperatorLibrary, read_operators

_WITHOUT = "A build for a device needs none of this: list the folder in build.custom_ops."

_defined: list[Any] = []
"""PyTorch forgets what a `torch.library.Library` defined when the object goes."""


def described(folder: str | os.PathLike[str]) -> OperatorLibrary:
    """The operator library in `folder`.

    Raises:
        UsageError: there is no such folder, or its `op.yaml` is missing or wrong: every fault with its line.
    """
    root = written_path(folder)
    if not root.is_dir():
        raise UsageError(
            f"there is no folder {root}",
            code="operators.missing",
            hint=f"Name the folder that {DESCRIPTION} stands in.",
        )
    return read_operators(root, own=True, error=UsageError)


def own_library(folder: str | os.PathLike[str], console: Console | None = None) -> Path:
    """The shared library of the operators in `folder` for the ExecuTorch of this Python, compiled unless the cache holds it.

    Raises:
        UsageError: as `described`.
        ToolError: as `ops.library.built_library`; a fault of a source has the source's file and line.
    """
    return built_library(described(folder), console, way_out=_WITHOUT)


def own_torch_library(folder: str | os.PathLike[str], console: Console | None = None) -> Path:
    """The shared library that binds the operators in `folder` to PyTorch, from what `op.yaml` names under `torch`.

    Raises:
        UsageError: as `described`.
        ToolError, BuildError: as `ops.torch_library.torch_library`.
    """
    return torch_library(described(folder), console)


def load_own(folder: str | os.PathLike[str], console: Console | None = None) -> Path:
    """Compile the operators in `folder` for this machine and load them, so that `executorch.runtime` runs programs that need them.

    Raises:
        UsageError, ToolError: as `own_library` and `ops.loading.load_into_executorch`.
    """
    path = own_library(folder, console)
    load_into_executorch(path)
    return path


def load_own_torch(folder: str | os.PathLike[str], console: Console | None = None) -> Path:
    """Define the schemas in `folder` with PyTorch, compile its binding and load it: eager PyTorch then runs the compiled kernels on the CPU.

    Raises:
        UsageError: as `define_own`.
        ToolError, BuildError: as `own_torch_library` and `ops.loading.load_into_torch`.
    """
    library = described(folder)
    path = torch_library(library, console)
    define_own(folder)
    load_into_torch(path, torch_operators(library))
    return path


def define_own(folder: str | os.PathLike[str]) -> tuple[str, ...]:
    """Define the schemas in `folder`'s `op.yaml` with PyTorch, so that programs with its operators can be exported; nothing is compiled.

    Of each `.out` form the functional form is defined too, which is what models call. What PyTorch has already is left as it is. Eager PyTorch
    still needs a kernel: `torch.library.impl("NAMESPACE::NAME", "default", function)`, which tracing takes the shapes from as well.

    Returns:
        The operators that models call, as `shout::twice`.

    Raises:
        UsageError: as `described`; or `operators.schema`, PyTorch does not take a schema.
    """
    import torch

    library = described(folder)
    fragment: Any = torch.library.Library(library.namespace, "FRAGMENT")  # type: ignore[no-untyped-call] # PyTorch leaves it so
    _defined.append(fragment)
    called = []
    for schema in library.schemas:
        functional = functional_schema(schema)
        for text in dict.fromkeys((functional, schema)):
            name, _, overload = text.partition("(")[0].partition(".")
            try:
                if registered_schema(f"{library.namespace}::{name}", overload) is None:
                    fragment.define(text)
            except (RuntimeError, ValueError) as error:
                why = next(iter(str(error).strip().splitlines()), type(error).__name__)
                raise UsageError(
                    f"PyTorch does not take the schema {text}: {why}",
                    code="operators.schema",
                    hint="Write it as PyTorch's native functions are: twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
                    file=library.root / DESCRIPTION,
                ) from None
        called.append(f"{library.namespace}::{functional.partition('(')[0]}")
    return tuple(dict.fromkeys(called))
