"""The reference's process: `python -m etcli.export.reference_worker JOB.json`, started by `export/reference.py`.

Events: `weights` (`held`, `bytes`), `token` (`index`, `id`), `note` (`text`).
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etcli.checkpoint.base import Checkpoint
from etcli.common.errors import CheckpointError
from etcli.export.isolated import EventConsole, Send, isolated_main
from etcli.export.job import EmbeddingSettings, PrecisionSettings

if TYPE_CHECKING:
    from etcli.llama.passes import Rounding


def work(job: dict[str, Any], send: Send) -> Mapping[str, Any]:
    """Decode (`tokens` of the job is null) or judge the given tokens, with the weights as `precision` and `embedding` of the job leave them.

    Raises:
        EtcliError: as opening a checkpoint and `ReferenceDecoder` do.
    """
    from etcli.checkpoint.opening import open_checkpoint
    from etcli.llama.passes import HeldPasses, StreamedPasses, fits_in_memory, held_bytes
    from etcli.llama.reference import ReferenceDecoder

    use_physical_cores()
    adapter = job.get("adapter")
    checkpoint = open_checkpoint(Path(job["checkpoint"]), None if adapter is None else Path(adapter))
    if job.get("graphs"):
        from etcli.export.neuron.decoder import judge_quantised

        graphs = [Path(path) for path in job["graphs"]]
        found = judge_quantised(checkpoint, graphs, job["prompt_ids"], job["tokens"], cache_length=job["cache_length"])
        return {"judgements": [dataclasses.asdict(item) for item in found]}
    use_compiled_operators(checkpoint, send)
    held = fits_in_memory(checkpoint.config)
    size = held_bytes(checkpoint.config)
    send({"event": "weights", "held": held, "bytes": size})
    kind = HeldPasses if held else StreamedPasses
    rounding = rounding_of(
        PrecisionSettings.model_validate(job["precision"]), EmbeddingSettings.model_validate(job["embedding"])
    )
    decoder = ReferenceDecoder(
        checkpoint,
        kind(checkpoint, rounding),
        stop_ids=_stop_ids(checkpoint),
        on_token=lambda index, token: send({"event": "token", "index": index, "id": token}),
    )
    prompt, cache = job["prompt_ids"], job["cache_length"]
    if job["tokens"] is not None:
        judged = decoder.judge(prompt, job["tokens"], cache_length=cache)
        return {"judgements": [dataclasses.asdict(item) for item in judged]}
    decoded = decoder.decode(prompt, max_new_tokens=job["max_new_tokens"], cache_length=cache)
    return dataclasses.asdict(decoded)


def use_physical_cores() -> None:
    """Set PyTorch's threads: more than physical cores slow matrix products down."""
    import psutil
    import torch

    torch.set_num_threads(min(len(os.sched_getaffinity(0)), psutil.cpu_count(logical=False) or 1))


def use_compiled_operators(checkpoint: Checkpoint, send: Send) -> None:
    """Have compiled kernels multiply with the checkpoint's AQLM weights, if it has such and they can be had here; else it takes longer."""
    if checkpoint.config.aqlm is not None:
        from etcli.ops.aqlm import use_compiled

        use_compiled(EventConsole(send))


def rounding_of(precision: PrecisionSettings, embedding: EmbeddingSettings) -> Rounding | None:
    """What an export with these settings does to the weights, None where it keeps them all."""
    from etcli.export.quantizers.embedding import rounded
    from etcli.export.quantizers.registry import is_exact, quantise
    from etcli.llama.passes import Rounding

    if is_exact(precision) and embedding.dtype == "float32":
        return None
    return Rounding(lambda chunk: quantise(chunk, precision), lambda rows: rounded(rows, embedding))


def _stop_ids(checkpoint: Checkpoint) -> tuple[int, ...]:
    """Those that a bundle of the checkpoint gets: its own, and its tokenizer's where it has one."""
    from etcli.export.assembly import united_config
    from etcli.tokenizer.opening import open_tokenizer

    try:
        return united_config(checkpoint.config, open_tokenizer(checkpoint.path)).stop_ids
    except CheckpointError:
        return checkpoint.config.stop_ids


if __name__ == "__main__":
    sys.exit(isolated_main(work, sys.argv))
