"""Known messages of CMake, compilers and linkers, from `toolchains/build_errors.yaml`."""

from __future__ import annotations

import functools
import re
from typing import Annotated

import pydantic

from etcli.tables.reading import Row, Table, read_table


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return pattern


class BuildErrorRow(Row):
    """A regular expression over the lines reported, and what to do."""

    pattern: Annotated[str, pydantic.AfterValidator(_compiles)]
    hint: str


class _BuildErrors(Table):
    errors: tuple[BuildErrorRow, ...] = pydantic.Field(strict=False)


@functools.lru_cache(maxsize=1)
def load_build_errors() -> tuple[BuildErrorRow, ...]:
    """The rows in the order of the file.

    Raises:
        ToolError: the table is missing or invalid (see `read_table`).
    """
    return read_table("build_errors.yaml", _BuildErrors).errors
