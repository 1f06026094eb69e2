"""SHA-256 of stored tensors, remembered between processes for as long as the file is untouched."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path

from etcli.checkpoint.base import TensorInfo
from etcli.common.errors import CheckpointError
from etcli.common.hashing import value_sha256
from etcli.common.workspace import cache_dir

_BLOCK = 1 << 20
_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")


def identity(path: Path) -> dict[str, int | str]:
    """What tells one state of a file from another without reading it: its place, size, times and inode."""
    status = path.stat()
    return {
        "path": str(path.resolve()),
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "ctime_ns": status.st_ctime_ns,
        "inode": status.st_ino,
    }


class TensorHashes:
    """Hashes over a tensor's stored bytes, type and shape.

    Known ones are kept in the cache folder under the identity of the checkpoint's files, a line each, appended whole: processes that
    hash at once do not disturb one another, and a cache that cannot be written only costs time.
    """

    def __init__(self, *files: Path) -> None:
        key = value_sha256([identity(file) for file in files])
        self._store = cache_dir() / "tensor-hashes" / f"{key}.txt"
        self._known: dict[str, str] | None = None

    def sha256(self, name: str, file: Path, offset: int, nbytes: int, info: TensorInfo) -> str:
        """Hash of the tensor `name`, whose `nbytes` bytes start at `offset` of `file`.

        Raises:
            CheckpointError: `checkpoint.truncated`, the file no longer has them.
        """
        if self._known is None:
            self._known = self._load()
        if name not in self._known:
            digest = hashlib.sha256(json.dumps([info.dtype, list(info.shape)]).encode())
            with file.open("rb") as source:
                source.seek(offset)
                while nbytes:
                    block = source.read(min(nbytes, _BLOCK))
                    if not block:
                        raise CheckpointError(f"{file.name} ends within {name}", code="checkpoint.truncated", file=file)
                    digest.update(block)
                    nbytes -= len(block)
            self._known[name] = digest.hexdigest()
            self._append(f"{digest.hexdigest()}  {name}\n")
        return self._known[name]

    def _load(self) -> dict[str, str]:
        try:
            lines = self._store.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return {}
        return {match[2]: match[1] for match in map(_LINE.fullmatch, lines) if match}

    def _append(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._store.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._store, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(handle, line.encode())
            finally:
                os.close(handle)
