"""A partition's graph made simpler, with the same results: constants quantised once, one node where several compute the same, linears whole.

What a compiler for an NPU does as well. Left as it is, a network would quantise its float weights again in every call
(`convert_pt2e(fold_quantize=False)` says it so), and turn each of them around (`permute_copy`) for the matrix product.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from executorch.exir.dialects._ops import ops as exir_ops
from torch.export import ExportedProgram

from ._operators import DEQUANTISE, QUANTISE

_LINEAR = exir_ops.edge.aten.linear.default
_PRODUCTS: Mapping[str, tuple[int, int, int | None]] = {
    "aten.mm.default": (0, 1, None),
    "aten.addmm.default": (1, 2, 0),
}
"""Products of a matrix and a weight: where input, weight and bias are among the arguments."""


@dataclass(frozen=True, eq=False)
class Stored:
    """A constant as it is stored: `values`, which stand for `(values - zero_points) * scales` along `axis` where there are scales."""

    values: torch.Tensor
    scales: torch.Tensor | None = None
    zero_points: torch.Tensor | None = None
    axis: int | None = None

    def restored(self) -> torch.Tensor:
        """What it stands for, as the simulated NPU computes it in float32."""
        if self.scales is None:
            return self.values
        shape = [1] * self.values.dim()
        if self.axis is not None:
            shape[self.axis] = -1
        values = self.values.to(torch.float32)
        if self.zero_points is not None:
            values = values - self.zero_points.to(torch.float32).reshape(shape)
        return values * self.scales.reshape(shape)


@dataclass(frozen=True, eq=False)
class Simplified:
    """A graph whose placeholders are `constants`, then the user inputs.

    Attributes:
        program: the partition that it was made from.
        graph: nodes have the values (`val`) of the partition's.
        constants: by the placeholder's name, the constant's name and what it holds, in the order of the placeholders.
    """

    program: ExportedProgram
    graph: torch.fx.Graph
    constants: Mapping[str, tuple[str, Stored]]


def simplified(program: ExportedProgram) -> Simplified:
    """The partition's graph, simpler. Results are the same to the last bit, but for the order in which linears add up their products."""
    return _Rebuilding(program).run()


def operator(node: object) -> str:
    """The name of a node's operator, as `aten.mm.default`; empty for what is no call."""
    return str(getattr(node.target, "__name__", "")) if isinstance(node, torch.fx.Node) else ""


class _Rebuilding:
    """Builds the new graph from the old one, node by node; what nobody reads in the end is dropped."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.tensors = _constant_tensors(program)
        self.names: dict[torch.fx.Node, str] = {}
        self.stored: dict[torch.fx.Node, Stored] = {}
        self.graph = torch.fx.Graph()
        self.new: dict[torch.fx.Node, torch.fx.Node] = {}
        self.same: dict[tuple[object, ...], torch.fx.Node] = {}
        self.sources: dict[str, torch.fx.Node] = {}
        self.outputs = frozenset(program.graph_signature.user_outputs)

    def run(self) -> Simplified:
        nodes = list(self.program.graph.nodes)
        for node in nodes:
            if node in self.tensors:
                self.names[node], tensor = self.tensors[node]
                self.stored[node] = Stored(tensor.detach().contiguous())
            elif operator(node) in DEQUANTISE:
                self._fold(node)
        for node in self.stored:
            # ExecuTorch keeps constants in the program whose placeholders are named as lifted ones: they get names of our own.
            placeholder = self.graph.placeholder(f"constant_{len(self.sources)}")
            placeholder.meta = dict(node.meta)
            self.new[node] = placeholder
            self.sources[placeholder.name] = node
        by_name = {node.name: node for node in nodes}
        for name in self.program.graph_signature.user_inputs:
            self.new[by_name[name]] = self.graph.node_copy(by_name[name])
        for node in nodes:
            if node.op == "call_function" and node not in self.new:
                self.new[node] = self._linear(node) or self._once(node)
        self.graph.node_copy(nodes[-1], lambda node: self.new[node])
        self.graph.eliminate_dead_code()
        for node in list(self.graph.nodes):
            if node.name in self.sources and not node.users:
                self.graph.erase_node(node)
                del self.sources[node.name]
        for node in self.graph.nodes:
            # Nothing else is needed, and each of ExecuTorch's passes would copy the history of every node.
            node.meta = {key: value for key, value in node.meta.items() if key == "val"}
        return Simplified(self.program, self.graph, self._constants())

    def _fold(self, node: torch.fx.Node) -> None:
        """Store what `node` gives, where it dequantises a constant, whether that is quantised in the graph or was before."""
        source = node.args[0]
        if operator(source) in QUANTISE:
            quantise = [self._value(argument) for argument in source.args]  # type: ignore[union-attr]
            if any(value is None for value in quantise):
                return
            values = source.target._op(*quantise)  # type: ignore[union-attr]
            source = source.args[0]  # type: ignore[union-attr]
        else:
            values = self._value(source)
        parameters = [self._value(argument) for argument in node.args[1:]]
        computed = any(isinstance(one, torch.fx.Node) and one not in self.tensors for one in node.args[1:])
        if values is None or computed or node.kwargs.get("out_dtype") not in (None, torch.float32):
            return
        scales, zero_points = parameters[:2]
        stored = Stored(
            values.detach().contiguous(),
            torch.as_tensor(scales).to(torch.float32).reshape(-1),
            None if zero_points is None else torch.as_tensor(zero_points).to(torch.int32).reshape(-1),
            int(parameters[2]) % values.dim() if "per_channel" in operator(node) else None,
        )
        # What is restored from the stored values must be what the graph computes; scales that float32 cannot hold are left in the graph.
        if torch.equal(stored.restored(), node.target._op(values, *parameters)):  # type: ignore[union-attr]
            self.stored[node] = stored
            self.names[node] = self.tensors[source][0]  # type: ignore[index]

    def _value(self, argument: Any) -> Any:
        """An argument of a node: the constant's tensor, the literal, or None where it is computed in the network."""
        if isinstance(argument, torch.fx.Node):
            return self.tensors[argument][1] if argument in self.tensors else None
        return argument

    def _constants(self) -> dict[str, tuple[str, Stored]]:
        """What is left, named as in the partition; one that is there as it was and dequantised too, or quantised twice, with a number."""
        named: dict[str, tuple[str, Stored]] = {}
        taken: set[str] = set()
        for placeholder, node in self.sources.items():
            wanted = self.names[node]
            others = (f"{wanted}.{number}" for number in itertools.count(2))
            name = next(one for one in itertools.chain([wanted], others) if one not in taken)
            taken.add(name)
            named[placeholder] = (name, self.stored[node])
        return named

    def _linear(self, node: torch.fx.Node) -> torch.fx.Node | None:
        """A product with a turned constant as a linear, which takes the constant as it is."""
        places = _PRODUCTS.get(operator(node))
        if places is None or node.kwargs:
            return None
        x, weight, bias = (None if place is None else node.args[place] for place in places)
        if operator(weight) != "aten.permute_copy.default":
            return None
        turned, order = weight.args  # type: ignore[union-attr]
        if turned not in self.stored or list(order) != [1, 0]:  # type: ignore[arg-type]
            return None
        if bias is not None and bias.meta["val"].shape != node.meta["val"].shape[1:]:  # type: ignore[union-attr]
            return None
        made = self.graph.call_function(_LINEAR, tuple(self.new[one] for one in (x, turned, bias) if one is not None))  # type: ignore[index]
        made.meta = dict(node.meta)
        return made

    def _once(self, node: torch.fx.Node) -> torch.fx.Node:
        """The copy of `node`, or the one that computes the same: each user of a quantised tensor has a dequantise operator of its own.

        Outputs stay nodes of their own, since each is written where its caller says.
        """
        made = self.graph.node_copy(node, lambda old: self.new[old])
        same = self.same.setdefault((made.target, repr(made.args), repr(made.kwargs)), made)
        if same is made or node.name in self.outputs:
            return made
        self.graph.erase_node(made)
        return same


def _constant_tensors(program: ExportedProgram) -> dict[torch.fx.Node, tuple[str, torch.Tensor]]:
    """Name and tensor of each placeholder that is a constant."""
    signature = program.graph_signature
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    tensors = {**program.constants, **program.state_dict}
    return {
        node: (str(names[node.name]), tensors[names[node.name]])
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in names
    }
