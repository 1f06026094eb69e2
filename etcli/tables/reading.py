"""Reads a YAML file of `toolchains/` into a frozen pydantic model."""

from __future__ import annotations

import re
from typing import TypeVar

import pydantic
import yaml

from etcli.common.assets import asset_dir
from etcli.common.errors import ToolError

T = TypeVar("T", bound="Table")


class Row(pydantic.BaseModel):
    """A piece of a table: immutable, unknown keys refused, no conversion between types."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())


class Table(Row):
    """A whole file."""


def compiling_pattern(pattern: str) -> str:
    """`pattern`, which has to be a regular expression: a validator for fields that hold one."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return pattern


def read_table(file: str, model: type[T]) -> T:
    """The table in `toolchains/<file>`.

    Raises:
        ToolError: code `tables.missing` or `tables.invalid`; users may edit these files, so it names what is wrong in them.
    """
    path = asset_dir("toolchains") / file
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        return model.model_validate(values)
    except OSError as error:
        raise ToolError(
            f"cannot read {path}: {error.strerror}", code="tables.missing", hint="Reinstall etcli.", file=path
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        raise ToolError(
            f"{path} is not valid YAML: {error}",
            code="tables.invalid",
            hint="Undo the change to this file, or reinstall etcli.",
            file=path,
            line=mark.line + 1 if mark else None,
        ) from None
    except pydantic.ValidationError as error:
        details = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:5])
        raise ToolError(
            f"{path} does not fit this etcli: {details}",
            code="tables.invalid",
            hint="Undo the change to this file, or reinstall etcli.",
            file=path,
        ) from None
