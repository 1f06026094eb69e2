"""Runs an exported chunk on this machine and holds it against eager PyTorch. The second half of a worker.

ExecuTorch's Python runtime gives memory to outputs that the program leaves unplanned (`setup_output_storage` in
`extension/pybindings/pybindings.cpp`), so the very file that goes to the device is run here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pydantic
import torch
from safetensors import safe_open

from etcli.common.errors import ExportError
from etcli.common.hashing import file_sha256
from etcli.export.backends.registry import BACKENDS
from etcli.export.contract import method_entry
from etcli.export.job import ChunkWork, Job, NamedShape, Outcome
from etcli.export.measure import Steps, peak_memory_bytes
from etcli.manifests.base import FileEntry, Manifest
from etcli.manifests.bundle import Method
from etcli.pte.facts import ProgramFacts
from etcli.pte.read import read_program

PROGRAM = "chunk.pte"
SAMPLES = "samples.safetensors"
LOWERED = "lowered.json"


class Lowered(Manifest):
    """What the first half of the worker measured of itself."""

    seconds: dict[str, float]
    peak_memory_bytes: int
    weights_bytes: int
    float_errors: dict[str, float] = pydantic.Field(default_factory=dict)


def verify_chunk(job: Job, work: ChunkWork, folder: Path) -> None:
    """Check the tensors of `chunk.pte` against the contract, run every method once, and write `outcome.json`.

    Raises:
        ExportError: `export.contract`, a tensor is not what runners expect; `export.differs`, a method's result is further from eager
            than the backend's tolerance.
    """
    torch.set_num_threads(job.threads)
    lowered, steps = Lowered.read(folder / LOWERED), Steps()
    path = folder / PROGRAM
    with steps.step("verify"):
        facts = read_program(path, error=ExportError)
        methods = tuple(method_entry(facts, work, named) for named in work.methods)
        errors = _errors(path, folder / SAMPLES, work)
        entry = FileEntry(path=PROGRAM, size=path.stat().st_size, sha256=file_sha256(path))
    outcome = Outcome(
        files=(entry,),
        times={PROGRAM: path.stat().st_mtime_ns},
        seconds={**lowered.seconds, **steps.seconds},
        peak_memory_bytes=max(lowered.peak_memory_bytes, peak_memory_bytes()),
        weights_bytes=lowered.weights_bytes,
        program=facts.identifier,
        methods=methods,
        delegate_calls=_delegate_calls(facts, methods, BACKENDS[work.backend].delegate),
        errors=errors,
        float_errors=lowered.float_errors,
    )
    for name in (SAMPLES, LOWERED):
        (folder / name).unlink()
    outcome.write(folder / Outcome.FILE)


def _delegate_calls(facts: ProgramFacts, methods: tuple[Method, ...], delegate: str | None) -> dict[str, int]:
    calls = {}
    for method in methods:
        found = facts.method(method.name)
        delegates = found.delegates if found else ()
        calls[method.name] = sum(piece.calls for piece in delegates if piece.backend == delegate)
    return calls


def _errors(path: Path, samples: Path, work: ChunkWork) -> dict[str, float]:
    """Largest absolute error of each method over all its outputs."""
    from executorch.runtime import Runtime

    if work.cache == "ring":
        from etcli.ops.library import attention_library
        from etcli.ops.loading import load_into_executorch

        load_into_executorch(attention_library())
    found = {}
    with safe_open(samples, framework="pt") as file:
        for method in work.methods:
            inputs, expected = (_tensors(file, method.name, kind) for kind in ("input", "output"))
            # a program keeps each method it loaded, with a backend's packed weights: one program a method holds one set
            outputs = Runtime.get().load_program(str(path)).load_method(method.name).execute(inputs)
            found[method.name] = _compare(work, method, list(outputs), expected)
    return found


def _tensors(file: Any, method: str, kind: str) -> list[torch.Tensor]:
    prefix = f"{method}.{kind}."
    keys: list[str] = file.keys()
    names = sorted((name for name in keys if name.startswith(prefix)), key=lambda name: int(name[len(prefix) :]))
    return [file.get_tensor(name) for name in names]


def _compare(work: ChunkWork, method: NamedShape, outputs: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
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
