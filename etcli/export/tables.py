"""Token embedding and rope table as the raw files that runners read. Runs in a worker."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch

from etcli.checkpoint.opening import open_checkpoint
from etcli.common.files import atomic_writer
from etcli.export.estimates import EMBEDDING_BLOCK_BYTES
from etcli.export.job import Job, TablesWork
from etcli.export.measure import Steps, write_outcome
from etcli.export.quantizers.embedding import encoded
from etcli.llama.rope import rope_table
from etcli.llama.weights import load_embedding_blocks

ROPE = "rope_float32.bin"


def write_tables(job: Job, work: TablesWork, folder: Path) -> None:
    """Write the embedding `[vocab, hidden]` and the rope table `[positions, 2, head_dim]`, little-endian without a header.

    The rope table is float32; the embedding's rows are as `quantizers.embedding.encoded` makes them.
    """
    torch.set_num_threads(job.threads)
    steps = Steps()
    with steps.step("write"):
        checkpoint = open_checkpoint(Path(job.checkpoint), job.adapter_path)
        config = checkpoint.config
        path = folder / f"embedding_{work.embedding.dtype}.bin"
        rows = max(1, EMBEDDING_BLOCK_BYTES // (config.hidden_size * 4))
        _write(path, (encoded(block, work.embedding) for block in load_embedding_blocks(checkpoint, rows)))
        _write(folder / ROPE, [rope_table(config.rope, config.head_dim, work.positions)])
    write_outcome(folder, [path, folder / ROPE], steps, config.vocab_size * config.hidden_size * 4)


def _write(path: Path, blocks: Iterable[torch.Tensor]) -> None:
    with atomic_writer(path) as file:
        for block in blocks:
            file.write(block.contiguous().view(torch.uint8).numpy().data)
