"""One chunk from weights to a `.pte`. Runs in a worker."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

from etcli.checkpoint.opening import open_checkpoint
from etcli.common.errors import ExportError
from etcli.export.backends.registry import BACKENDS
from etcli.export.job import ChunkWork, Job
from etcli.export.lean import lean_lowering
from etcli.export.measure import Steps, peak_memory_bytes
from etcli.export.quantizers.registry import half_weights, quantise
from etcli.export.samples import sample_inputs
from etcli.export.verification import LOWERED, PROGRAM, SAMPLES, Lowered
from etcli.llama.chunk import Chunk
from etcli.llama.weights import load_weights
from etcli.manifests.model import ModelConfig


@torch.inference_mode(False)
@torch.no_grad()
def lower_chunk(job: Job, work: ChunkWork, folder: Path) -> None:
    """Write `chunk.pte` into `folder`, with sample inputs and the eager chunk's outputs for the verification that follows.

    Raises:
        CheckpointError: the weights cannot be read.
        ExportError: `export.not_finite`, the weights give infinities or NaN; whatever else fails is raised as it is.
    """
    torch.set_num_threads(job.threads)
    steps = Steps()
    with steps.step("read"):
        checkpoint = open_checkpoint(Path(job.checkpoint), job.adapter_path)
        config = checkpoint.config
        chunk = Chunk(config, work.first_layer, work.layers, head=work.head, cache=work.cache).eval()
        load_weights(chunk, checkpoint)
        weights_bytes = sum(parameter.nbytes for parameter in chunk.parameters())
    with steps.step("eager"):
        plain = {} if is_float32(work) else _first_outputs(chunk, config, work)
        quantise(chunk, work.precision)
        samples = _samples(chunk, config, work)
        save_file(samples, folder / SAMPLES)
        float_errors = {name: _relative(samples[f"{name}.output.0"], output) for name, output in plain.items()}
        del samples, plain
    with steps.step("trace"):
        programs = {
            method.name: torch.export.export(
                chunk, sample_inputs(config, work.layers, method.shape, work.cache, seed=0), strict=False
            )
            for method in work.methods
        }
    with tempfile.TemporaryDirectory(prefix="weights-", dir=folder) as blobs:
        with steps.step("lower"), lean_lowering(Path(blobs)):
            program = BACKENDS[work.backend].lower(programs, half_weights(chunk, work.precision))
        with steps.step("write"), (folder / PROGRAM).open("wb") as file:
            program.write_to_file(file)
    Lowered(
        seconds=steps.seconds,
        peak_memory_bytes=peak_memory_bytes(),
        weights_bytes=weights_bytes,
        float_errors=float_errors,
    ).write(folder / LOWERED)


def is_float32(work: ChunkWork) -> bool:
    """Whether nothing of the chunk is quantised."""
    return work.precision.precision == work.precision.head == "fp32"


def _first_outputs(chunk: Chunk, config: ModelConfig, work: ChunkWork) -> dict[str, torch.Tensor]:
    """Output 0 of every method on the inputs of `_samples`, from float32 weights."""
    return {method.name: chunk(*_inputs(config, work, number))[0].clone() for number, method in enumerate(work.methods)}


def _relative(output: torch.Tensor, right: torch.Tensor) -> float:
    """Root mean square of the difference over that of `right`."""
    return float((output - right).norm() / right.norm())


def _inputs(config: ModelConfig, work: ChunkWork, number: int) -> tuple[torch.Tensor, ...]:
    return sample_inputs(config, work.layers, work.methods[number].shape, work.cache, seed=1000 * work.index + number)


def _samples(chunk: Chunk, config: ModelConfig, work: ChunkWork) -> dict[str, torch.Tensor]:
    """Inputs and eager outputs of every method, as `METHOD.input.INDEX` and `METHOD.output.INDEX`."""
    found = {}
    for number, method in enumerate(work.methods):
        inputs = _inputs(config, work, number)
        outputs = chunk(*inputs)
        if not all(torch.isfinite(tensor).all() for tensor in outputs):
            raise ExportError(
                f"chunk {work.index} gives infinities or NaN in eager PyTorch already",
                code="export.not_finite",
                hint="Its weights are finite but overflow float32: they are damaged or were converted wrongly. Compare them with their source.",
            )
        for kind, tensors in (("input", inputs), ("output", outputs)):
            found.update({f"{method.name}.{kind}.{index}": t.contiguous() for index, t in enumerate(tensors)})
    return found
