"""The reference's process: `python -m etcli.export.reference_worker JOB.json`, started by `export/reference.py`.

Events: `weights` (`held`, `bytes`), `token` (`index`, `id`).
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etcli.checkpoint.base import Checkpoint
from etcli.common.errors import CheckpointError
from etcli.export.isolated import Send, isolated_main


def work(job: dict[str, Any], send: Send) -> Mapping[str, Any]:
    """Decode (`tokens` of the job is null) or judge the given tokens.

    Raises:
        EtcliError: as opening a checkpoint and `ReferenceDecoder` do.
    """
    import psutil
    import torch

    from etcli.checkpoint.opening import open_checkpoint
    from etcli.llama.passes import HeldPasses, StreamedPasses, fits_in_memory, float32_bytes
    from etcli.llama.reference import ReferenceDecoder

    # More threads than physical cores slow matrix products down.
    torch.set_num_threads(min(len(os.sched_getaffinity(0)), psutil.cpu_count(logical=False) or 1))
    checkpoint = open_checkpoint(Path(job["checkpoint"]))
    held = fits_in_memory(checkpoint.config)
    size = float32_bytes(checkpoint.config)
    send({"event": "weights", "held": held, "bytes": size})
    kind = HeldPasses if held else StreamedPasses
    decoder = ReferenceDecoder(
        checkpoint,
        kind(checkpoint),
        stop_ids=_stop_ids(checkpoint),
        on_token=lambda index, token: send({"event": "token", "index": index, "id": token}),
    )
    prompt, cache = job["prompt_ids"], job["cache_length"]
    if job["tokens"] is not None:
        judged = decoder.judge(prompt, job["tokens"], cache_length=cache)
        return {"judgements": [dataclasses.asdict(item) for item in judged]}
    decoded = decoder.decode(prompt, max_new_tokens=job["max_new_tokens"], cache_length=cache)
    return dataclasses.asdict(decoded)


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
