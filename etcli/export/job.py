"""What the parent asks of a worker, and what the worker answers: JSON files in the job's own folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pydantic

from etcli.common.errors import ExitCode, Problem
from etcli.manifests.base import FileEntry, Manifest, Part
from etcli.manifests.bundle import CacheKind, Method, Shape

STEP_MARK = "@step "
"""A line of a worker's stdout that starts so names the step that begins."""

STEPS: dict[str, float] = {"read": 0.08, "eager": 0.05, "trace": 0.07, "lower": 0.65, "write": 0.05, "verify": 0.10}
"""Steps of a chunk and their usual share of its time, for the progress bar."""


class NamedShape(Part):
    """A method to export."""

    name: str
    shape: Shape


class PrecisionSettings(Part):
    """How a chunk's linears are quantised: `precision` for all but the head's, `head` for that, and the group size where one needs it.

    Names are those of `quantizers.registry.QUANTIZERS`.
    """

    precision: str = "fp32"
    group_size: int | None = None
    head: str = "fp32"


EmbeddingDtype = Literal["float32", "float16", "int8", "int4"]


class EmbeddingSettings(Part):
    """How the embedding table is written: `dtype` as the bundle's manifest names it, and the group size of quantised ones."""

    dtype: EmbeddingDtype = "float32"
    group_size: int | None = None


class ChunkWork(Part):
    """Export one chunk."""

    kind: Literal["chunk"] = "chunk"
    index: int
    first_layer: int
    layers: int
    head: bool
    methods: tuple[NamedShape, ...]
    backend: str
    cache: CacheKind
    precision: PrecisionSettings = PrecisionSettings()
    tolerance: float


class TablesWork(Part):
    """Write the token embedding and the rope table of `positions`."""

    kind: Literal["tables"] = "tables"
    positions: int
    embedding: EmbeddingSettings = EmbeddingSettings()


class Job(Manifest):
    """One worker's job. `parent` is the process that it must not outlive, `threads` how many it may use."""

    FILE: ClassVar[str] = "job.json"

    parent: int
    checkpoint: str
    adapter: str | None = None
    threads: int
    work: Annotated[ChunkWork | TablesWork, pydantic.Field(discriminator="kind")]

    @property
    def adapter_path(self) -> Path | None:
        """The LoRA adapter to merge, if there is one."""
        return None if self.adapter is None else Path(self.adapter)


class Outcome(Manifest):
    """What a worker did: files in the job's folder with their modification times in ns, and how it went."""

    FILE: ClassVar[str] = "outcome.json"

    files: tuple[FileEntry, ...]
    times: dict[str, int]
    seconds: dict[str, float]
    peak_memory_bytes: int
    weights_bytes: int
    program: str | None = pydantic.Field(default=None, description="identifier of the .pte, as `ET12`")
    methods: tuple[Method, ...] = ()
    delegate_calls: dict[str, int] = pydantic.Field(default_factory=dict)
    errors: dict[str, float] = pydantic.Field(
        default_factory=dict, description="largest absolute error against eager by method"
    )
    float_errors: dict[str, float] = pydantic.Field(
        default_factory=dict,
        description="error of the eager quantised chunk's output against float32 by method: root mean square over that of the output",
    )


class Trouble(Part):
    """A `Problem` on its way from a worker to its parent."""

    code: str
    message: str
    hint: str | None
    file: str | None
    line: int | None
    column: int | None
    exit_code: int

    @classmethod
    def of(cls, problem: Problem) -> Trouble:
        """The same problem as a document."""
        return cls(
            code=problem.code,
            message=problem.message,
            hint=problem.hint,
            file=None if problem.file is None else str(problem.file),
            line=problem.line,
            column=problem.column,
            exit_code=int(problem.exit_code),
        )

    def problem(self) -> Problem:
        """The problem."""
        return Problem(
            code=self.code,
            message=self.message,
            hint=self.hint,
            file=None if self.file is None else Path(self.file),
            line=self.line,
            column=self.column,
            exit_code=ExitCode(self.exit_code),
        )


class Troubles(Manifest):
    """Why a worker gave up."""

    FILE: ClassVar[str] = "troubles.json"

    problems: tuple[Trouble, ...]
