"""SHA-256 of files and of plain values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

_BLOCK = 1 << 20


def file_sha256(path: Path, progress: Callable[[int], None] | None = None) -> str:
    """Lower-case hex SHA-256 of a file, read in blocks of 1 MiB; `progress` is called with the bytes of each block."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            if progress is not None:
                progress(len(block))
    return digest.hexdigest()


def value_sha256(value: Any) -> str:
    """SHA-256 of a JSON-like value, independent of the order of mapping keys.

    Raises:
        TypeError: the value holds something that JSON has no form for.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
