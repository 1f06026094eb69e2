"""What errors of the runtime and the device mean, from `toolchains/known_errors.yaml`."""

from __future__ import annotations

import functools
import re
from typing import Annotated

import pydantic

from etcli.tables.reading import Row, Table, compiling_pattern, read_table

# A number is an error code only where the text says so. C++ writes hex (once with a stray colon), Java and old C++ decimal, which other
# programs' exit statuses and counts look like, so that form counts only in sentences that are ExecuTorch's own or name it.
_CODE = re.compile(
    r"(?:\b(?:error|code|status|failed|ExecuTorch error \w{1,60})\s{0,3}[:=(\[]?\s{0,3}(?:\d{1,3} ?\()?0x:?(?P<hex>[0-9a-f]{1,4})\b)"
    r"|(?:\b(?:Load failed|registration failed with error|[Ee]xecu[Tt]orch[^\n]{0,120}?\b(?:error|code|status))[:=,]?\s{0,3}(?P<decimal>\d{1,3})\b(?! ?\())"
    r"|(?:\bError::(?P<name>[A-Z]\w{3,40}))",
    re.IGNORECASE,
)
_MOST_TEXT = 64 * 1024
_LONGEST_LINE = 2000
"""Patterns that look for two words in a line take the square of its length."""


class ErrorCode(Row):
    """A number of ExecuTorch's `Error`."""

    code: int = pydantic.Field(ge=1, le=0xFFFF)
    name: str
    meaning: str
    next: str


class ExitStatus(Row):
    """An exit status as a shell gives it: 128 + signal for a program that a signal ended."""

    status: int = pydantic.Field(ge=1, le=255)
    signal: str | None
    meaning: str
    next: str


class KnownMessage(Row):
    """Output that means something; `{1}` in `next` is the first group of `pattern`."""

    id: str
    pattern: Annotated[str, pydantic.AfterValidator(compiling_pattern)]
    meaning: str
    next: str


class RunnerCode(Row):
    """A code of an `error` event of etcli's own runner (docs/runner-protocol.md), for messages of which nothing else is known."""

    code: str = pydantic.Field(pattern=r"^runner\.[a-z_]{1,40}$")
    next: str


class KnownErrors(Table):
    """The whole table."""

    codes: tuple[ErrorCode, ...] = pydantic.Field(strict=False)
    statuses: tuple[ExitStatus, ...] = pydantic.Field(strict=False)
    runner: tuple[RunnerCode, ...] = pydantic.Field(strict=False)
    messages: tuple[KnownMessage, ...] = pydantic.Field(strict=False)
    log_tags: tuple[Annotated[str, pydantic.AfterValidator(compiling_pattern)], ...] = pydantic.Field(strict=False)

    def code(self, number: int) -> ErrorCode | None:
        """The ExecuTorch error of that number."""
        return next((row for row in self.codes if row.code == number), None)

    def status(self, number: int) -> ExitStatus | None:
        """The exit status, or the signal where `number` is negative as `subprocess` has it."""
        shell = 128 - number if number < 0 else number
        return next((row for row in self.statuses if row.status == shell), None)


@functools.lru_cache(maxsize=1)
def load() -> KnownErrors:
    """The table.

    Raises:
        ToolError: the table is missing or invalid (see `read_table`).
    """
    return read_table("known_errors.yaml", KnownErrors)


def explain_text(text: str) -> list[str]:
    """What is known of a program's output, one sentence pair a finding, in the order of the table, each once.

    `text` is untrusted; the first 2,000 characters of each line of its last 64 KiB are looked at.
    """
    text = "\n".join(line[:_LONGEST_LINE] for line in text[-_MOST_TEXT:].split("\n"))
    found = []
    for row in load().messages:
        match = re.search(row.pattern, text)
        if match is not None:
            found.append(_sentence(row.meaning, row.next.replace("{1}", _printable(match))))
    for match in _CODE.finditer(text):
        explained = explain_code(_number(match))
        if explained is not None:
            found.append(explained)
    return list(dict.fromkeys(found))


def _number(match: re.Match[str]) -> int:
    """The number that a match of `_CODE` gives; 0, which is no error, for a name that is none."""
    if match["hex"]:
        return int(match["hex"], 16)
    if match["decimal"]:
        return int(match["decimal"])
    return next((row.code for row in load().codes if row.name.lower() == match["name"].lower()), 0)


def explain_code(number: int) -> str | None:
    """An ExecuTorch error number in words, or None."""
    row = load().code(number)
    return (
        None
        if row is None
        else _sentence(f"ExecuTorch error {number} (0x{number:02x}), {row.name}: {row.meaning}", row.next)
    )


def explain_runner_code(code: str) -> str | None:
    """What to do about an error that etcli's runner gave this code, or None."""
    return next((row.next for row in load().runner if row.code == code), None)


def explain_status(number: int) -> str | None:
    """An exit status of a shell (or minus a signal) in words, or None."""
    row = load().status(number)
    return None if row is None else _sentence(f"{row.signal or f'exit status {row.status}'}: {row.meaning}", row.next)


def _printable(match: re.Match[str]) -> str:
    group = (match[1] if match.re.groups else "") or match[0]
    return "".join(char if char.isprintable() else "?" for char in group)


def _sentence(meaning: str, step: str) -> str:
    return f"{meaning[:1].upper()}{meaning[1:]}. {step}"
