"""Android's NDK: where it is looked for, which revisions do and what differs between them, from `toolchains/ndk.yaml`."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Annotated, Literal

import pydantic

from etcli.tables.reading import Row, Table, read_table

_Names = Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]
_Revision = Annotated[str, pydantic.StringConstraints(pattern=r"^\d+(\.\d+)*$")]

PageSizeMeans = Literal["linker_option", "flexible", "default"]
"""How programs get segments for pages of 16 KiB: an option for the linker, the NDK's own CMake variable, or nothing at all."""


class PageSize(Row):
    """The means that hold from the revision `since` on."""

    since: _Revision
    means: PageSizeMeans


class NdkFacts(Table):
    """The whole table; the file says what each key means."""

    variables: _Names
    sdk_variables: _Names
    minimum: _Revision
    vendor: _Revision
    recommended: _Revision
    page_size: tuple[PageSize, ...] = pydantic.Field(strict=False, min_length=1)
    toolchain_file: str
    hosts: Mapping[str, str] = pydantic.Field(
        description="the NDK's folder name of a machine, by Python's name of its system"
    )
    compiler: str
    strip: str
    libraries: str
    runtime: str
    files: Mapping[str, str]

    @pydantic.model_validator(mode="after")
    def _rising(self) -> NdkFacts:
        since = [revision_numbers(row.since) for row in self.page_size]
        if since != sorted(set(since)) or since[0] > revision_numbers(self.minimum):
            raise ValueError("page_size begins at the minimum and rises")
        return self

    def page_size_means(self, revision: str) -> PageSizeMeans:
        """The means for an NDK of `revision`, which is no older than the minimum."""
        return [row.means for row in self.page_size if revision_numbers(row.since) <= revision_numbers(revision)][-1]


def revision_numbers(revision: str) -> tuple[int, ...]:
    """The numbers of a revision, to be compared: (27, 2, 12479018) of `27.2.12479018`. A word such as `-beta1` after them counts for nothing."""
    found = re.match(r"\d+(?:\.\d+)*", revision)
    return tuple(int(word) for word in found[0].split(".")) if found else ()


def release_name(revision: str) -> str:
    """The name that releases go by: `r27c` of `27.2.12479018`."""
    major, minor, *_ = (*revision_numbers(revision), 0, 0)
    return f"r{major}{chr(ord('a') + minor) if 0 < minor < 26 else ''}"


@functools.lru_cache(maxsize=1)
def ndk_facts() -> NdkFacts:
    """The table.

    Raises:
        ToolError: the table is missing or invalid (see `read_table`).
    """
    return read_table("ndk.yaml", NdkFacts)
