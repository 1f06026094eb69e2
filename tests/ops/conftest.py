"""The compiled operators loaded into this process, and what runs programs with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from operator_programs import Tensors, lowered

from etcli.ops.library import aqlm_library, attention_library
from etcli.ops.loading import load_into_executorch


@pytest.fixture(scope="session")
def loaded_library() -> Path:
    """The compiled operators, loaded into this process."""
    path = attention_library()
    load_into_executorch(path)
    return path


@pytest.fixture(scope="session")
def loaded_aqlm() -> Path:
    """The compiled AQLM operators, loaded into this process."""
    path = aqlm_library()
    load_into_executorch(path)
    return path


@pytest.fixture
def run_program(loaded_library: Path, tmp_path: Path) -> Callable[..., list[torch.Tensor]]:
    """`run_program(module, inputs)` lowers a module and runs it in ExecuTorch's Python runtime."""

    def run(
        module: torch.nn.Module,
        inputs: Tensors,
        given: Tensors | None = None,
        *,
        in_place: Mapping[int, int] | None = None,
    ) -> list[torch.Tensor]:
        from executorch.runtime import Runtime

        path = tmp_path / "program.pte"
        path.write_bytes(lowered(module, inputs, in_place=in_place))
        method: Any = Runtime.get().load_program(path).load_method("forward")
        return list(method.execute(given or inputs))

    return run
