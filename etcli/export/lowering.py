"""One chunk from weights to a `.pte`, and templates of it. Runs in a worker."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch.export import ExportedProgram

from etcli.checkpoint.opening import open_checkpoint
from etcli.export.backends.registry import MODULE_BACKENDS
from etcli.export.job import PROGRAM as PROGRAM
from etcli.export.job import Job, LowerWork, NetworkWork, Variant
from etcli.export.lean import known_versions, lean_lowering, renamed
from etcli.export.measure import Steps, write_outcome
from etcli.export.quantizers.registry import half_weights, quantise, stored_blobs
from etcli.export.samples import sample_inputs
from etcli.export.templates.constants import buffer_blobs, constants, number_blobs
from etcli.export.templates.cutting import Constant, cut
from etcli.export.templates.template import Refused, save_template
from etcli.llama.chunk import Chunk
from etcli.llama.weights import load_weights


@torch.inference_mode(False)
@torch.no_grad()
def lower_chunk(job: Job, work: LowerWork, folder: Path) -> None:
    """Write `chunk.pte`, the templates of `work.variants` and `outcome.json` into `folder`; where no template can be made, a note of why.

    Raises:
        CheckpointError: the weights cannot be read.
    """
    torch.set_num_threads(job.threads)
    steps = Steps()
    with steps.step("read"):
        chunk = load_chunk(job, work)
        weights_bytes = sum(parameter.nbytes for parameter in chunk.parameters())
        quantise(chunk, work.precision)
    note = write_program(chunk, work, folder, steps, work.variants)
    write_outcome(folder, [], steps, weights_bytes, made="lowered", note=note)


def load_chunk(job: Job, work: NetworkWork) -> Chunk:
    """The work's chunk with its float32 weights.

    Raises:
        CheckpointError: the weights cannot be read.
    """
    checkpoint = open_checkpoint(Path(job.checkpoint), job.adapter_path)
    chunk = Chunk(checkpoint.config, work.first_layer, work.layers, head=work.head, cache=work.cache).eval()
    load_weights(chunk, checkpoint)
    return chunk


def write_program(
    chunk: Chunk, work: NetworkWork, folder: Path, steps: Steps, variants: tuple[Variant, ...] = ()
) -> str | None:
    """Lower `chunk`, quantised already, into `folder/chunk.pte`, and make the templates of `variants`; returns why there is none."""
    with steps.step("trace"):
        programs = {
            method.name: torch.export.export(
                chunk, sample_inputs(chunk.config, work.layers, method.shape, work.cache, seed=0), strict=False
            )
            for method in work.methods
        }
    with tempfile.TemporaryDirectory(prefix="weights-", dir=folder) as blobs:
        with steps.step("lower"), lean_lowering(Path(blobs)):
            manager = MODULE_BACKENDS[work.backend].lower(programs, half_weights(chunk, work.precision))
        with steps.step("write"), (folder / PROGRAM).open("wb") as file:
            manager.write_to_file(file)
        if not variants:
            return None
        with steps.step("cut"):
            weights, fixed = _constants(chunk, work, programs)
            own = tuple(method.name for method in work.methods)
            try:
                for variant in variants:
                    path = folder / PROGRAM
                    if variant.names != own:
                        if not known_versions():
                            raise Refused(
                                "this ExecuTorch is not known well enough to write a program under other names"
                            )
                        path = Path(blobs) / variant.file
                        with path.open("wb") as file:
                            renamed(manager, dict(zip(own, variant.names, strict=True))).write_to_file(file)
                    save_template(folder / variant.file, *cut(path, variant.names, weights, fixed))
            except Refused as error:
                return str(error)
    return None


def _constants(
    chunk: Chunk, work: NetworkWork, programs: Mapping[str, ExportedProgram]
) -> tuple[list[Constant], list[Constant]]:
    return (
        list(constants(stored_blobs(chunk, work.precision))),
        [*constants(buffer_blobs(chunk)), *constants(number_blobs(programs.values()))],
    )
