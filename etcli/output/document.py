"""The one JSON document that `--json` prints, and the plain form of results inside it."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pydantic

from etcli.common.errors import Problem
from etcli.output.console import Warn

SCHEMA_VERSION = 1


def to_plain(value: Any) -> Any:
    """`value` as JSON-like data: models, dataclasses, paths, enums and tuples turned into mappings, texts and lists."""
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(item) for item in value]
    return value


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "code": problem.code,
        "message": problem.message,
        "hint": problem.hint,
        "file": _text(problem.file),
        "line": problem.line,
    }


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def document(
    command: str, *, exit_code: int, result: Any, warnings: Iterable[Warn] = (), problems: Iterable[Problem] = ()
) -> str:
    """The document as JSON text on one or more lines. `result` may be anything `to_plain` takes, None after a failure."""
    utf8 = (sys.stdout.encoding or "utf-8").lower().replace("-", "") == "utf8"
    text = json.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "command": command,
            "ok": exit_code == 0,
            "exit": int(exit_code),
            "result": to_plain(result),
            "warnings": [{"code": warning.code, "message": warning.message} for warning in warnings],
            "errors": [_problem(problem) for problem in problems],
        },
        indent=2,
        ensure_ascii=not utf8,
    )
    # Bytes of a file name that are no UTF-8 stay readable: \udcXX, which is how JSON writes a lone surrogate.
    return text.encode("utf-8", "backslashreplace").decode()
