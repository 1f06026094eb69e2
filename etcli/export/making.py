"""One program of a chunk as it goes into the bundle: taken from where it was lowered, filled into a template, or lowered here; then run."""

from __future__ import annotations

from pathlib import Path

import torch

from etcli.common.errors import ExportError
from etcli.export.backends.registry import BACKENDS
from etcli.export.job import ChunkWork, Job
from etcli.export.lowering import PROGRAM, load_chunk, write_program
from etcli.export.measure import Steps, write_outcome
from etcli.export.quality import relative_error
from etcli.export.quantizers.registry import leaves_alone, quantise, rounds_activations, stored_blobs
from etcli.export.samples import sample_inputs
from etcli.export.templates.filling import fill
from etcli.export.templates.template import Refused
from etcli.export.verification import Expected, Tensors, check_tensors, compare_methods, delegate_calls, nudged
from etcli.llama.chunk import Chunk
from etcli.manifests.export_report import Made
from etcli.manifests.model import ModelConfig


@torch.inference_mode(False)
@torch.no_grad()
def make_chunk(job: Job, work: ChunkWork, folder: Path) -> None:
    """Write `chunk.pte` and `outcome.json` into `folder`.

    Raises:
        CheckpointError: the weights cannot be read.
        ExportError: `export.not_finite`, the weights give infinities or NaN; `export.contract` and `export.differs` as in `verification`;
            whatever else fails is raised as it is.
    """
    torch.set_num_threads(job.threads)
    steps = Steps()
    with steps.step("read"):
        chunk = load_chunk(job, work)
        config = chunk.config
        weights_bytes = sum(parameter.nbytes for parameter in chunk.parameters())
    with steps.step("eager"):
        float_errors, expected = _quantised(chunk, work)
    made, note, sha256 = _program(chunk, work, folder, steps)
    del chunk  # the runtime packs the weights once more
    path = folder / PROGRAM
    with steps.step("verify"):
        facts, methods = check_tensors(path, work)
        inputs = {method.name: _inputs(config, work, number) for number, method in enumerate(work.methods)}
        errors = compare_methods(path, work, inputs, expected) if work.verify else {}
    write_outcome(
        folder,
        [path],
        steps,
        weights_bytes,
        sha256=sha256,
        made=made,
        note=note,
        program=facts.identifier,
        methods=methods,
        delegate_calls=delegate_calls(facts, methods, BACKENDS[work.backend].delegate),
        errors=errors,
        float_errors=float_errors,
    )


def _program(chunk: Chunk, work: ChunkWork, folder: Path, steps: Steps) -> tuple[Made, str | None, str | None]:
    """Put `chunk.pte` into `folder`: how, why not otherwise, and its SHA-256 where that is known already."""
    path, note = folder / PROGRAM, None
    if work.lowered is not None and Path(work.lowered).exists():
        Path(work.lowered).rename(path)
        return "lowered", None, None
    if work.template is not None:
        try:
            with steps.step("fill"):
                names = [method.name for method in work.methods]
                return "template", None, fill(Path(work.template), path, names, stored_blobs(chunk, work.precision))
        except Refused as error:
            note = str(error)
    write_program(chunk, work, folder, steps)
    return "lowered", note, None


def _quantised(chunk: Chunk, work: ChunkWork) -> tuple[dict[str, float], dict[str, Expected]]:
    """Quantise `chunk`: by method what that did to output 0, and all outputs afterwards, which the program is to give."""
    if not work.verify:
        quantise(chunk, work.precision)
        return {}, {}
    plain = {}
    if not leaves_alone(chunk, work.precision):
        plain = {
            method.name: chunk(*_inputs(chunk.config, work, number))[0].clone()
            for number, method in enumerate(work.methods)
        }
        quantise(chunk, work.precision)
    expected = {}
    for number, method in enumerate(work.methods):
        inputs = _inputs(chunk.config, work, number)
        outputs = chunk(*inputs)
        if not all(torch.isfinite(tensor).all() for tensor in outputs):
            raise ExportError(
                f"chunk {work.index} gives infinities or NaN in eager PyTorch already",
                code="export.not_finite",
                hint="Its weights are finite but overflow float32: they are damaged or were converted wrongly. Compare them with their source.",
            )
        shaken = chunk(*nudged(inputs)) if rounds_activations(chunk, work.precision) else None
        expected[method.name] = Expected(tuple(tensor.contiguous() for tensor in outputs), shaken)
    return {name: relative_error(expected[name].outputs[0], output) for name, output in plain.items()}, expected


def _inputs(config: ModelConfig, work: ChunkWork, number: int) -> Tensors:
    """Those of the work's method of this number, the same whenever they are asked for."""
    return sample_inputs(config, work.layers, work.methods[number].shape, work.cache, seed=1000 * work.index + number)
