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
    # With 8-bit activations a difference in the last bit moves activations by whole steps, and from layer to layer more of them: eager PyTorch
    # itself, on inputs changed by 1e-7, gives results that differ by 0.05 after six layers of the default model. Wrong weights give 1 and more.
    precisions: Mapping[str, float] = field(
        default_factory=lambda: {"fp32": 1e-4, "fp16": 1e-4, "8da4w": 0.25, "8da8w": 0.25}
    )

    def lower(self, programs: Mapping[str, ExportedProgram], half: Collection[str] = ()) -> ExecutorchProgramManager:
        """As `Backend.lower`."""
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        from etcli.export.backends.xnnpack_half import half_filters

        with half_filters(half):
            return lower_with(programs, [XnnpackPartitioner()])
