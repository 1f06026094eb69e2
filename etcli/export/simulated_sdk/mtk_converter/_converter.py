"""SIMULATED: the converter's class, with the attributes that ExecuTorch's MediaTek backend sets."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from ._converted import SimulatedMlir
from ._graph import simplified
from ._listing import listing
from ._program import converted
from ._refused import ConversionError
from .python.converters.pytorch.importer_v2 import is_fx_node_supported


class PyTorchV2Converter:
    """Converts one partition.

    Attributes have the vendor's names. The simulated NPU has float32 inputs and outputs wherever the partition has, and computes what the
    graph says, its quantise and dequantise operators included; so only those settings are accepted that ask for that.
    """

    __slots__ = (
        "_program",
        "allow_missing_quantization_ranges",
        "append_output_dequantize_ops",
        "append_output_dequantize_ops_indices",
        "input_quantization_bitwidths",
        "prepend_input_quantize_ops",
        "prepend_input_quantize_ops_indices",
        "quantize",
    )

    def __init__(self, program: ExportedProgram) -> None:
        self._program = program
        self.quantize = False
        self.allow_missing_quantization_ranges = False
        self.input_quantization_bitwidths: list[int] | None = None
        self.prepend_input_quantize_ops = False
        self.prepend_input_quantize_ops_indices: list[int] = []
        self.append_output_dequantize_ops = False
        self.append_output_dequantize_ops_indices: list[int] = []

    @classmethod
    def from_exported_program(cls, exported_program: ExportedProgram) -> PyTorchV2Converter:
        """A converter of a partition in the edge dialect.

        Raises:
            ConversionError: all that it cannot convert in it.
        """
        if not isinstance(exported_program, ExportedProgram):
            raise ConversionError(
                f"simulated converter: it converts an ExportedProgram, not {type(exported_program).__name__}"
            )
        wrong = _wrong_in(exported_program)
        if wrong:
            raise ConversionError(f"simulated converter: {'; '.join(wrong)}")
        return cls(exported_program)

    def convert_to_mlir(self) -> SimulatedMlir:
        """The partition for the simulated compiler.

        Raises:
            ConversionError: all attributes that ask for what the simulated NPU does not do.
        """
        signature = self._program.graph_signature
        wrong = [
            *self._wrong_switches(),
            *self._wrong_edge("prepend_input_quantize_ops", self._floats(signature.user_inputs)),
            *self._wrong_edge("append_output_dequantize_ops", self._floats(signature.user_outputs)),
        ]
        if wrong:
            raise ConversionError(f"simulated converter: {'; '.join(wrong)}")
        network = converted(simplified(self._program))
        return SimulatedMlir(listing(self._program, network), network)

    def _wrong_switches(self) -> list[str]:
        wrong = []
        if self.quantize is not True:
            wrong.append(f"quantize is True here, not {self.quantize!r}")
        if self.input_quantization_bitwidths is not None:
            wrong.append(f"input_quantization_bitwidths is None here, not {self.input_quantization_bitwidths!r}")
        if self.allow_missing_quantization_ranges is not True:
            wrong.append(
                f"allow_missing_quantization_ranges is True here, not {self.allow_missing_quantization_ranges!r}"
            )
        return wrong

    def _wrong_edge(self, name: str, floats: list[int]) -> list[str]:
        asked, indices = getattr(self, name), getattr(self, f"{name}_indices")
        wrong = [] if asked is True else [f"{name} is True here, not {asked!r}"]
        if not isinstance(indices, list | tuple) or sorted(map(repr, indices)) != sorted(map(repr, floats)):
            wrong.append(f"{name}_indices are those of the float32 tensors, {floats}, not {indices!r}")
        return wrong

    def _floats(self, names: Any) -> list[int]:
        nodes = {node.name: node for node in self._program.graph.nodes}
        return [index for index, name in enumerate(names) if nodes[name].meta["val"].dtype == torch.float32]


def _wrong_in(program: ExportedProgram) -> list[str]:
    wrong = [
        f"an input that is {spec.kind.name.lower()} cannot be converted: {spec.arg.name}"
        for spec in program.graph_signature.input_specs
        if spec.kind not in (InputKind.USER_INPUT, InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    ]
    wrong += [
        f"an output that is {spec.kind.name.lower()} cannot be converted: a network for the NPU changes nothing in place"
        for spec in program.graph_signature.output_specs
        if spec.kind != OutputKind.USER_OUTPUT
    ]
    names = {*program.graph_signature.user_inputs, *program.graph_signature.user_outputs}
    for node in program.graph.nodes:
        if node.op == "call_function" and not is_fx_node_supported(node):
            wrong.append(f"{node.name}: {getattr(node.target, '__name__', node.target)} is not supported")
        elif node.name in names and not isinstance(node.meta.get("val"), torch.Tensor):
            wrong.append(f"{node.name} is no tensor")
    produced = {node.name for node in program.graph.nodes if node.op == "call_function"}
    wrong += [
        f"output {name!r} is not computed in it"
        for name in program.graph_signature.user_outputs
        if name not in produced
    ]
    return wrong
