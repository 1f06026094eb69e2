"""An operator library of the user's own in this machine's Python: compiled for ExecuTorch's runtime, and loaded into it."""

from __future__ import annotations

import os
from pathlib import Path

from etcli.common.errors import UsageError
from etcli.ops.library import built_library
from etcli.ops.loading import load_into_executorch
from etcli.ops.torch_library import torch_library
from etcli.output.console import Console
from etcli.tables.op_yaml import DESCRIPTION
from etcli.tables.operators import OperatorLibrary, read_operators

_WITHOUT = "A build for a device needs none of this: list the folder in build.custom_ops."


def described(folder: str | os.PathLike[str]) -> OperatorLibrary:
    """The operator library in `folder`.

    Raises:
        UsageError: there is no such folder, or its `op.yaml` is missing or wrong: every fault with its line.
    """
    root = Path(folder).expanduser().absolute()
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
