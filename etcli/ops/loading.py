"""Compiled operators loaded into this process, for ExecuTorch's Python runtime to find."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

from etcli.common.errors import ToolError
from etcli.toolchain.registrations import read_registrations

_lock = threading.Lock()
_loaded: dict[str, Path] = {}
"""Operator name to the library of ours that registered it."""


def load_into_executorch(path: Path) -> None:
    """Load the operator library `path`, so that `executorch.runtime` runs programs that need it. Loading it again does nothing.

    A library stays for the life of the process. Registering a name a second time would end the process, so that is refused first.

    Raises:
        ToolError: `operators.unreadable`: the file is missing, damaged, or needs what this process does not have;
            `operators.twice`: something else has registered an operator of the same name.
    """
    path = path.resolve()
    with _lock:
        names = read_registrations(path, error=ToolError).operators
        if names and all(_loaded.get(name) == path for name in names):
            return
        # Its import loads libexecutorch.so, where the registry is: the library has no path to one of its own.
        # portable_lib has the same function, and would import the whole exporter.
        import torch  # noqa: F401 - the compiled runtime needs its libraries
        from executorch.extension.pybindings._C import _get_operator_names

        taken = sorted(set(names) & set(_get_operator_names()))
        if taken:
            owners = sorted({str(_loaded.get(name, "another library")) for name in taken})
            raise ToolError(
                f"{path} registers {', '.join(taken)}, which {', '.join(owners)} has registered in this process",
                code="operators.twice",
                hint="Load only one of them.",
                file=path,
            )
        try:
            ctypes.CDLL(str(path))
        except OSError as error:
            raise ToolError(
                f"cannot load {path}: {error}",
                code="operators.unreadable",
                hint="It was compiled for another ExecuTorch or another machine; remove it, it is compiled again when it is needed.",
                file=path,
            ) from None
        _loaded.update(dict.fromkeys(names, path))
