"""JSON objects that came with a checkpoint: untrusted, of bounded size, with a clear message when they are something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from etcli.common.errors import CheckpointError

_MAX_BYTES = 64 << 20


def read_object(path: Path, *, code: str, limit: int = _MAX_BYTES) -> dict[str, Any]:
    """The JSON object in `path`.

    Raises:
        CheckpointError: with `code`: larger than `limit` bytes, not UTF-8, not JSON, not an object; with the line where JSON ends.
    """
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if data.startswith(b"version https://git-lfs"):
        raise CheckpointError(
            f"{path.name} is a Git LFS pointer, not the file itself",
            code="checkpoint.lfs_pointer",
            hint="Fetch the real file: git lfs pull (in the clone), or download it again from its publisher.",
            file=path,
        )
    line = None
    try:
        if len(data) > limit:
            raise ValueError(f"it has more than {limit} bytes")
        value = json.loads(data)
        if not isinstance(value, dict):
            raise ValueError("it is not a mapping")
    except json.JSONDecodeError as error:
        what, line = error.msg, error.lineno
    except (ValueError, RecursionError) as error:
        what = str(error)
    else:
        return value
    raise CheckpointError(
        f"{path.name} cannot be read: {what}",
        code=code,
        hint="Fetch the file again; the download may have been cut off.",
        file=path,
        line=line,
    )
