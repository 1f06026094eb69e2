"""Runs an exported chunk on this machine and holds it against eager PyTorch.

With 8-bit activations the two cannot agree to the last bits: a difference of 1e-7 moves an activation by a whole step, and from layer to
layer it moves more of them. How much of that is fair, eager PyTorch itself tells: it runs once more on hidden states changed by a
thousandth, which is enough to move many roundings. A program may be a few times as far from eager as eager is from itself. Wrong weights
are much further: rounding costs a linear's output one or two hundredths of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from etcli.common.errors import ExportError
from etcli.export.contract import method_entry
from etcli.export.job import ChunkWork
from etcli.export.runtime import run_method
from etcli.manifests.bundle import Method
from etcli.ops.needed import load_needed
from etcli.pte.facts import ProgramFacts
from etcli.pte.read import read_program

NUDGE = 1e-3
"""By what part hidden states are changed to see what rounding does."""

ROUNDING_SQUARE = 3.0
ROUNDING_LARGEST = 4.0
"""How many times as far from eager a program may be as the nudged eager run is: by root mean square, and at the worst number."""

STEPS_LARGEST = 4.0
STEPS_SQUARE = 0.5
"""How many steps of the grid that an output lies on a program may be off besides: at the worst number, and by root mean square. A nudge that
moves few numbers to the next step says nothing of the others, and on 16 bits it moves few."""

TOLERANCE_LAYERS = 6
"""Layers up to which a backend's tolerance holds as it is; differences of rounding add up from layer to layer, so a deeper chunk has more."""

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Expected:
    """What a method is to give.

    Attributes:
        outputs: eager's.
        nudged: eager's on nudged hidden states, where activations are rounded.
        steps: of each output that lies on a grid the distance of its points, 0 of others; empty where none does.
    """

    outputs: Tensors
    nudged: Tensors | None = None
    steps: tuple[float, ...] = ()


def nudged(inputs: Tensors) -> Tensors:
    """A call's inputs with hidden states changed by `NUDGE`, the same way whenever it is asked for."""
    hidden, *rest = inputs
    noise = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(0))
    return (hidden * (1 + NUDGE * noise), *rest)


def check_tensors(path: Path, work: ChunkWork) -> tuple[ProgramFacts, tuple[Method, ...]]:
    """What the program in `path` is, its methods' tensors checked.

    Raises:
        ExportError: `export.contract`, a tensor is not what runners expect.
    """
    facts = read_program(path, error=ExportError)
    return facts, tuple(method_entry(facts, work, named) for named in work.methods)


def compare_methods(
    path: Path,
    work: ChunkWork,
    inputs: Mapping[str, Sequence[torch.Tensor]],
    expected: Mapping[str, Expected],
) -> dict[str, float]:
    """Run every method once, with the operators that the program needs; by method the largest absolute error over all its outputs.

    Raises:
        ToolError: an operator of ours cannot be compiled or loaded here.
        ExportError: `export.differs`, a result is further from eager than the work's tolerance and the rounding of activations allow.
    """
    load_needed({name for method in read_program(path, error=ExportError).methods for name in method.operator_names})
    allowed = allowance(work)
    return {
        method.name: compare_outputs(
            method.name, run_method(path, method.name, inputs[method.name]), expected[method.name], allowed
        )
        for method in work.methods
    }


def allowance(work: ChunkWork) -> float:
    """The work's tolerance for as many layers as it has."""
    return work.tolerance * max(1.0, work.layers / TOLERANCE_LAYERS)


def delegate_calls(facts: ProgramFacts, methods: Sequence[Method], delegate: str | None) -> dict[str, int]:
    """Calls of the backend's delegate by method: its partitions."""
    calls = {}
    for method in methods:
        found = facts.method(method.name)
        delegates = found.delegates if found else ()
        calls[method.name] = sum(piece.calls for piece in delegates if piece.backend == delegate)
    return calls


def compare_outputs(method: str, outputs: Sequence[torch.Tensor], expected: Expected, tolerance: float) -> float:
    """The largest absolute error of one call's outputs. Raises as `compare_methods`."""
    largest = 0.0
    for index, (output, eager) in enumerate(zip(outputs, expected.outputs, strict=True)):
        error, square = _distance(output, eager)
        allowed = tolerance * max(1.0, eager.abs().max().item())
        allowed_square = allowed
        if expected.nudged is not None:
            rounding, rounding_square = _distance(expected.nudged[index], eager)
            allowed += ROUNDING_LARGEST * rounding
            allowed_square = tolerance * _size(eager) + ROUNDING_SQUARE * rounding_square
        if expected.steps:
            allowed += STEPS_LARGEST * expected.steps[index]
            allowed_square += STEPS_SQUARE * expected.steps[index]
        if not (error <= allowed and square <= allowed_square):  # NaN is no match either
            said = f"{error:.3g}, allowed is {allowed:.3g}"
            if error <= allowed:
                said = f"{square:.3g} (root mean square), allowed is {allowed_square:.3g}"
            raise ExportError(
                f"method {method}: output {index} differs from eager PyTorch by {said}",
                code="export.differs",
                hint="Export with backend portable to tell whether the backend is at fault; please report this with the recipe.",
            )
        largest = max(largest, error)
    return largest


def _distance(one: torch.Tensor, other: torch.Tensor) -> tuple[float, float]:
    """The largest difference, and its root mean square."""
    difference = one - other
    return difference.abs().max().item(), _size(difference)


def _size(tensor: torch.Tensor) -> float:
    """Root mean square."""
    return float(tensor.norm()) / math.sqrt(tensor.numel())
