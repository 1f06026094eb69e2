"""What the parent asks of a worker, and what the worker answers: JSON files in the job's own folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pydantic

from etcli.common.errors import ExitCode, Problem
from etcli.manifests.base import FileEntry, Manifest, Part
from etcli.manifests.bundle import CacheKind, Method, Shape
from etcli.manifests.export_report import Made

PROGRAM = "chunk.pte"
"""The program of a chunk in its worker's folder and in its piece."""

STEP_MARK = "@step "
"""A line of a worker's stdout that starts so names the step that begins."""

DONE_MARK = "@done"
"""The line by which a worker says that a job is done and that it waits for the next."""

LAST_MARK = "@last"
"""The same of one that ends now."""

COMPILE_STEP = "compile"
"""The step of a worker in which the compiler for the NPU works, before the name of the method that it is given."""

COMPILER_FAILED = "neuron.compiler_failed"
"""The code of an error of converter or compiler, of whose words the worker's log has more."""

QUANTISED = "chunk.pt2"
"""The quantised graph of a chunk in its worker's folder and in its piece."""

STEPS: dict[str, dict[str, float]] = {
    "lower": {"read": 0.06, "trace": 0.06, "lower": 0.78, "write": 0.05, "cut": 0.05},
    "chunk": {"read": 0.25, "eager": 0.15, "fill": 0.3, "verify": 0.3},
    "tables": {"write": 1.0},
    "calibration": {"answers": 0.6, "chunks": 0.4},
    "quantise": {"read": 0.1, "trace": 0.2, "measure": 0.5, "write": 0.2},
}
"""Steps by kind of work and their usual share of its time, for the progress bar."""


_STEP_WORDS = {
    "read": "reading weights",
    "trace": "tracing",
    "lower": "lowering",
    "cut": "making a template",
    "eager": "running eager PyTorch",
    "fill": "putting weights in",
    "verify": "comparing with PyTorch",
    "write": "writing",
    "answers": "answering the prompts",
    "chunks": "recording what chunks see",
    "measure": "measuring ranges",
}


def step_words(step: str) -> str:
    """What a worker does in `step`, as people are told."""
    if step.startswith(f"{COMPILE_STEP} "):
        return f"compiling {step.removeprefix(f'{COMPILE_STEP} ')}"
    return _STEP_WORDS.get(step, step)


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


class NetworkWork(Part):
    """What of the network a program holds: the layers of chunk `index` with these methods."""

    index: int
    first_layer: int
    layers: int
    head: bool
    methods: tuple[NamedShape, ...]
    backend: str
    cache: CacheKind
    precision: PrecisionSettings = PrecisionSettings()


class NpuSettings(Part):
    """What a chunk is compiled for.

    Attributes:
        platform: the SoC's id, as `mt6991`.
        compile_specs: the recipe's additions to the compiler's options.
        shared: whether the program's methods share their weights.
        simulated: whether the NPU is the simulated one.
    """

    platform: str
    compile_specs: dict[str, str] = pydantic.Field(default_factory=dict)
    shared: bool
    simulated: bool


class ChunkWork(NetworkWork):
    """Make one program of a chunk.

    Attributes:
        tolerance: what its results may differ from eager PyTorch, as `Backend.precisions` says.
        verify: whether it is run and compared at all.
        lowered: where a `LowerWork` may have left this very program.
        template: where the template of its graph is, unless there can be none.
        npu: what it is compiled for, where that is an NPU.
        quantised: the folder with the chunk's quantised graph, which a `QuantiseWork` left.
        records: the folder of the `CalibrationWork`.
    """

    kind: Literal["chunk"] = "chunk"
    tolerance: float
    verify: bool = True
    lowered: str | None = None
    template: str | None = None
    npu: NpuSettings | None = None
    quantised: str | None = None
    records: str | None = None


class CalibrationWork(Part):
    """Record what every chunk of the network sees of some prompts and of the tokens that the network itself answers.

    Attributes:
        prompts: ids of each.
        response_cap: the most tokens that are generated after each.
        shapes: those of the network's methods.
        layers: of each chunk.
        stop_ids: ids that end an answer.
    """

    kind: Literal["calibration"] = "calibration"
    prompts: tuple[tuple[int, ...], ...]
    response_cap: int
    shapes: tuple[Shape, ...]
    layers: int
    stop_ids: tuple[int, ...]


class QuantiseWork(NetworkWork):
    """Quantise the graph of a chunk by what the records in the folder `records` say of its activations."""

    kind: Literal["quantise"] = "quantise"
    npu: NpuSettings
    records: str


class Variant(Part):
    """A template to make: its file in the job's folder, and its methods' names in the order of the work's."""

    file: str
    names: tuple[str, ...]


class LowerWork(NetworkWork):
    """Lower one program, and make templates of it for all chunks of its graph: one for each set of lengths of names."""

    kind: Literal["lower"] = "lower"
    variants: tuple[Variant, ...]


class TablesWork(Part):
    """Write the token embedding and the rope table of `positions`."""

    kind: Literal["tables"] = "tables"
    positions: int
    embedding: EmbeddingSettings = EmbeddingSettings()


Work = ChunkWork | LowerWork | TablesWork | CalibrationWork | QuantiseWork
"""What a worker can be asked for."""


class Job(Manifest):
    """One worker's job. `parent` is the process that it must not outlive, `threads` how many it may use."""

    FILE: ClassVar[str] = "job.json"

    parent: int
    checkpoint: str
    adapter: str | None = None
    threads: int
    work: Annotated[Work, pydantic.Field(discriminator="kind")]

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
    made: Made | None = pydantic.Field(default=None, description="how the program came to be")
    note: str | None = pydantic.Field(default=None, description="why there is no template, or why it was not used")
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
