"""Templates kept for later exports, in the cache folder: small files without weights, under a hash of all that determines them."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from etcli.common.files import remove_tree
from etcli.common.locks import exclusive
from etcli.common.workspace import cache_dir
from etcli.export.templates.template import Refused, load_template

KEPT_BYTES = 256 << 20
"""Templates used least recently are removed beyond this."""

_SUFFIX = ".template"


class TemplateCache:
    """`templates/KEY.template` below `folder` (by default etcli's cache folder). Files appear and go as wholes, whoever else is at work.

    A cache that cannot be read or written is an empty one: exports then take longer, nothing else.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = (folder or cache_dir()) / "templates"

    def has(self, key: str) -> bool:
        """Whether there is such a template."""
        return self._path(key).is_file()

    def take(self, key: str, target: Path) -> bool:
        """Copy a template to `target`; whether there is one. A damaged one is removed, so that another takes its place."""
        path = self._path(key)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        except OSError:
            return False
        try:
            load_template(target)
        except Refused:
            for damaged in (target, path):
                with contextlib.suppress(OSError):
                    remove_tree(damaged)
            return False
        with contextlib.suppress(OSError):
            os.utime(path)
        return True

    def keep(self, key: str, source: Path) -> None:
        """Add a template, and remove the oldest where they have become too many."""
        with contextlib.suppress(OSError), exclusive(self._folder / ".lock"):
            temporary = self._folder / f".{key}.{os.getpid()}.tmp"
            try:
                shutil.copyfile(source, temporary)
                temporary.replace(self._path(key))
            finally:
                temporary.unlink(missing_ok=True)
            self._prune()

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{_SUFFIX}"

    def _prune(self) -> None:
        kept = 0
        found = [(path.stat(), path) for path in self._folder.glob(f"*{_SUFFIX}")]
        for status, path in sorted(found, key=lambda item: item[0].st_mtime, reverse=True):
            kept += status.st_size
            if kept > KEPT_BYTES:
                path.unlink(missing_ok=True)
        for path in self._folder.glob(".*.tmp"):
            path.unlink(missing_ok=True)  # of a process that died: the lock is ours
