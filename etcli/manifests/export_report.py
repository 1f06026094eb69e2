"""`export-report.json`: how an export went. It stays on this machine and never determines behaviour."""

from __future__ import annotations

from typing import Any, Literal

import pydantic

from etcli.manifests.base import Manifest, Part

Made = Literal["lowered", "template"]
"""How a program came to be: lowered, or weights put into the template of another of its graph, which gives the same bytes."""


class ChunkReport(Part):
    """One program of a chunk: worker wall seconds by step, its peak resident memory in bytes, and its error against eager.

    `max_abs_error` is the largest of `errors`, which are those of each method; None and empty where verification was turned off.
    """

    index: int
    file: str = pydantic.Field(default="", description="its place in the bundle")
    made: Made | None = None
    note: str | None = pydantic.Field(default=None, description="why no template was made or used")
    errors: dict[str, float] = pydantic.Field(default_factory=dict, description="by method")
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


class LoweringReport(Part):
    """A lowering that made a template: wall seconds by step and the peak resident memory in bytes; `note` says why none came of it."""

    title: str
    seconds: dict[str, float]
    peak_memory_bytes: int
    weights_bytes: int
    note: str | None = None


class Quality(Part):
    """How a quantised network's predictions compare with those of its float32 weights, over the positions of a text."""

    positions: int
    perplexity_float: float = pydantic.Field(description="of the float32 weights")
    perplexity: float = pydantic.Field(description="of the weights as they were exported")
    top1_agreement: float = pydantic.Field(description="share of positions where both prefer the same token")
    mean_kl: float = pydantic.Field(description="divergence of the exported network from float32, nats a position")
    chunk_errors: tuple[float, ...] = pydantic.Field(
        default=(),
        description="by chunk, how far its output is from that of float32 weights on the states that the text gives: root mean square of the "
        "difference over that of the output",
    )


class ExportReport(Manifest):
    """Timings, memory and host facts of one export. `source_stamp` tells later whether the checkpoint was touched since."""

    etcli: str
    versions: dict[str, str] = pydantic.Field(default_factory=dict, description="of all that decides bytes")
    host: dict[str, Any]
    source: str
    source_path: str
    source_stamp: dict[str, list[int]]
    started: str
    seconds: float
    stages: dict[str, float] = pydantic.Field(
        default_factory=dict, description="wall seconds of the export's own steps: hashing, programs, assembly"
    )
    lowerings: tuple[LoweringReport, ...] = ()
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
