"""`build/<target>/manifest.json`: what went into a build, and what the audit saw in each binary."""

from __future__ import annotations

import pydantic

from etcli.manifests.base import FileEntry, Manifest, Part, RecipeName


class ElfFacts(Part):
    """What the audit read from one ELF file. `load_alignment` is the smallest PT_LOAD alignment in bytes.

    `kind` is ET_DYN for libraries and position-independent programs. `android_api` and `ndk` are what the NDK's linker notes in each file:
    the API level that it was built for, and its own release, as `r26d`.
    """

    machine: str
    interpreter: str | None
    soname: str | None
    needed: tuple[str, ...]
    run_path: str | None
    load_alignment: int
    kind: str = "ET_DYN"
    text_relocations: bool = False
    android_api: int | None = None
    ndk: str | None = None


class StagedFile(FileEntry):
    """A file of `stage/`, with its mode when pushed and why it is there."""

    executable: bool
    reason: str
    elf: ElfFacts | None = None


class CustomOperators(Part):
    """An operator library that the recipe asked for.

    `shipped` is its folder under `native/`, None for one of the user's own; `sha256` covers its description and sources.
    """

    name: str
    operators: tuple[str, ...] = pydantic.Field(description="as `aqlm::code2x8_lut_matmat.out`")
    openmp: bool = pydantic.Field(description="whether it was compiled with OpenMP")
    shipped: str | None
    sha256: str


class LibraryForApps(Part):
    """The runner as a library for apps. `files` are relative to `build/<target>/library/`."""

    api: int = pydantic.Field(description="ETCLI_RUNNER_API of its C interface")
    files: tuple[FileEntry, ...]


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
    ndk: str | None = pydantic.Field(default=None, description="the NDK's revision, as `27.2.12479018`; Android only")
    api_level: int | None = pydantic.Field(default=None, description="lowest Android API level that it runs on")
    stl: str | None = pydantic.Field(default=None, description="Android's C++ runtime: c++_static or c++_shared")
    sources_sha256: str = pydantic.Field(description="over the native sources and rendered files")
    custom_ops: tuple[CustomOperators, ...] = pydantic.Field(
        default=(), description="what the precision and build.custom_ops linked in, beside the runner's own operators"
    )
    cpu_features: tuple[str, ...] = pydantic.Field(
        default=(), description="what /proc/cpuinfo of a device has to list, beyond what every device of the ABI has"
    )
    dispatched: dict[str, tuple[str, ...]] = pydantic.Field(
        default_factory=dict, description="sources by their CPU features, called only where the CPU has them"
    )
    operators: tuple[str, ...] = pydantic.Field(description="operators that the runner provides, as `aten::add.out`")
    backends: tuple[str, ...] = pydantic.Field(description="delegates that the runner provides")
    program: str = pydantic.Field(description="identifier of .pte files that the runtime reads, as `ET12`")
    simulated: bool = pydantic.Field(
        default=False, description="whether the stage holds the simulated NPU's libraries, under the vendor's names"
    )
    library: LibraryForApps | None = pydantic.Field(default=None, description="what --library made for apps")
    stage: tuple[StagedFile, ...]
