"""The Backend interface, and how an exported program becomes a `.pte` for most of them.

Backends are named in the parent process, which never imports torch; so torch and ExecuTorch are imported inside the functions that
only a worker calls.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from etcli.export.job import PrecisionSettings

if TYPE_CHECKING:
    from executorch.exir import EdgeCompileConfig, ExecutorchProgramManager
    from executorch.exir.backend.partitioner import Partitioner
    from torch.export import ExportedProgram


class Backend(Protocol):
    """A way to make programs of chunks. Most are a `ModuleBackend`; `neuron` quantises graphs and has workers of its own (`export/neuron`)."""

    @property
    def name(self) -> str:
        """As `export.backend` names it."""

    @property
    def delegate(self) -> str | None:
        """The delegate's id in a `.pte`, None where everything stays with the portable kernels."""

    @property
    def precisions(self) -> Mapping[str, float]:
        """Supported precisions of linears, each with the tolerance of the comparison with eager, equally quantised, after export.

        The tolerance is the largest absolute difference, divided by the largest absolute value that eager gives for the tensor (at
        least 1). What rounding of activations may add is measured for each chunk (`verification.Expected`).
        """


class ModuleBackend(Backend, Protocol):
    """One that lowers chunks whose modules are quantised."""

    def lower(self, programs: Mapping[str, ExportedProgram], half: Collection[str] = ()) -> ExecutorchProgramManager:
        """All methods of a chunk as one program with shared weights, graph inputs and outputs left to the caller's memory.

        Args:
            programs: by method name.
            half: weights of linears, by parameter name, to write as float16, which holds their values exactly; products stay float32.
        """


def tolerance(backend: Backend, settings: PrecisionSettings) -> float:
    """What a chunk of these precisions may differ from eager: the most that one of them may."""
    return max(backend.precisions[settings.precision], backend.precisions[settings.head])


def lower_with(
    programs: Mapping[str, ExportedProgram],
    partitioners: Sequence[Partitioner],
    compile_config: EdgeCompileConfig | None = None,
) -> ExecutorchProgramManager:
    """Lower through `to_edge_transform_and_lower`.

    One call for all methods: the weights that they share are written once. Inputs and outputs stay out of the memory plan, because the
    runner binds one buffer as a cache's input and output and hands a chunk's output to the next chunk as it is; a program with planned
    outputs refuses that.
    """
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes import MemoryPlanningPass

    # sorted: the order of methods in the file must not depend on how the recipe lists its shapes
    ordered: dict[str, Any] = {name: programs[name] for name in sorted(programs)}
    edge = to_edge_transform_and_lower(ordered, partitioner=list(partitioners), compile_config=compile_config)
    plan = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    return edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=plan))
