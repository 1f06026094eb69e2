"""The simulated NPU's libraries: what to compile, from `native/neuron_sim/libraries.yaml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pydantic

from etcli.common.errors import BuildError
from etcli.tables.operators import source_hashes
from etcli.tables.shipped import read_shipped, unusable

FOLDER = "neuron_sim"
"""Folder under `native/`."""

INCLUDES = ("neuron_sim", "neuron")
"""Folders under `native/` that the sources include from."""

DESCRIPTION = "libraries.yaml"

_WHAT = "the simulated NPU's sources"

_LIBRARY = re.compile(r"lib[a-z_.]+\.so")
_List = pydantic.Field(strict=False)
_Source = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9_]+\.cpp$")]
_Component = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]


class _Row(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    sources: tuple[_Source, ...] = pydantic.Field(strict=False, min_length=1)
    exports: str = pydantic.Field(pattern=r"^[a-z0-9_]+\.map$")
    components: Annotated[tuple[_Component, ...], _List] = ()
    system_libraries: Annotated[tuple[Literal["dl"], ...], _List] = ()


class _Description(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    libraries: dict[str, _Row] = pydantic.Field(min_length=1)


@dataclass(frozen=True)
class SimulatedLibrary:
    """A shared library of the simulated NPU, which programs open by its name while they run.

    `exports` is the linker's version script, `components` are parts of ExecuTorch's package, without `executorch::`.
    """

    name: str
    sources: tuple[str, ...]
    exports: str
    components: tuple[str, ...]
    system_libraries: tuple[str, ...]

    @property
    def target(self) -> str:
        """Its name as a CMake target."""
        return self.name.removesuffix(".so")


@dataclass(frozen=True)
class SimulatedNpu:
    """All of them; `hashes` are the SHA-256 of what they are compiled from, by path relative to `native/`."""

    libraries: tuple[SimulatedLibrary, ...]
    hashes: Mapping[str, str]

    @property
    def components(self) -> tuple[str, ...]:
        """Parts of ExecuTorch's package that any of them is linked with."""
        return tuple(dict.fromkeys(name for library in self.libraries for name in library.components))


def read_simulated_npu(native: Path) -> SimulatedNpu:
    """The libraries under `native`.

    Raises:
        BuildError: code `build.sources`: their description is missing or wrong, or names a file that is not there.
    """
    root = native / FOLDER
    path = root / DESCRIPTION
    read = read_shipped(path, _Description, _WHAT)
    names = [name for name in read.libraries if not _LIBRARY.fullmatch(name)]
    files = [name for row in read.libraries.values() for name in (*row.sources, row.exports)]
    absent = sorted({name for name in files if not (root / name).is_file()})
    if names or absent:
        raise unusable(path, _WHAT, f"it lists what is no library or not there: {', '.join((*names, *absent))}")
    hashes = source_hashes(root, (*files, DESCRIPTION), BuildError)
    return SimulatedNpu(
        tuple(SimulatedLibrary(name, **dict(row)) for name, row in read.libraries.items()),
        {f"{FOLDER}/{name}": sha256 for name, sha256 in hashes.items()},
    )
