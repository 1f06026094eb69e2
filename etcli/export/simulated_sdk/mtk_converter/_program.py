"""A simplified graph as what the simulated NPU runs: an ExecuTorch program, and the constants that it lacks."""

from __future__ import annotations

from typing import Any

import executorch.kernels.quantized  # noqa: F401  (the operators' out variants)
import torch
from executorch.exir import EdgeCompileConfig, EdgeProgramManager, ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, TensorArgument

from etcli.export.simulated_sdk._blob import Constant, Tensor, make_constant

from ._converted import Converted
from ._graph import Simplified, Stored


def converted(network: Simplified) -> Converted:
    """The network with its program. Inputs and outputs are the caller's memory, constants have names and are outside."""
    nodes = {node.name: node for node in network.program.graph.nodes}
    signature = network.program.graph_signature
    inputs, outputs = (
        tuple(_tensor(nodes[name].meta["val"]) for name in names)
        for names in (signature.user_inputs, signature.user_outputs)
    )
    placeholders = {node.name: node for node in network.graph.nodes if node.op == "placeholder"}
    return Converted(
        inputs=inputs,
        outputs=outputs,
        program=_program(network),
        constants=tuple(
            _constant(name, placeholders[placeholder].meta["val"], stored)
            for placeholder, (name, stored) in network.constants.items()
        ),
    )


def _program(network: Simplified) -> bytes:
    placeholders = [node for node in network.graph.nodes if node.op == "placeholder"]
    specs = [_input_spec(node, network) for node in placeholders]
    # The program holds no values, so any of the right shape do; these take no memory until they are written out.
    values = {
        network.constants[node.name][0]: torch.zeros(tuple(node.meta["val"].shape), dtype=node.meta["val"].dtype)
        for node in placeholders
        if node.name in network.constants
    }
    root = torch.fx.GraphModule(torch.nn.Module(), network.graph)
    results: Any = next(node for node in reversed(network.graph.nodes) if node.op == "output").args[0]
    outputs = [
        type(spec)(kind=spec.kind, arg=TensorArgument(name=result.name), target=spec.target)
        for spec, result in zip(network.program.graph_signature.output_specs, results, strict=True)
    ]
    program = ExportedProgram(
        root=root,
        graph=root.graph,
        graph_signature=ExportGraphSignature(specs, outputs),
        state_dict=values,
        range_constraints={},
        module_call_graph=network.program.module_call_graph,
        constants={},
        verifiers=network.program.verifiers,
    )
    # Linears are no core operator, and are meant here.
    config = EdgeCompileConfig(_check_ir_validity=False)
    plan = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    manager = EdgeProgramManager({"forward": program}, compile_config=config)
    made = manager.to_executorch(ExecutorchBackendConfig(external_constants=True, memory_planning_pass=plan))
    return bytes(made.buffer)


def _input_spec(node: torch.fx.Node, network: Simplified) -> InputSpec:
    argument = TensorArgument(name=node.name)
    if node.name in network.constants:
        return InputSpec(InputKind.BUFFER, argument, target=network.constants[node.name][0], persistent=True)
    return InputSpec(InputKind.USER_INPUT, argument, target=None)


def _constant(name: str, value: torch.Tensor, stored: Stored) -> Constant:
    spec = _tensor(value)
    return make_constant(
        name,
        spec.dtype,
        spec.shape,
        stored.values.numpy().tobytes(),
        stored=_tensor(stored.values).dtype,
        scales=() if stored.scales is None else stored.scales.tolist(),
        zero_points=() if stored.zero_points is None else stored.zero_points.tolist(),
        axis=stored.axis,
    )


def _tensor(tensor: torch.Tensor) -> Tensor:
    return Tensor(str(tensor.dtype).removeprefix("torch."), tuple(int(size) for size in tensor.shape))
