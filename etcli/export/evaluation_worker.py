"""The evaluation's process: `python -m etcli.export.evaluation_worker JOB.json`, started by `export/evaluation.py`.

Events: `pass` after each of the two networks, float32 and as exported; only one of them is in memory at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etcli.export.isolated import Send, isolated_main


def work(job: dict[str, Any], send: Send) -> Mapping[str, Any]:
    """Predict every id of the job's `ids` but the first, twice, and compare.

    Raises:
        EtcliError: as opening a checkpoint and `ReferenceDecoder` do.
    """
    import torch

    from etcli.checkpoint.opening import open_checkpoint
    from etcli.export.job import EmbeddingSettings, PrecisionSettings
    from etcli.export.quality import quality
    from etcli.export.reference_worker import rounding_of, use_physical_cores
    from etcli.llama.passes import StreamedPasses
    from etcli.llama.reference import ReferenceDecoder

    use_physical_cores()
    checkpoint = open_checkpoint(Path(job["checkpoint"]), None if job["adapter"] is None else Path(job["adapter"]))
    ids = job["ids"]
    precision = PrecisionSettings.model_validate(job["precision"])
    embedding = EmbeddingSettings.model_validate(job["embedding"])
    found = []
    for rounding in (None, rounding_of(precision, embedding)):
        # each layer is needed once, so there is nothing to hold
        decoder = ReferenceDecoder(checkpoint, StreamedPasses(checkpoint, rounding))
        found.append(decoder.logits(ids[:-1], rows=len(ids) - 1))
        send({"event": "pass"})
    right, exported = found
    return {"quality": quality(right, exported, torch.tensor(ids[1:])).model_dump()}


if __name__ == "__main__":
    sys.exit(isolated_main(work, sys.argv))
