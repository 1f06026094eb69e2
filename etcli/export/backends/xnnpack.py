"""Backend `xnnpack`: CPU kernels of the XNNPACK library. A chunk's network is one delegate call a method."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etcli.export.backends.base import lower_with

if TYPE_CHECKING:
    from executorch.exir import ExecutorchProgramManager
    from torch.export import ExportedProgram


@dataclass(frozen=True)
class Xnnpack:
    """XNNPACK's own partitioner over the whole graph."""

    name: str = "xnnpack"
    delegate: str | None = "XnnpackBackend"
    precisions: Mapping[str, float] = field(
        default_factory=lambda: {"fp32": 1e-4, "fp16": 1e-4, "8da4w": 1e-4, "8da8w": 1e-4, "aqlm": 1e-4}
    )

    def lower(self, programs: Mapping[str, ExportedProgram], half: Collection[str] = ()) -> ExecutorchProgramManager:
        """As `Backend.lower`."""
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        from etcli.export.backends.xnnpack_half import half_filters

        with half_filters(half):
            return lower_with(programs, [XnnpackPartitioner()])
