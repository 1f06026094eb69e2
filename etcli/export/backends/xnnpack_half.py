"""Weights written as float16 for XNNPACK, which multiplies them with float32 activations (`xnn_create_fully_connected_nc_f32_f16`).

XNNPACK takes the pair; ExecuTorch 1.5.1's lowering does not write it, because its partitioner wants operands of one type. So the graph
stays float32, and the visitor that turns linears into XNNPACK's own nodes writes the filters in question as float16.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterator
from typing import Any

import torch
from executorch.backends.xnnpack.operators import node_visitor
from executorch.backends.xnnpack.serialization.xnnpack_graph_schema import ConstantDataOffset, XNNDatatype
from executorch.backends.xnnpack.serialization.xnnpack_graph_serialize import CONSTANT_TENSOR_ALIGNMENT
from executorch.backends.xnnpack.utils.utils import get_param_tensor
from executorch.backends.xnnpack.utils.xnnpack_constants import UINT64_MAX

LINEAR = "aten.linear.default"


@contextlib.contextmanager
def half_filters(names: Collection[str]) -> Iterator[None]:
    """Within the block, XNNPACK graphs are written with the parameters `names` (float32, exact in float16) as float16."""
    if not names:
        yield
        return

    visitors = node_visitor._node_visitor_dict  # registering anew is the only public way, and cannot be undone
    before = visitors[LINEAR]

    class HalfLinear(before):  # type: ignore[misc, valid-type]
        """A linear whose filter may be written as float16."""

        def is_half(self, node: torch.fx.Node) -> bool:
            return self.exported_program.graph_signature.inputs_to_parameters.get(node.name) in names

        def get_serialized_dtype(self, quant_params: Any, node: torch.fx.Node, *rest: Any, **named: Any) -> XNNDatatype:
            if self.is_half(node):
                return XNNDatatype.xnn_datatype_fp16
            return super().get_serialized_dtype(quant_params, node, *rest, **named)

        def get_serialized_buffer_index(self, tensor: torch.fx.Node, xnn_graph: Any, *rest: Any, **named: Any) -> int:
            if not self.is_half(tensor):
                index: int = super().get_serialized_buffer_index(tensor, xnn_graph, *rest, **named)
                return index
            weight = get_param_tensor(self.exported_program, tensor)
            data = weight.detach().to(torch.float16).contiguous().numpy().tobytes()
            key = hashlib.sha256(data).hexdigest()
            xnn_graph.constant_data.append(ConstantDataOffset(offset=UINT64_MAX, size=len(data), named_key=key))
            self._named_data_store.add_named_data(key, data, alignment=CONSTANT_TENSOR_ALIGNMENT)
            return len(xnn_graph.constant_data) - 1

    visitors[LINEAR] = HalfLinear
    try:
        yield
    finally:
        visitors[LINEAR] = before
