"""Where things are on this machine: the workspace of a recipe, and the cache shared by all."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from etcli.common.errors import UsageError
from etcli.common.locks import holder, shared
from etcli.common.paths import written_path


@dataclass(frozen=True)
class Workspace:
    """The folders that the stages of one recipe leave behind: `<root>/<name>/...`. Nothing is created by naming it."""

    root: Path
    name: str

    @property
    def home(self) -> Path:
        """`<root>/<name>`."""
        return self.root / self.name

    @property
    def bundle(self) -> Path:
        """What `export` writes and `deploy` reads."""
        return self.home / "bundle"

    @property
    def export_work(self) -> Path:
        """Finished chunks and logs of an export under way."""
        return self.home / "export"

    @property
    def use_lock(self) -> Path:
        """What every stage shares while it works, and what `clean` wants alone."""
        return self.home / ".lock"

    @property
    def export_lock(self) -> Path:
        """What an export holds from its beginning to its end."""
        return self.export_work / ".lock"

    def build_lock(self, target: str) -> Path:
        """What a build for `target` holds from its beginning to its end."""
        return self.builds / f".{target}.lock"

    @property
    def deploy_work(self) -> Path:
        """Files that `deploy` makes from the bundle for a runner that reads another format."""
        return self.home / "deploy"

    def build(self, target: str) -> Path:
        """What `build` renders and compiles for `target`; its `stage/` is pushed."""
        return self.home / "build" / target

    @property
    def builds(self) -> Path:
        """The folder that holds one build folder a target."""
        return self.home / "build"

    @property
    def runs(self) -> Path:
        """Run records and captured device output."""
        return self.home / "runs"


@contextlib.contextmanager
def in_use(workspace: Workspace, say: Callable[[str], None]) -> Iterator[None]:
    """Keeps `clean` out of `workspace` during the block, if it is there and may be written; what is waited for is said."""
    wait = functools.partial(say, f"waiting for another etcli that cleans {workspace.home}")
    with contextlib.ExitStack() as stack:
        if workspace.home.is_dir():
            with contextlib.suppress(OSError):  # a workspace that may only be read is not cleaned either
                stack.enter_context(shared(workspace.use_lock, on_wait=wait))
        yield


@contextlib.contextmanager
def unchanged(workspace: Workspace, say: Callable[[str], None]) -> Iterator[None]:
    """Keeps exports and builds from replacing what they made in `workspace` during the block; one under way is waited for, which is said.

    Several may read at once. A workspace that may only be read needs no lock.
    """
    with contextlib.ExitStack() as stack:
        for lock in (workspace.export_lock, *sorted(workspace.builds.glob(".*.lock"))):
            if lock.exists():
                with contextlib.suppress(OSError):
                    stack.enter_context(shared(lock, on_wait=functools.partial(_say_who, workspace, lock, say)))
        yield


def _say_who(workspace: Workspace, lock: Path, say: Callable[[str], None]) -> None:
    say(f"waiting for another process that uses {workspace.home}: {holder(lock)}")


def cache_dir() -> Path:
    """Downloads, operator libraries and virtual devices: `$ETCLI_CACHE_DIR`, else the platform's cache folder.

    Raises:
        UsageError: code `cache.home`, the variable names the home of a user who is none of this machine. Nothing is made in a folder called `~`.
    """
    configured = os.environ.get("ETCLI_CACHE_DIR")
    if not configured:
        return Path(platformdirs.user_cache_dir("etcli"))
    try:
        Path(configured).expanduser()
    except RuntimeError:
        raise UsageError(
            f"$ETCLI_CACHE_DIR: {configured.split('/')[0]} is no home folder of this machine",
            code="cache.home",
            hint="Write the path out.",
        ) from None
    return written_path(configured)


def offline() -> bool:
    """Whether `$ETCLI_OFFLINE` forbids downloads."""
    return os.environ.get("ETCLI_OFFLINE", "").lower() not in ("", "0", "false", "no")
