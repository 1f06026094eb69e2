"""`build/<target>/manifest.json`: what went into a build, and what the audit saw in each binary."""

from __future__ import annotations

import pydantic

from etcli.manifests.base import FileEntry, Manifest, Part, RecipeName


class ElfFacts(Part):
    """What the audit read from one ELF file. `load_alignment` is the smallest PT_LOAD alignment in bytes."""

    machine: str
    interpreter: str | None
    soname: str | None
    needed: tuple[str, ...]
    run_path: str | None
    load_alignment: int


class StagedFile(FileEntry):
    """A file of `stage/`, with its mode when pushed and why it is there."""

    executable: bool
    reason: str
    elf: ElfFacts | None = None


class BuildManifest(Manifest):
    """A build of one target. `stage` lists everything to be pushed, relative to `build/<target>/stage/`."""

    name: RecipeName
    recipe_sha256: str
    etcli: str
    target: str
    machine: str = pydantic.Field(description="ELF machine of the programs, as `EM_AARCH64`")
    build_type: str
    executorch_version: str
    executorch_provider: str
    compiler: str
    cmake: str
    sources_sha256: str = pydantic.Field(description="over the native sources and rendered files")
    custom_ops: tuple[str, ...] = ()
    operators: tuple[str, ...] = pydantic.Field(description="operators that the runner provides, as `aten::add.out`")
    backends: tuple[str, ...] = pydantic.Field(description="delegates that the runner provides")
    program: str = pydantic.Field(description="identifier of .pte files that the runtime reads, as `ET12`")
    stage: tuple[StagedFile, ...]
