"""Runs an exported chunk on this machine and holds it against eager PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from etcli.common.errors import ExportError
from etcli.export.contract import method_entry
from etcli.export.job import ChunkWork, NamedShape
from etcli.export.runtime import load_operators, run_method
from etcli.manifests.bundle import Method
from etcli.pte.facts import ProgramFacts
from etcli.pte.read import read_program


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
    expected: Mapping[str, Sequence[torch.Tensor]],
) -> dict[str, float]:
    """Run every method once; by method the largest absolute error over all its outputs.

    Raises:
        ExportError: `export.differs`, a result is further from eager than the work's tolerance.
    """
    load_operators(work.cache)
    return {
        method.name: _compare(work, method, run_method(path, method.name, inputs[method.name]), expected[method.name])
        for method in work.methods
    }


def delegate_calls(facts: ProgramFacts, methods: Sequence[Method], delegate: str | None) -> dict[str, int]:
    """Calls of the backend's delegate by method: its partitions."""
    calls = {}
    for method in methods:
        found = facts.method(method.name)
        delegates = found.delegates if found else ()
        calls[method.name] = sum(piece.calls for piece in delegates if piece.backend == delegate)
    return calls


def _compare(
    work: ChunkWork, method: NamedShape, outputs: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]
) -> float:
    largest = 0.0
    for index, (output, eager) in enumerate(zip(outputs, expected, strict=True)):
        error = (output - eager).abs().max().item()
        allowed = work.tolerance * max(1.0, eager.abs().max().item())
        if not error <= allowed:  # NaN is no match either
            raise ExportError(
                f"method {method.name}: output {index} differs from eager PyTorch by {error:.3g}, allowed is {allowed:.3g}",
                code="export.differs",
                hint="Export with backend portable to tell whether the backend is at fault; please report this with the recipe.",
            )
        largest = max(largest, error)
    return largest
