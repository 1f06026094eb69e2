"""Weights written as float16 in a program for the portable kernels: kept so, and widened to float32 by the program itself before use."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def keep_as_half(program: ExportedProgram, names: Collection[str]) -> None:
    """Change `program`: the parameters `names` (float32, exact in float16) become float16, each with a conversion in the graph.

    ExecuTorch's portable `linear` takes operands of one type alone, and a product in float16 would lose what the other backends keep.
    """
    import torch
    from torch import nn

    if not names:
        return
    graph = program.graph_module.graph
    placeholders = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for argument, name in program.graph_signature.inputs_to_parameters.items():
        if name not in names:
            continue
        half = nn.Parameter(program.state_dict[name].detach().to(torch.float16), requires_grad=False)
        node = placeholders[argument]
        wide = node.meta["val"]
        with graph.inserting_before(first):
            widened = graph.call_function(torch.ops.aten._to_copy.default, (node,), {"dtype": torch.float32})
        widened.meta = {**first.meta, "val": wide}
        node.replace_all_uses_with(widened, delete_user_cb=lambda user, own=widened: user is not own)
        node.meta["val"] = wide.to(torch.float16)
        program.state_dict[name] = half
    program.graph_module.recompile()
