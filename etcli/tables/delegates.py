"""Delegates of our own: what to compile and what it registers, from the `component.yaml` beside the sources."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pydantic

from etcli.common.errors import BuildError
from etcli.tables.op_yaml import ApiLevel, Component, Definition, Name, Source
from etcli.tables.operators import OperatorLibrary, source_hashes
from etcli.tables.shipped import check_there, read_shipped

NEURON = "neuron"
"""Folder under `native/` of the delegate for MediaTek's NPU."""

DESCRIPTION = "component.yaml"

_WHAT = "the delegate's sources"

_List = pydantic.Field(strict=False)
_Backend = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]*Backend$")]


class _Description(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Name
    backends: tuple[_Backend, ...] = pydantic.Field(min_length=1, strict=False)
    sources: tuple[Source, ...] = pydantic.Field(min_length=1, strict=False)
    definitions: Annotated[tuple[Definition, ...], _List] = ()
    components: Annotated[tuple[Component, ...], _List] = ("runtime",)
    system_libraries: Annotated[tuple[Literal["dl"], ...], _List] = ()
    android_libraries: Annotated[tuple[Literal["log", "android"], ...], _List] = ()
    api_level: ApiLevel | None = None


def read_delegate(root: Path) -> OperatorLibrary:
    """The delegate in the folder `root`: a library without operators, with `backends`.

    Raises:
        BuildError: code `build.sources`: its description is missing or wrong, or names a file that is not there.
    """
    path = root / DESCRIPTION
    read = read_shipped(path, _Description, _WHAT)
    check_there(path, read.sources, _WHAT)
    return OperatorLibrary(
        name=read.name,
        root=root,
        namespace="",
        schemas=(),
        sources=read.sources,
        architectures={},
        definitions=read.definitions,
        components=tuple(dict.fromkeys(("runtime", *read.components))),
        hashes=source_hashes(root, (*read.sources, DESCRIPTION), BuildError),
        backends=read.backends,
        system_libraries=read.system_libraries,
        android_libraries=read.android_libraries,
        api_level=read.api_level,
    )
