"""Paths as people write them in options and variables."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def written_path(text: str | os.PathLike[str]) -> Path:
    """`text` as an absolute path that has one spelling however it was reached: relative to the working folder, with `~`, with `..`.

    The home of a user who is none of this machine stays as it is written, as a shell leaves it: what looks there finds nothing, and says where.
    Links are followed only where `..` asks what they lead to, so that a folder keeps the name that it was given.
    """
    path = Path(text)
    with contextlib.suppress(RuntimeError):
        path = path.expanduser()
    path = path.absolute()
    return path.resolve() if ".." in path.parts else path
