"""Backend `portable`: every operator through ExecuTorch's portable kernels. Slow, and right everywhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etcli.export.backends.base import lower_with
from etcli.export.backends.half import keep_as_half

if TYPE_CHECKING:
    from executorch.exir import ExecutorchProgramManager
    from torch.export import ExportedProgram


@dataclass(frozen=True)
class Portable:
    """No delegate."""

    name: str = "portable"
    delegate: str | None = None
    precisions: Mapping[str, float] = field(default_factory=lambda: {"fp32": 1e-4, "fp16": 1e-4, "aqlm": 1e-4})

    def lower(self, programs: Mapping[str, ExportedProgram], half: Collection[str] = ()) -> ExecutorchProgramManager:
        """As `Backend.lower`."""
        for program in programs.values():
            keep_as_half(program, half)
        return lower_with(programs, [])
