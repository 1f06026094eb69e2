"""Backend `neuron`: MediaTek's NPU, through the partitioner and preprocess of the executorch wheel, which call the vendor's converter and
compiler. Where those come from (an SDK, or `simulated_sdk()`) is settled before anything here is called.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etcli.recipe.neuron import DEFAULT_SPECS, RESERVED_SPECS, RUNTIME_SPECS

if TYPE_CHECKING:
    from executorch.exir import ExecutorchProgramManager
    from executorch.exir.backend.compile_spec_schema import CompileSpec
    from torch.export import ExportedProgram

DELEGATE = "NeuropilotBackend"
"""The delegate's id in a `.pte`."""


@dataclass(frozen=True)
class Neuron:
    """MediaTek's partitioner over the whole graph, quantised as a graph by ExecuTorch's quantiser for it."""

    name: str = "neuron"
    delegate: str | None = DELEGATE
    precisions: Mapping[str, float] = field(
        default_factory=lambda: {"A16W4": 1e-4, "A16W8": 1e-4, "A16W16": 1e-4, "A8W4": 1e-4, "A8W8": 1e-4}
    )


def compile_specs(
    platform: str, *, shared_key: str | None = None, additions: Mapping[str, str] | None = None
) -> list[CompileSpec]:
    """The compile specs of a chunk, in the order of the compiler's options.

    Args:
        platform: the SoC's id, as `mt6991`.
        shared_key: the name in the program under which all methods find their weights; None keeps each method's in itself.
        additions: more of them, or other values for `DEFAULT_SPECS`; an empty value is an option without one.

    Raises:
        ValueError: an addition that is not for the user to say, or no `1` or `0` for one of `RUNTIME_SPECS`.
    """
    from executorch.exir.backend.compile_spec_schema import CompileSpec

    additions = additions or {}
    for key in additions:
        if key in RESERVED_SPECS:
            raise ValueError(f"compile spec {key} cannot be given: {RESERVED_SPECS[key]}")
    texts = {**DEFAULT_SPECS, **additions}
    specs = [
        CompileSpec(key, _runtime_byte(key, text) if key in RUNTIME_SPECS else text.encode())
        for key, text in texts.items()
    ]
    specs.append(CompileSpec("platform-config", platform.encode()))
    if shared_key is not None:
        specs.append(CompileSpec("ExtractSharedBlobKey", shared_key.encode()))
    return specs


def lower_neuron(programs: Mapping[str, ExportedProgram], specs: list[CompileSpec]) -> ExecutorchProgramManager:
    """All methods of a chunk as one program, compiled for the NPU, graph inputs and outputs left to the caller's memory.

    Args:
        programs: quantised, by method name.
        specs: as `compile_specs` makes them, the same for every method.

    All methods go through one call, since only so ExecuTorch hands their networks to the compiler together, which shares the weights. Nodes of
    `programs` lose what says which line of Python they come from.
    """
    from executorch.backends.mediatek.partitioner import NeuropilotPartitioner
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
    from executorch.exir.passes import MemoryPlanningPass

    ordered: dict[str, Any] = {name: programs[name] for name in sorted(programs)}
    for program in ordered.values():
        _forget_where_nodes_come_from(program)
    with _runtime_specs_kept_from_the_compiler():
        edge = to_edge(ordered, compile_config=EdgeCompileConfig(_check_ir_validity=False)).to_backend(
            {name: NeuropilotPartitioner(specs) for name in ordered}
        )
    plan = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    return edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=plan, extract_delegate_segments=True))


def _forget_where_nodes_come_from(program: ExportedProgram) -> None:
    """Each of ExecuTorch's passes copies the history of every node and adds to it: a quarter of the time, and nobody reads it."""
    for node in program.graph.nodes:
        for key in ("from_node", "nn_module_stack", "source_fn_stack", "stack_trace", "torch_fn"):
            node.meta.pop(key, None)


@contextlib.contextmanager
def _runtime_specs_kept_from_the_compiler() -> Iterator[None]:
    """ExecuTorch 1.5.1 hands every spec to the compiler but ImportForever; HighAddr would arrive there as an option."""
    from executorch.backends.mediatek import preprocess

    before = preprocess.SKIP_COMPILE_SPEC_KEYS
    preprocess.SKIP_COMPILE_SPEC_KEYS = before | RUNTIME_SPECS
    try:
        yield
    finally:
        preprocess.SKIP_COMPILE_SPEC_KEYS = before


def _runtime_byte(key: str, text: str) -> bytes:
    if text not in ("0", "1"):
        raise ValueError(f"compile spec {key} is 1 or 0, not {text!r}")
    return bytes([int(text)])
