"""A network as text, for people who look at what was converted."""

from __future__ import annotations

from collections import Counter

from torch.export import ExportedProgram

from etcli.export.simulated_sdk._blob import Constant, Tensor

from ._converted import Converted


def listing(program: ExportedProgram, network: Converted) -> str:
    """Inputs, outputs, constants, and how often each operator of the partition occurs."""
    operators = Counter(
        getattr(node.target, "__name__", str(node.target)) for node in program.graph.nodes if node.op == "call_function"
    )
    lines = ["// simulated: no MLIR, and nothing but etcli's simulated compiler takes it"]
    lines += [f"// input {index}: {_tensor(one)}" for index, one in enumerate(network.inputs)]
    lines += [f"// output {index}: {_tensor(one)}" for index, one in enumerate(network.outputs)]
    lines += [f"// constant {one.name}: {_tensor(one)}, stored as {one.stored}" for one in network.constants]
    lines += [f"// {count} x {name}" for name, count in sorted(operators.items())]
    return "\n".join(lines) + "\n"


def _tensor(one: Tensor | Constant) -> str:
    return f"{one.dtype}[{', '.join(map(str, one.shape))}]"
