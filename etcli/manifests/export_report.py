"""`export-report.json`: how an export went. It stays on this machine and never determines behaviour."""

from __future__ import annotations

from typing import Any

import pydantic

from etcli.manifests.base import Manifest, Part


class ChunkReport(Part):
    """One chunk: worker wall seconds by step, its peak resident memory in bytes, and its error against eager."""

    index: int
    seconds: dict[str, float]
    peak_memory_bytes: int
    weights_bytes: int
    max_abs_error: float | None
    reused: bool
    delegate_calls: dict[str, int] = pydantic.Field(
        default_factory=dict,
        description="calls of the backend's delegate by method; one is a whole network in one piece",
    )
    float_errors: dict[str, float] = pydantic.Field(
        default_factory=dict,
        description="by method, how far the quantised chunk's output is from that of float32 weights on random inputs: root mean square of "
        "the difference over that of the output; empty for fp32",
    )


class Quality(Part):
    """How a quantised network's predictions compare with those of its float32 weights, over the positions of a text."""

    positions: int
    perplexity_float: float = pydantic.Field(description="of the float32 weights")
    perplexity: float = pydantic.Field(description="of the weights as they were exported")
    top1_agreement: float = pydantic.Field(description="share of positions where both prefer the same token")
    mean_kl: float = pydantic.Field(description="divergence of the exported network from float32, nats a position")


class ExportReport(Manifest):
    """Timings, memory and host facts of one export. `source_stamp` tells later whether the checkpoint was touched since."""

    etcli: str
    host: dict[str, Any]
    source: str
    source_path: str
    source_stamp: dict[str, list[int]]
    started: str
    seconds: float
    chunks: tuple[ChunkReport, ...]
    unused_tensors: tuple[str, ...] = ()
    stop_ids: dict[int, tuple[str, ...]] = pydantic.Field(
        default_factory=dict, description="what names each id that ends an answer"
    )
    notes: tuple[str, ...] = ()
    evaluation: Quality | None = pydantic.Field(default=None, description="what `--evaluate` found")
    tensors_sha256: str = pydantic.Field(default="", description="over the hashes of all tensors when they were read")
    bundle_stamp: dict[str, list[int]] = pydantic.Field(
        default_factory=dict,
        description="size and modification time in ns of the bundle's files when they were written",
    )
