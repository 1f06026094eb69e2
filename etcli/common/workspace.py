"""Where things are on this machine: the workspace of a recipe, and the cache shared by all."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

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


def cache_dir() -> Path:
    """Downloads, operator libraries and virtual devices: `$ETCLI_CACHE_DIR`, else the platform's cache folder."""
    configured = os.environ.get("ETCLI_CACHE_DIR")
    return written_path(configured) if configured else Path(platformdirs.user_cache_dir("etcli"))


def offline() -> bool:
    """Whether `$ETCLI_OFFLINE` forbids downloads."""
    return os.environ.get("ETCLI_OFFLINE", "").lower() not in ("", "0", "false", "no")
