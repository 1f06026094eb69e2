"""The native sources of a build: `native/runner` and its list `sources.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pydantic

from etcli.common.errors import BuildError
from etcli.tables.operators import source_hashes
from etcli.tables.shipped import check_there, read_shipped

LIST = "sources.yaml"
_WHAT = "the native sources"

_File = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*\.(cpp|cc)$")]
_Name = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class _List(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    library: tuple[_File, ...] = pydantic.Field(min_length=1)
    all_programs: tuple[_File, ...] = ()
    programs: dict[_Name, _File] = pydantic.Field(min_length=1)
    definitions: tuple[_Name, ...] = ()


@dataclass(frozen=True)
class RunnerSources:
    """What is compiled.

    `root` is the folder of the sources, `library` what programs and the library for apps share, `all_programs` what all programs have beside
    it, `programs` maps a program to its own source, `definitions` are the macros that a build gives values to, `hashes` the SHA-256 of every
    file by path relative to `root`.
    """

    root: Path
    library: tuple[str, ...]
    all_programs: tuple[str, ...]
    programs: Mapping[str, str]
    definitions: tuple[str, ...]
    hashes: Mapping[str, str]


def read_sources(native: Path) -> RunnerSources:
    """The sources under `native/runner`.

    Raises:
        BuildError: code `build.sources`: the list is missing or invalid, or names a file that is not there.
    """
    root = native / "runner"
    path = root / LIST
    listed = read_shipped(path, _List, _WHAT)
    files = (*listed.library, *listed.all_programs, *listed.programs.values())
    check_there(path, files, _WHAT)
    return RunnerSources(
        root,
        listed.library,
        listed.all_programs,
        dict(listed.programs),
        listed.definitions,
        source_hashes(root, (*files, LIST), BuildError),
    )
