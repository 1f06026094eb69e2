"""Operator libraries: what to compile for which processor, and what it registers, from the `op.yaml` beside the sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pydantic
import yaml

from etcli.common.errors import BuildError
from etcli.common.hashing import file_sha256

DESCRIPTION = "op.yaml"
ATTENTION = "attention"
"""Folder under `native/` of the operators that chunks with `cache: ring` need."""

_TESTS = "tests"
_COMPILED = (".cpp", ".h", ".cc", ".hpp", ".inc", ".inl")

_Source = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*\.(cpp|cc)$")]
_Name = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Flag = Annotated[str, pydantic.StringConstraints(pattern=r"^-[A-Za-z0-9][A-Za-z0-9_.=+-]*$")]
# The name of the overload is what the runtime looks up; the rest is for people, and for PyTorch, which checks it.
_Schema = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)?\(.*\) -> .+$")]


class _Description(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    name: _Name
    namespace: _Name
    operators: tuple[_Schema, ...] = pydantic.Field(min_length=1)
    sources: tuple[_Source, ...] = pydantic.Field(min_length=1)
    architectures: dict[_Name, dict[_Source, tuple[_Flag, ...]]] = {}
    definitions: tuple[_Name, ...] = ()
    components: tuple[_Name, ...] = ("runtime",)
    torch: tuple[_Source, ...] = ()
    openmp: bool = False


@dataclass(frozen=True)
class OperatorLibrary:
    """Sources that register operators with ExecuTorch.

    `root` is their folder, `schemas` the operators' schemas without namespace, `sources` what is compiled for every processor,
    `architectures` what is added for one (the first part of a compiler's triple), with flags for that file alone; `components` are the parts
    of ExecuTorch's package that it is linked with, `hashes` the SHA-256 of every file by path relative to `root`. `torch` are the sources of
    a PyTorch binding, which the library for ExecuTorch is compiled without; `openmp` is whether the sources can use OpenMP.
    """

    name: str
    root: Path
    namespace: str
    schemas: tuple[str, ...]
    sources: tuple[str, ...]
    architectures: Mapping[str, Mapping[str, tuple[str, ...]]]
    definitions: tuple[str, ...]
    components: tuple[str, ...]
    hashes: Mapping[str, str]
    torch: tuple[str, ...] = ()
    openmp: bool = False

    @property
    def operators(self) -> tuple[str, ...]:
        """What it has to register, as `etcli::last_row.out`, in alphabetical order."""
        return tuple(sorted(f"{self.namespace}::{schema.partition('(')[0]}" for schema in self.schemas))

    def special(self, triple: str) -> Mapping[str, tuple[str, ...]]:
        """Sources of their own and their flags for a compiler that builds for `triple`."""
        return self.architectures.get(triple.split("-")[0], {})


def read_operators(root: Path) -> OperatorLibrary:
    """The operator library in the folder `root`.

    Raises:
        BuildError: code `operators.invalid`: its description is missing or wrong, or names a file that is not there.
    """
    path = root / DESCRIPTION
    try:
        read = _Description.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise _bad(path, error.strerror or str(error)) from None
    except (yaml.YAMLError, UnicodeDecodeError, pydantic.ValidationError) as error:
        raise _bad(path, " ".join(str(error).split())) from None
    listed = [*read.sources, *(name for extra in read.architectures.values() for name in extra), *read.torch]
    absent = [name for name in listed if not (root / name).is_file()]
    if absent:
        raise _bad(path, f"it lists files that are not there: {', '.join(absent)}")
    hashes = {
        file.relative_to(root).as_posix(): file_sha256(file)
        for file in sorted(root.rglob("*"))
        if file.suffix in _COMPILED and file.relative_to(root).parts[0] != _TESTS
    }
    return OperatorLibrary(
        name=read.name,
        root=root,
        namespace=read.namespace,
        schemas=read.operators,
        sources=read.sources,
        architectures=read.architectures,
        definitions=read.definitions,
        components=read.components,
        hashes={**hashes, DESCRIPTION: file_sha256(path)},
        torch=read.torch,
        openmp=read.openmp,
    )


def _bad(path: Path, why: str) -> BuildError:
    return BuildError(
        f"the operator library cannot be used: {why}",
        code="operators.invalid",
        hint="Reinstall etcli, or undo the change.",
        file=path,
    )
