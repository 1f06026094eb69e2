"""Option values that need more than click's own types."""

from __future__ import annotations

import codecs
import contextlib
import math
import re
import sys
from pathlib import Path
from typing import Any

import click

_SPAN = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")

_SIZE = re.compile(r"(?P<number>[0-9]{1,15}(?:\.[0-9]{1,6})?) ?(?:(?P<unit>[KMG])(?P<binary>i)?)?B?", re.IGNORECASE)

_MOST_BYTES = (1 << 63) - 1
"""What the kernel counts sizes in: above it there is no room to be had."""


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


class FiniteRange(click.FloatRange):
    """A number in a range: `nan` is in none, which comparing with the range's ends does not tell."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As click's, and then a number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number


class ByteCount(click.ParamType[int]):
    """`64MB`, `1.5 GB`, `4194304`: bytes by powers of 1000, as etcli prints them, or by powers of 1024 with `MiB`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """A whole number of bytes above 0, of at most 63 bits."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        count = 0
        if match is not None:
            base = 1024 if match["binary"] else 1000
            count = int(float(match["number"]) * base ** " KMG".index((match["unit"] or " ").upper()))
        if count <= 0:
            self.fail(f"{value!r} is no size such as 64MB or 2GiB", param, ctx)
        if count > _MOST_BYTES:
            self.fail(f"{value!r} is more than the {_MOST_BYTES:,} bytes that a file system counts", param, ctx)
        return count


class MinRatio(click.ParamType[tuple[str | None, float]]):
    """`0.95`, or `decode=0.95` for one figure, as the figure (None: every one) and the ratio."""

    name = "ratio"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str | None, float]:
        """The part after the last equals sign is the ratio."""
        if isinstance(value, tuple):
            return value
        figure, equals, ratio = str(value).rpartition("=")
        try:
            number = float(ratio)
        except ValueError:
            number = math.nan
        if not 0 < number <= 1000 or (equals and not figure.strip()):
            self.fail(
                f"{value!r} is neither a ratio above 0, such as 0.95, nor a figure's, such as decode=0.95", param, ctx
            )
        return figure.strip() or None, number


STDIN = Path("-")
"""Stands for standard input where a file is meant."""

MOST_TOKENS = (1 << 31) - 1
"""Of an answer: runners count in 32 bits."""

_LONGEST_PROMPT_FILE = 16 << 20
"""Bytes. No cache holds a tenth of that."""


def prompt_text(prompt: str | None, file: Path | None) -> str | None:
    """The prompt given on the command line or in a file, None where neither is.

    Raises:
        click.UsageError: both are given, the file cannot be read as UTF-8 or is far too long, or the prompt is empty.
    """
    if prompt is not None and file is not None:
        raise click.UsageError("--prompt and --prompt-file exclude each other")
    if file is not None:
        prompt = _file_text(file)
    if prompt is not None and not prompt:
        raise click.UsageError("the prompt is empty")
    return prompt


def _file_text(file: Path) -> str:
    """The text of a file or pipe, or of standard input (`-`), without its last line end and without a byte order mark."""
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if file == STDIN else file.open("rb") as source:
            data = source.read(_LONGEST_PROMPT_FILE + 1)
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror or error}") from None
    if len(data) > _LONGEST_PROMPT_FILE:
        raise click.UsageError(f"{file} holds more than {_LONGEST_PROMPT_FILE >> 20} MiB, which is no prompt")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise click.UsageError(f"{file} is UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"{file} is no UTF-8 text: byte {error.start:,} is 0x{data[error.start]:02x}; save it as UTF-8"
        ) from None
    return text.replace("\r\n", "\n").removesuffix("\n")
