"""`bundle/manifest.json`: all that determines how a bundle behaves, and nothing else."""

from __future__ import annotations

from typing import Literal

import pydantic

from etcli.manifests.base import FileEntry, Manifest, Part, RecipeName
from etcli.manifests.model import ModelConfig
from etcli.manifests.quantised import Quality
from etcli.manifests.tokenizer import TokenizerKind

CacheKind = Literal["shift", "ring"]
"""The KV cache contract: whole caches shifted through a call, or a ring written in place."""


class Shape(Part):
    """One method's static shape: `tokens` per call (T) and `cache` length (C). Written `32t512c`."""

    tokens: int = pydantic.Field(gt=0)
    cache: int = pydantic.Field(gt=0)

    def __str__(self) -> str:
        return f"{self.tokens}t{self.cache}c"


class TensorSpec(Part):
    """One input or output of a method: its role, torch-style dtype name (`float32`) and static shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Method(Part):
    """A method of a chunk's program, with every tensor in call order, and what it needs from the runner."""

    name: str
    shape: Shape
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    operators: tuple[str, ...] = pydantic.Field(description="operators outside delegates, as `aten::add.out`")
    backends: tuple[str, ...] = pydantic.Field(description="delegate ids, as `XnnpackBackend`")


class ChunkFile(FileEntry):
    """A `.pte` file of a chunk, with the methods that it holds."""

    methods: tuple[Method, ...]


class Chunk(Part):
    """A run of layers `first_layer .. first_layer + layers - 1`, executed as one program."""

    index: int
    first_layer: int
    layers: int
    files: tuple[ChunkFile, ...]


class Embedding(FileEntry):
    """Raw row-major `[rows, cols]` token embedding, little-endian, no header.

    float32 and float16 rows are numbers. An int8 or int4 row is `cols / group_size` float32 scales, then the codes: a signed byte each, or
    two in a byte with the even column in the low half, stored plus 8. A value is its code times the scale of its group.
    """

    dtype: Literal["float32", "float16", "int8", "int4"]
    rows: int
    cols: int
    group_size: int | None = pydantic.Field(
        default=None, gt=0, description="columns that share a scale, for int8 and int4 alone"
    )

    @pydantic.model_validator(mode="after")
    def _groups_go_with_codes(self) -> Embedding:
        if (self.group_size is not None) != (self.dtype in ("int8", "int4")):
            raise ValueError(f"an embedding of {self.dtype} with group_size {self.group_size}")
        if self.group_size is not None and self.cols % self.group_size:
            raise ValueError(f"group_size {self.group_size} does not divide {self.cols} columns")
        return self


class RopeTable(FileEntry):
    """Raw float32 `[positions, 2, head_dim]`: for each position the cos row, then the sin row, each half written twice."""

    positions: int


class TokenizerFiles(FileEntry):
    """The tokenizer, the chat template beside it where the checkpoint has one, and the settings that its kind of file has no place for."""

    kind: TokenizerKind
    chat_template: FileEntry | None = None
    settings: FileEntry | None = None
    bos_id: int | None = None

    def files(self) -> tuple[FileEntry, ...]:
        """The tokenizer's own file first, then those beside it."""
        return (self, *(entry for entry in (self.chat_template, self.settings) if entry is not None))


class Versions(Part):
    """Versions that determine the bytes of the bundle."""

    etcli: str
    executorch: str
    torch: str
    program: str = pydantic.Field(description="identifier in the .pte files, as `ET12`")


class BundleManifest(Manifest):
    """What the later stages need to know of a bundle. Every path is relative to the bundle's folder."""

    name: RecipeName
    recipe_sha256: str
    inputs_sha256: str
    versions: Versions
    model: ModelConfig
    backend: str
    precision: str
    group_size: int | None = pydantic.Field(
        default=None, gt=0, description="weights that share a scale, where anything is quantised in groups"
    )
    head: str | None = pydantic.Field(default=None, description="precision of the output layer")
    layout: Literal["package", "separate"]
    shapes: tuple[Shape, ...]
    cache: CacheKind
    chunks: tuple[Chunk, ...]
    embedding: Embedding
    rope: RopeTable
    tokenizer: TokenizerFiles
    runner_config: FileEntry
    reference: tuple[FileEntry, ...] = pydantic.Field(
        default=(),
        description="the quantised graph of each chunk for an NPU, which the comparison runs; never deployed",
    )
    platform: str | None = pydantic.Field(default=None, description="NPU platform id, None for CPU backends")
    simulated: bool = pydantic.Field(
        default=False, description="whether it is compiled for the simulated NPU, whatever `platform` says"
    )
    quality: Quality | None = pydantic.Field(
        default=None, description="`demonstration` where the weights were made by `model.quantize`"
    )
    verified: bool = pydantic.Field(description="whether each chunk was compared with eager after export")

    @property
    def verifiable(self) -> bool:
        """Whether this machine can run the chunks: those for a true NPU it cannot."""
        return self.platform is None or self.simulated

    def files(self) -> tuple[FileEntry, ...]:
        """Every file of the bundle except the manifest itself."""
        return (*self.deployed_files(), *self.reference)

    def deployed_files(self) -> tuple[FileEntry, ...]:
        """Those of them that a device needs."""
        chunks = tuple(file for chunk in self.chunks for file in chunk.files)
        return (*chunks, self.embedding, self.rope, *self.tokenizer.files(), self.runner_config)
