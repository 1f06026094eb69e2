"""The runner as shared libraries for apps: what to compile and what each may show, from `native/capi/library.yaml` and `native/jni/library.yaml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pydantic

from etcli.common.errors import BuildError
from etcli.common.hashing import file_sha256
from etcli.tables.operators import source_hashes
from etcli.tables.shipped import check_there, read_shipped, unusable

INTERFACE = "capi"
"""Folder under `native/` of the C interface."""

BINDING = "jni"
"""Folder under `native/` of the binding to Java, which is linked with the C interface alone."""

DESCRIPTION = "library.yaml"
JAVA = "java"
"""Folder in a library's own that holds its Java sources."""

_WHAT = "the sources of the library for apps"
# A function's name in a declaration: behind its type and before its parameters. Comments of the header name the same functions.
_FUNCTION = re.compile(r"\b(etcli_runner_\w+)\(")
_API = re.compile(r"^#define ETCLI_RUNNER_API (\d+)$", re.MULTILINE)

_Name = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
_Symbol = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Source = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9_]+\.cpp$")]
_Header = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9_]+\.h$")]
_Class = Annotated[str, pydantic.StringConstraints(pattern=r"^([a-z]+/)+[A-Z][A-Za-z]*\.java$")]
_List = pydantic.Field(strict=False)


class _Description(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    library: _Name
    sources: tuple[_Source, ...] = pydantic.Field(strict=False, min_length=1)
    exports: str = pydantic.Field(pattern=r"^[a-z0-9_]+\.map$")
    functions: Annotated[tuple[_Symbol, ...], _List] = ()
    headers: Annotated[tuple[_Header, ...], _List] = ()
    includes: tuple[_Name, ...] = pydantic.Field(strict=False, min_length=1)
    system: dict[Literal["android", "linux"], Annotated[tuple[_Name, ...], _List]] = {}
    java: Annotated[tuple[_Class, ...], _List] = ()
    rules: str | None = pydantic.Field(default=None, pattern=r"^[a-z-]+\.pro$")


@dataclass(frozen=True)
class AppLibrary:
    """A shared library that apps load.

    `name` is the file's without `lib` and `.so`, `root` the folder of its sources, `exports` the linker's version script, `functions` all that
    it shows. `headers` and `java` (below `root/java`) are for the app to compile with, `rules` is for its R8; `includes` are folders under
    `native/`, `system` the target's own libraries that it is linked with, by the target's system. `hashes` are SHA-256 by path relative to `root`.
    """

    name: str
    root: Path
    sources: tuple[str, ...]
    exports: str
    functions: frozenset[str]
    headers: tuple[str, ...]
    includes: tuple[str, ...]
    system: Mapping[str, tuple[str, ...]]
    java: tuple[str, ...]
    rules: str | None
    hashes: Mapping[str, str]

    @property
    def file(self) -> str:
        """The library's file name."""
        return f"lib{self.name}.so"

    @property
    def target(self) -> str:
        """Its name as a CMake target: the runner's own sources have the plain one."""
        return f"{self.name}_library"

    @property
    def folder(self) -> str:
        """Its folder's name under `native/`."""
        return self.root.name


@dataclass(frozen=True)
class AppLibraries:
    """The C interface, its version (ETCLI_RUNNER_API), and the binding to Java, None where there is nothing to compile that with."""

    interface: AppLibrary
    api: int
    binding: AppLibrary | None

    @property
    def all(self) -> tuple[AppLibrary, ...]:
        """Each of them, what is linked with another one behind that one."""
        return (self.interface, *((self.binding,) if self.binding is not None else ()))


def read_app_libraries(native: Path, *, binding: bool = True) -> AppLibraries:
    """The libraries under `native`, with the binding or without.

    Raises:
        BuildError: code `build.sources`: a description is missing or wrong, or names a file that is not there, or the header has no version.
    """
    interface = _read(native / INTERFACE)
    header = native / INTERFACE / interface.headers[0]
    match = _API.search(header.read_text(encoding="utf-8"))
    if match is None:
        raise unusable(header, _WHAT, "it does not define ETCLI_RUNNER_API")
    return AppLibraries(interface, int(match[1]), _read(native / BINDING) if binding else None)


def _read(root: Path) -> AppLibrary:
    path = root / DESCRIPTION
    read = read_shipped(path, _Description, _WHAT)
    copied = [*(f"{JAVA}/{name}" for name in read.java), *((read.rules,) if read.rules is not None else ())]
    check_there(path, (*read.sources, read.exports, *read.headers, *copied), _WHAT)
    declared = [name for header in read.headers for name in _FUNCTION.findall((root / header).read_text("utf-8"))]
    functions = frozenset((*read.functions, *declared))
    if not functions:
        raise unusable(path, _WHAT, "it shows no function")
    hashes = source_hashes(root, (*read.sources, read.exports, DESCRIPTION), BuildError)
    return AppLibrary(
        read.library,
        root,
        read.sources,
        read.exports,
        functions,
        read.headers,
        read.includes,
        {str(system): names for system, names in read.system.items()},
        read.java,
        read.rules,
        {**hashes, **{name: file_sha256(root / name) for name in copied}},
    )
