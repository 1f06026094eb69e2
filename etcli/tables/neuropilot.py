"""What MediaTek's NeuroPilot Express SDK brings, from `toolchains/neuropilot.yaml`."""

from __future__ import annotations

import functools
from typing import Annotated, Literal

import pydantic

from etcli.tables.reading import Row, Table, read_table

_Names = Annotated[tuple[str, ...], pydantic.Field(strict=False)]
Needed = Literal["always", "mtk runner"]
"""Whether every runner needs a part, or ExecuTorch's own (`run.runner: mtk`) alone."""


class Wheel(Row):
    """A Python package. `versions` are known to work, the documented one first; `python` is the only CPython it is for."""

    name: str
    versions: _Names
    python: str | None
    why: str


class Host(Row):
    """The machine that the packages run on, in the words of Python's `platform`."""

    system: str
    machine: str


class Library(Row):
    """A shared library for the phone; `environment` is the variable that names it, or a folder it is in."""

    name: str
    environment: str
    why: str
    needed: Needed
    symbols: _Names
    old_symbols: _Names


class Header(Row):
    """A header to build with."""

    name: str
    why: str
    needed: Needed


class Neuropilot(Table):
    """The whole SDK, and what a phone's system has of it."""

    portal: str
    wheels: tuple[Wheel, ...] = pydantic.Field(strict=False)
    host: Host
    libraries: tuple[Library, ...] = pydantic.Field(strict=False)
    headers: tuple[Header, ...] = pydantic.Field(strict=False)
    device_folders: _Names
    device_libraries: _Names
    performance_libraries: _Names


@functools.lru_cache(maxsize=1)
def neuropilot() -> Neuropilot:
    """The table.

    Raises:
        ToolError: it is missing or invalid (see `read_table`).
    """
    return read_table("neuropilot.yaml", Neuropilot)
