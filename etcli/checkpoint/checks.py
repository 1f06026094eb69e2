"""What `etcli validate` asks of a checkpoint."""

from __future__ import annotations

from pathlib import Path

from etcli.checkpoint.opening import examine
from etcli.common.errors import Problem


def header_problems(path: Path, adapter: Path | None = None) -> list[Problem]:
    """Everything wrong with the checkpoint at `path` as far as headers tell, all at once; empty for a good one. No tensor is read.

    With an adapter, what is wrong with that too, or with the two together.
    """
    return examine(path, adapter)[1]
