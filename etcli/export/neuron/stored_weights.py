"""Weights of a quantised graph as its file holds them: where the graph rounds one to int8 or int16, these integers, a quarter or half of the bytes.

The graph stays as it is. What is read back is what it makes of a weight, integers times scales, and rounding that once more changes nothing: this
is tried with every weight before it is written, and one that does not pass stays float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram

_ROUNDING = "quantize_per_channel"
_INTEGERS = (torch.int8, torch.int16)


def integers_of(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """By name, the integers of each weight of `program` that it rounds along an axis and uses for nothing else."""
    from torch.ao.quantization.fx import _decomposed  # noqa: F401 - registers the operators

    operators = torch.ops.quantized_decomposed
    signature = program.graph_signature
    places = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    found: dict[str, torch.Tensor] = {}
    for node in program.graph.nodes:
        if node.target is not operators.quantize_per_channel.default or len(node.args[0].users) > 1:
            continue
        names = [places[one.name] for one in node.args[:3] if one.name in places]
        axis, *_, dtype = rest = node.args[3:]
        if len(names) < 3 or dtype not in _INTEGERS:
            continue
        weight, scales, zero_points = (program.state_dict[name] for name in names)
        rounded = operators.quantize_per_channel(weight, scales, zero_points, *rest)
        floats = _floats(rounded, scales, zero_points, axis)
        same = torch.equal(floats, operators.dequantize_per_channel(rounded, scales, zero_points, *rest))
        if same and torch.equal(operators.quantize_per_channel(floats, scales, zero_points, *rest), rounded):
            found[names[0]] = rounded
    return found


def restore(model: Mapping[str, Any], weights: dict[str, torch.Tensor]) -> None:
    """Put float32 in the place of each of `weights` that is integers, as the serialised graph `model` says.

    Raises:
        ValueError, KeyError, TypeError: the graph says what cannot be.
    """
    places = {}
    for spec in model["graph_module"]["signature"]["input_specs"]:
        for kind in ("parameter", "buffer"):
            if kind in spec:
                places[spec[kind]["arg"]["name"]] = spec[kind][f"{kind}_name"]
    for node in model["graph_module"]["graph"]["nodes"]:
        if node["target"] != f"torch.ops.quantized_decomposed.{_ROUNDING}.default":
            continue
        given = {one["name"]: one["arg"] for one in node["inputs"]}
        name, scales, zero_points = (
            places.get(given[key].get("as_tensor", {}).get("name")) for key in ("input", "scales", "zero_points")
        )
        if name is None or weights[name].dtype not in _INTEGERS:
            continue
        if scales is None or zero_points is None:
            raise ValueError(f"its weight {name[:80]} has no scales")
        stored, axis = weights[name], given["axis"]["as_int"]
        parts = weights[scales], weights[zero_points]
        if not 0 <= axis < stored.dim() or any(tuple(part.shape) != (stored.shape[axis],) for part in parts):
            raise ValueError(f"the scales of its weight {name[:80]} are not those of the axis")
        weights[name] = torch.nn.Parameter(_floats(stored, *parts, axis), requires_grad=False)


def _floats(integers: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor, axis: int) -> torch.Tensor:
    shape = [1] * integers.dim()
    shape[axis] = -1
    return (integers.to(torch.float32) - zero_points.reshape(shape).to(torch.float32)) * scales.reshape(shape)
