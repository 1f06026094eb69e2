"""How a GGUF file starts, and the names that llama.cpp gives to the parts of a model. Kept apart from the reading, which imports numpy."""

from __future__ import annotations

import re
from pathlib import Path

MAGIC = b"GGUF"
_PART = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf")


def gguf_parts(path: Path) -> tuple[Path, ...]:
    """The files of a model that llama.cpp has split, in order, as the name of `path` (`NAME-00001-of-00003.gguf`) tells; else `path` alone.

    Whether they are there is not looked at.
    """
    match = _PART.fullmatch(path.name)
    count = int(match["count"]) if match else 0
    if match is None or not 1 <= int(match["number"]) <= count:
        return (path,)
    return tuple(path.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1))
