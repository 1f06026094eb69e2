"""Finished pieces of an export, kept by the hash of what they were made from, so that an interrupted export goes on where it was.

A piece is a folder `pieces/KEY/` with its files and the worker's `outcome.json`; it gets that name by one rename when it is whole. The
bundle's files are hard links to a piece's where the file system allows, so keeping pieces costs no space. Nothing ever writes into one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from etcli.common.errors import UsageError
from etcli.common.files import remove_tree
from etcli.common.hashing import file_sha256
from etcli.export.job import Job, Outcome


class Store:
    """The pieces below `root`. One process at a time: the caller holds the lock."""

    def __init__(self, root: Path) -> None:
        self._pieces = root / "pieces"
        self._running = root / "running"

    def piece(self, key: str) -> Path:
        """Where the finished piece stands."""
        return self._pieces / key

    def has_any(self) -> bool:
        """Whether there is any finished piece."""
        return self._pieces.is_dir() and any(self._pieces.iterdir())

    def is_whole(self, key: str) -> bool:
        """Whether there is a finished piece whose files are what they were."""
        return self._outcome(key) is not None

    def find(self, key: str) -> Outcome | None:
        """The outcome of a finished piece whose files are what they were: by size and time, or else by their hash. Others are removed."""
        outcome = self._outcome(key)
        if outcome is None:
            self.drop(key)
        return outcome

    def _outcome(self, key: str) -> Outcome | None:
        folder = self.piece(key)
        try:
            outcome = Outcome.read(folder / Outcome.FILE)
            if all(_intact(folder / entry.path, entry.size, entry.sha256, outcome.times) for entry in outcome.files):
                return outcome
        except (OSError, UsageError):
            pass
        return None

    def drop(self, key: str) -> None:
        """Forget a piece."""
        remove_tree(self.piece(key))

    def running(self, key: str) -> Path:
        """Where the worker that makes the piece writes."""
        return self._running / key

    def begin(self, key: str) -> Path:
        """An empty folder for the worker that makes the piece."""
        folder = self.running(key)
        remove_tree(folder)
        folder.mkdir(parents=True)
        return folder

    def finish(self, key: str) -> Outcome:
        """Keep what the worker wrote.

        Raises:
            FileNotFoundError: the worker left no outcome.
        """
        folder = self.running(key)
        outcome = Outcome.read(folder / Outcome.FILE)
        (folder / Job.FILE).unlink(missing_ok=True)
        remove_tree(self.piece(key))
        self._pieces.mkdir(parents=True, exist_ok=True)
        folder.rename(self.piece(key))
        return outcome

    def clear_running(self) -> None:
        """Remove what unfinished workers left."""
        remove_tree(self._running)

    def keep_only(self, keys: Collection[str]) -> None:
        """Remove pieces that the bundle does not use, which would only take space."""
        if self._pieces.is_dir():
            for folder in self._pieces.iterdir():
                if folder.name not in keys:
                    remove_tree(folder)


def link_or_copy(source: Path, target: Path) -> None:
    """Give `target` the content of `source`: by a hard link, or by a copy where the file system has none. Times are kept."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _intact(path: Path, size: int, sha256: str, times: dict[str, int]) -> bool:
    status = path.stat()
    if status.st_size != size:
        return False
    return status.st_mtime_ns == times.get(path.name) or file_sha256(path) == sha256
