"""What messages of CMake, compilers and linkers mean, from `toolchains/build_errors.yaml`."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import pydantic

from etcli.tables.reading import Row, Table, compiling_pattern, read_table

_MOST_TEXT = 64 * 1024


class BuildMessage(Row):
    """A message with its cause and remedy; see the head of the file."""

    id: Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9_]+$")]
    pattern: Annotated[str, pydantic.AfterValidator(compiling_pattern)]
    cause: str
    remedy: str


class _Messages(Table):
    messages: tuple[BuildMessage, ...] = pydantic.Field(strict=False)

    @pydantic.model_validator(mode="after")
    def _unique(self) -> _Messages:
        names = [row.id for row in self.messages]
        if len(set(names)) != len(names):
            raise ValueError("an id stands twice")
        return self


@dataclass(frozen=True)
class Explanation:
    """A known failure: `cause` ends a sentence, `remedy` is sentences of its own, `id` the row's."""

    id: str
    cause: str
    remedy: str


@functools.lru_cache(maxsize=1)
def build_messages() -> tuple[BuildMessage, ...]:
    """Every row, in the order of the file.

    Raises:
        ToolError: the table is missing or invalid (see `read_table`).
    """
    return read_table("build_errors.yaml", _Messages).messages


def explain_build(lines: Sequence[str]) -> Explanation | None:
    """What the first known message among the errors `lines` of a log means, or None. Of their text the first 64 KiB are looked at."""
    text = " ".join(" ".join(lines).split())[:_MOST_TEXT]
    first: tuple[int, BuildMessage, re.Match[str]] | None = None
    for row in build_messages():
        match = re.search(row.pattern, text)
        if match is not None and (first is None or match.start() < first[0]):
            first = match.start(), row, match
    if first is None:
        return None
    _, row, match = first
    group = next((text for text in match.groups() if text), match[0])
    shown = "".join(char if char.isprintable() else "?" for char in group)
    upper = re.sub(r"\W", "_", shown.upper())
    return Explanation(row.id, row.cause, row.remedy.replace("{1:upper}", upper).replace("{1}", shown))
