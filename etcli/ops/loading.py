"""Compiled operators loaded into this process, for ExecuTorch's Python runtime or PyTorch's dispatcher to find."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from etcli.common.errors import ToolError
from etcli.toolchain.registrations import read_registrations

_lock = threading.Lock()
_in_executorch: dict[str, Path] = {}
_in_torch: dict[str, Path] = {}
"""Operator name to the library of ours that registered it."""


def load_into_executorch(path: Path) -> None:
    """Load the operator library `path`, so that `executorch.runtime` runs programs that need it. Loading it again does nothing.

    A library stays for the life of the process. Registering a name a second time would end the process, so that is refused first.

    Raises:
        ToolError: `elf.missing`, `elf.invalid`: the file is missing or damaged;
            `operators.unreadable`: it needs what this process does not have;
            `operators.twice`: something else has registered an operator of the same name.
    """
    path = path.resolve()
    with _lock:
        names = read_registrations(path, error=ToolError).operators
        if names and all(_in_executorch.get(name) == path for name in names):
            return
        # Its import loads libexecutorch.so, where the registry is: the library has no path to one of its own.
        # portable_lib has the same function, and would import the whole exporter.
        import torch  # noqa: F401 - the compiled runtime needs its libraries
        from executorch.extension.pybindings._C import _get_operator_names

        _refuse_taken(path, set(names) & set(_get_operator_names()), _in_executorch)
        _load(path, "ExecuTorch")
        _in_executorch.update(dict.fromkeys(names, path))


def load_into_torch(path: Path, operators: Sequence[str]) -> None:
    """Load the library `path` that binds `operators` (as `aqlm::code2x8_lut_matmat`) to PyTorch. Loading it again does nothing.

    Its kernels for the CPU go before kernels in Python for every device, and stay for the life of the process. A kernel for the CPU that
    is there already is not replaced: that is refused.

    Raises:
        ToolError: `elf.missing`, `elf.invalid`: the file is missing or damaged;
            `operators.unreadable`: it needs what this process does not have;
            `operators.twice`: something else has registered a kernel for the CPU;
            `operators.registrations`: an operator has no kernel for the CPU after all.
    """
    path = path.resolve()
    with _lock:
        if operators and all(_in_torch.get(name) == path for name in operators):
            return
        read_registrations(path, error=ToolError)  # a file that was cut short would end the process
        _refuse_taken(path, _with_cpu_kernel(operators), _in_torch)
        _load(path, "PyTorch")
        _in_torch.update(dict.fromkeys(operators, path))
        if missing := sorted(set(operators) - _with_cpu_kernel(operators)):
            raise ToolError(
                f"{path} registers no CPU kernel for {', '.join(missing)}",
                code="operators.registrations",
                hint="Make its sources and op.yaml agree.",
                file=path,
            )


def is_in_torch(operators: Iterable[str]) -> bool:
    """Whether libraries of ours that were loaded into this process have bound all of `operators` to PyTorch."""
    with _lock:
        return all(name in _in_torch for name in operators)


def _with_cpu_kernel(operators: Iterable[str]) -> set[str]:
    import torch

    there = set(torch._C._dispatch_get_all_op_names())
    return {name for name in operators if name in there and torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")}


def _refuse_taken(path: Path, taken: set[str], owners: dict[str, Path]) -> None:
    if not taken:
        return
    by = sorted({str(owners.get(name, "another library")) for name in taken})
    raise ToolError(
        f"{path} registers {', '.join(sorted(taken))}, which {', '.join(by)} has registered in this process",
        code="operators.twice",
        hint="Load only one of them.",
        file=path,
    )


def _load(path: Path, user: str) -> None:
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        raise ToolError(
            f"cannot load {path}: {error}",
            code="operators.unreadable",
            hint=f"It was compiled for another {user} or another machine; remove it, it is compiled again when it is needed.",
            file=path,
        ) from None
