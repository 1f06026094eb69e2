"""Runs the float network on calibration prompts, one chunk after the other, and records what each of them sees. Runs in a worker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from etcli.checkpoint.base import Checkpoint
from etcli.checkpoint.opening import open_checkpoint
from etcli.export.job import CalibrationWork, Job
from etcli.export.measure import Steps, write_outcome
from etcli.export.neuron.records import inputs_of, record_file, write_records
from etcli.llama.chunk import Chunk
from etcli.llama.passes import HeldPasses, StreamedPasses, fits_in_memory
from etcli.llama.prefill import Call, split_prompt
from etcli.llama.reference import ReferenceDecoder
from etcli.llama.weights import load_embedding_rows, load_weights

PADDING_ID = 0
"""Whose embedding stands in rows of padding, as in both runners."""

Hidden = dict[tuple[int, int], torch.Tensor]


@torch.inference_mode(False)
@torch.no_grad()
def calibrate(job: Job, work: CalibrationWork, folder: Path) -> None:
    """Write the records of every chunk and `outcome.json` into `folder`.

    Raises:
        CheckpointError: the weights cannot be read, or give NaN.
    """
    torch.set_num_threads(job.threads)
    steps = Steps()
    checkpoint = open_checkpoint(Path(job.checkpoint), job.adapter_path)
    config, cache = checkpoint.config, work.shapes[0].cache
    with steps.step("answers"):
        answers = _answers(checkpoint, work)
    sizes = [shape.tokens for shape in work.shapes]
    calls = [
        [*split_prompt(len(prompt), sizes), *(Call(1, 0) for _ in answer)]
        for prompt, answer in zip(work.prompts, answers, strict=True)
    ]
    sequences = [[*prompt, *answer] for prompt, answer in zip(work.prompts, answers, strict=True)]
    chunks = config.num_layers // work.layers
    names = [record_file(index) for index in range(chunks)]
    weights = 0
    with steps.step("chunks"):
        hidden = _embedded(checkpoint, sequences, calls)
        for index, name in enumerate(names):
            write_records(folder / name, calls, hidden)
            if index < chunks - 1:
                chunk = Chunk(config, index * work.layers, work.layers, head=False).eval()
                load_weights(chunk, checkpoint)
                weights = max(weights, sum(parameter.nbytes for parameter in chunk.parameters()))
                hidden = _through(chunk, cache, calls, hidden)
                del chunk
    write_outcome(folder, [folder / name for name in names], steps, weights)


def _answers(checkpoint: Checkpoint, work: CalibrationWork) -> list[list[int]]:
    """The greedy answer of each prompt as far as it is fed back: without a stop id at its end, and within the cache."""
    if not work.response_cap:
        return [[] for _ in work.prompts]
    passes = HeldPasses(checkpoint) if fits_in_memory(checkpoint.config) else StreamedPasses(checkpoint)
    decoder = ReferenceDecoder(checkpoint, passes, stop_ids=work.stop_ids)
    cache = work.shapes[0].cache
    found = []
    for prompt in work.prompts:
        decoded = decoder.decode(prompt, max_new_tokens=work.response_cap, cache_length=cache)
        tokens = [token for token in decoded.tokens if token not in work.stop_ids]
        found.append(tokens[: cache - len(prompt)])
    return found


def _embedded(checkpoint: Checkpoint, sequences: Sequence[Sequence[int]], calls: Sequence[Sequence[Call]]) -> Hidden:
    """The embedding rows of every call, with padding on the left."""
    hidden: Hidden = {}
    for prompt, (ids, own) in enumerate(zip(sequences, calls, strict=True)):
        start = 0
        for number, call in enumerate(own):
            row = [*[PADDING_ID] * call.padding, *ids[start : start + call.real]]
            hidden[prompt, number] = load_embedding_rows(checkpoint, row).unsqueeze(0)
            start += call.real
    return hidden


def _through(chunk: Chunk, cache: int, calls: Sequence[Sequence[Call]], hidden: Hidden) -> Hidden:
    """What the next chunk sees."""
    found: Hidden = {}
    for prompt, own in enumerate(calls):
        steps = inputs_of(
            chunk.config,
            len(chunk.layers),
            cache,
            own,
            lambda number, prompt=prompt: hidden[prompt, number],  # type: ignore[misc]
            chunk,
        )
        for number, (_, outputs) in enumerate(steps):
            found[prompt, number] = outputs[0].clone()
    return found
