"""A small random model to be exported: its recipe, and an export in a process of its own, which proves that the parent needs no torch.

Imports neither torch nor pytest: `python small_export.py DOCUMENT WORKSPACE` is that process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shift_contract import check_shift_bundle

from etcli.common.workspace import Workspace
from etcli.export.stage import ExportOptions, ExportResult, export
from etcli.manifests.bundle import BundleManifest
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe, Location
from etcli.recipe.schema import Recipe


@dataclass(frozen=True)
class Exported:
    """A bundle, the document it was made from, and the checkpoint's folder."""

    document: dict[str, Any]
    workspace: Workspace
    checkpoint: Path

    @property
    def bundle(self) -> Path:
        """Its folder."""
        return self.workspace.bundle

    @property
    def manifest(self) -> BundleManifest:
        """Its manifest."""
        return BundleManifest.read(self.bundle / "manifest.json")

    def again(self, console: Console | None = None, **options: Any) -> ExportResult:
        """Export once more in this process."""
        return export_here(self.document, self.workspace.root, console, **options)


def small_document(checkpoint: Path, **values: Any) -> dict[str, Any]:
    """A recipe of two chunks with cache `shift`; `values` are keys of its `export` section."""
    defaults = {"backend": "xnnpack", "cache": "shift", "chunks": 2, "shapes": ["8t32c", "1t32c"]}
    return {"name": "small", "model": {"source": str(checkpoint)}, "export": {**defaults, **values}}


def load_document(document: Mapping[str, Any]) -> LoadedRecipe:
    """The recipe that `document` is, with a line for `export.chunks`."""
    return LoadedRecipe(
        recipe=Recipe.model_validate(document),
        path=Path("small.yaml"),
        base=Path.cwd(),
        document=document,
        origins={"export.chunks": Location(Path("small.yaml"), 7, 3)},
    )


def export_here(
    document: Mapping[str, Any], root: Path, console: Console | None = None, **options: Any
) -> ExportResult:
    """Export in this process, and hold what came out against the MediaTek runner's contract where it has `cache: shift`."""
    loaded = load_document(document)
    workspace = Workspace(root, loaded.recipe.name)
    result = export(loaded, workspace, ExportOptions(**options), console or Console(verbosity=-1))
    if result.manifest is not None:
        check_shift_bundle(workspace.bundle)
    return result


def start_export(document: Mapping[str, Any], root: Path) -> subprocess.Popen[str]:
    """Export in a process of its own."""
    argv = [sys.executable, __file__, json.dumps(document), str(root)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def export_apart(document: Mapping[str, Any], root: Path) -> None:
    """The same, to its end, which must be a good one."""
    process = start_export(document, root)
    _, errors = process.communicate()
    assert process.returncode == 0, errors


if __name__ == "__main__":
    export_here(json.loads(sys.argv[1]), Path(sys.argv[2]), jobs=2)
    assert not {"torch", "executorch.exir"} & set(sys.modules), "the parent imported torch"
