"""`hf:ORG/NAME@REV`: the files of a model on the Hugging Face hub, in the hub's own cache, so that other programs share them.

The package `huggingface_hub` (the extra `hub`) is needed to download, not to find what is in the cache. Layout of the cache:
`models--ORG--NAME/refs/REV` holds a commit, `snapshots/COMMIT` links to `blobs`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from etcli.checkpoint.hub_errors import explained, missing_package, offline_problem
from etcli.checkpoint.hub_files import Choice, choose, complete
from etcli.common.errors import CheckpointError, EtcliError, Problems
from etcli.common.paths import written_path
from etcli.common.workspace import offline
from etcli.output.console import Console

_COMMIT = re.compile("[0-9a-f]{40}")
_RESERVE = 64 << 20
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class HubSource:
    """A repository of the hub at a revision: a branch, a tag or a commit."""

    repository: str
    revision: str

    def __str__(self) -> str:
        return f"hf:{self.repository}@{self.revision}"

    @property
    def _folder(self) -> Path:
        return hub_cache() / f"models--{self.repository.replace('/', '--')}"

    @property
    def commit(self) -> str | None:
        """The commit that the revision is in the cache; None where the cache does not know it."""
        if _COMMIT.fullmatch(self.revision):
            return self.revision
        if any(part in ("", ".", "..") for part in self.revision.split("/")):
            return None
        try:
            commit = (self._folder / "refs" / self.revision).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return commit if _COMMIT.fullmatch(commit) else None

    @property
    def cached(self) -> Path | None:
        """The checkpoint as far as the cache has all of it: a snapshot's folder, or the GGUF file that is its only checkpoint."""
        commit = self.commit
        if commit is None:
            return None
        snapshot = self._folder / "snapshots" / commit
        return complete(snapshot) if snapshot.is_dir() else None

    def fetch(self, console: Console) -> Path:
        """The checkpoint, downloaded if the cache lacks any of it. What the cache has is used without asking the hub.

        Raises:
            ToolError: `hub.package`, `huggingface_hub` is not installed.
            CheckpointError: `hub.offline`, `hub.gated`, `hub.repository`, `hub.revision`, `hub.files`, `hub.network`, `hub.download`,
                `source.no_space`, or what is wrong with a `config.json`, for which alone no weights are fetched.
        """
        found = self.cached
        if found is None:
            found = self._download(console)
        commit = self.commit
        if commit != self.revision:
            console.detail(f"{self} is commit {commit}")
        return found

    def _download(self, console: Console) -> Path:
        try:
            # by name: the package brings its parts only when asked for them
            from huggingface_hub import HfApi, constants, utils
        except ImportError:
            raise EtcliError.many([missing_package(str(self))]) from None
        if offline() or _says_yes("HF_HUB_OFFLINE") or constants.HF_HUB_OFFLINE:
            raise EtcliError.many([offline_problem(str(self))])
        # Read now, as the cache folder is, not when the package was imported.
        endpoint = os.environ.get("HF_ENDPOINT") or None
        with console.step(f"Fetching {self.repository} at {self.revision}"), explained(str(self), self.repository):
            api = HfApi(endpoint=endpoint, library_name="etcli")
            info = api.model_info(self.repository, revision=self.revision, files_metadata=True)
            sizes = {sibling.rfilename: sibling.size or 0 for sibling in info.siblings or ()}
            choice = choose(str(self), sizes)
            commit = str(info.sha)
            console.note(f"{self.repository} at {self.revision} is commit {commit}")
            if not _COMMIT.fullmatch(self.revision):
                console.detail(f"a branch may move; write hf:{self.repository}@{commit} to keep this state")
            self._check_space(choice, sizes)
            total = sum(sizes[name] for name in choice.files)

            def download(files: Sequence[str]) -> Path:
                snapshot = api.snapshot_download(
                    self.repository, revision=self.revision, cache_dir=hub_cache(), allow_patterns=[*files]
                )
                return Path(snapshot)

            with (
                _quiet(utils),
                console.progress(self.repository, total, bytes_=True) as done,
                self._watched(done),
            ):
                if choice.described:
                    self._check_configuration(choice.checkpoint(download(choice.described)))
                snapshot = download(choice.files)
        return choice.checkpoint(snapshot)

    def _check_configuration(self, folder: Path) -> None:
        """Refuse a network that its configuration alone shows not to be supported, before gigabytes of weights are fetched."""
        from etcli.checkpoint.hf_config import read_config

        problems = Problems()
        read_config(folder, problems)
        problems.found = [
            replace(problem, message=problem.message.replace(folder.name, self.repository))
            for problem in problems.found
        ]
        problems.raise_if_any()

    def _check_space(self, choice: Choice, sizes: Mapping[str, int]) -> None:
        needed = sum(sizes[name] for name in choice.files)
        place = hub_cache()
        place.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(place).free
        if free < needed + _RESERVE:
            raise CheckpointError(
                f"{self.repository} needs {needed / 1e6:.0f} MB, {place} has {free / 1e6:.0f} MB free",
                code="source.no_space",
                hint="Free some space, or set HF_HOME to a folder on another disk.",
            )

    @contextlib.contextmanager
    def _watched(self, done: Callable[[int], None]) -> Iterator[None]:
        """Report the growth of the repository's part of the cache: the hub's package shows progress in ways of its own in each version."""
        stop = threading.Event()
        before = _size(self._folder / "blobs")

        def watch() -> None:
            seen = before
            while not stop.wait(_POLL_SECONDS):
                now = _size(self._folder / "blobs")
                if now > seen:
                    done(now - seen)
                    seen = now

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def hub_cache() -> Path:
    """The hub's cache folder, as `huggingface_hub` finds it."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return _expanded(os.environ[name])
    home = os.environ.get("HF_HOME")
    if home:
        return _expanded(home) / "hub"
    return _expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface" / "hub"


def _expanded(text: str) -> Path:
    return written_path(os.path.expandvars(text))


def _says_yes(variable: str) -> bool:
    return os.environ.get(variable, "").upper() in ("1", "ON", "YES", "TRUE")


def _size(folder: Path) -> int:
    total = 0
    with contextlib.suppress(OSError):
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):
                total += entry.stat().st_size
    return total


@contextlib.contextmanager
def _quiet(utils: Any) -> Iterator[None]:
    """Without the package's own progress bars, which would write between ours."""
    shown = not utils.are_progress_bars_disabled()
    with contextlib.suppress(Exception):
        utils.disable_progress_bars()
    try:
        yield
    finally:
        if shown and "HF_HUB_DISABLE_PROGRESS_BARS" not in os.environ:
            with contextlib.suppress(Exception):
                utils.enable_progress_bars()
        sys.stderr.flush()
