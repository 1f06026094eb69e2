"""Option values that need more than click's own types."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

_SPAN = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


class NumberList(click.ParamType[tuple[int, ...]]):
    """`0,2-4` as sorted, distinct numbers."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Numbers and spans separated by commas."""
        if isinstance(value, tuple):
            return value
        numbers: set[int] = set()
        for part in str(value).split(","):
            match = _SPAN.fullmatch(part.strip())
            if match is None or (match[2] and int(match[2]) < int(match[1])):
                self.fail(f"{value!r} is not a list of numbers such as 0,2-4", param, ctx)
            numbers.update(range(int(match[1]), int(match[2] or match[1]) + 1))
        return tuple(sorted(numbers))


def prompt_text(prompt: str | None, file: Path | None) -> str | None:
    """The prompt given on the command line or in a file, None where neither is.

    Raises:
        click.UsageError: both are given, the file cannot be read as UTF-8, or the prompt is empty.
    """
    if prompt is not None and file is not None:
        raise click.UsageError("--prompt and --prompt-file exclude each other")
    if file is not None:
        try:
            prompt = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"{file} cannot be read as UTF-8 text: {error}") from None
        prompt = prompt.removesuffix("\n")
    if prompt is not None and not prompt:
        raise click.UsageError("the prompt is empty")
    return prompt
