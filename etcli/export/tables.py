"""Token embedding and rope table as the raw files that runners read. Runs in a worker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from etcli.checkpoint.opening import open_checkpoint
from etcli.common.files import atomic_writer
from etcli.common.hashing import file_sha256
from etcli.export.job import Job, Outcome, TablesWork
from etcli.export.measure import Steps, peak_memory_bytes
from etcli.export.quantizers.embedding import encoded
from etcli.llama.rope import rope_table
from etcli.llama.weights import load_embedding
from etcli.manifests.base import FileEntry

ROPE = "rope_float32.bin"
_BLOCK_BYTES = 1 << 24


def write_tables(job: Job, work: TablesWork, folder: Path) -> None:
    """Write the embedding `[vocab, hidden]` and the rope table `[positions, 2, head_dim]`, little-endian without a header.

    The rope table is float32; the embedding's rows are as `quantizers.embedding.encoded` makes them.
    """
    torch.set_num_threads(job.threads)
    steps = Steps()
    with steps.step("write"):
        checkpoint = open_checkpoint(Path(job.checkpoint), job.adapter_path)
        config = checkpoint.config
        embedding = load_embedding(checkpoint)
        path = folder / f"embedding_{work.embedding.dtype}.bin"
        _write(path, embedding, lambda rows: encoded(rows, work.embedding))
        _write(folder / ROPE, rope_table(config.rope, config.head_dim, work.positions), lambda rows: rows)
    paths = (path, folder / ROPE)
    Outcome(
        files=tuple(FileEntry(path=path.name, size=path.stat().st_size, sha256=file_sha256(path)) for path in paths),
        times={path.name: path.stat().st_mtime_ns for path in paths},
        seconds=steps.seconds,
        peak_memory_bytes=peak_memory_bytes(),
        weights_bytes=embedding.nbytes,
    ).write(folder / Outcome.FILE)


def _write(path: Path, tensor: torch.Tensor, encode: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Rows in blocks, so that a mapped tensor is never in memory as a whole."""
    rows = max(1, _BLOCK_BYTES // (tensor[0].numel() * 4))
    with atomic_writer(path) as file:
        for start in range(0, tensor.shape[0], rows):
            file.write(encode(tensor[start : start + rows]).contiguous().view(torch.uint8).numpy().tobytes())
