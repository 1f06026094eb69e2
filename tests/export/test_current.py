"""What a second export does: nothing, or only what is needed. No worker may start in these tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from small_export import Exported, export_here, load_document

from etcli.export.job import LowerWork
from etcli.export.pool import Pool, Task
from etcli.output.console import Console
from etcli.recipe.outdated import bundle_outdated


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Titles of the tasks that would have been given to workers."""
    titles: list[str] = []

    def refuse(self: Pool, tasks: Sequence[Task]) -> None:
        titles.extend(task.title for task in tasks if not isinstance(task.work, LowerWork))
        raise _Started

    monkeypatch.setattr(Pool, "run", refuse)
    return titles


class _Started(Exception):
    pass


def test_unchanged_is_current(copied: Exported) -> None:
    copied.again()  # the recipe beside the bundle holds a path relative to the workspace, which was copied
    files = [path for path in copied.workspace.home.rglob("*") if path.is_file() and path.name != ".lock"]
    before = {path: path.stat().st_mtime_ns for path in files}
    result = copied.again()
    assert result.current
    assert result.manifest == copied.manifest
    assert [file.role for file in result.files] == [
        "chunk 0",
        "chunk 1",
        "embedding",
        "rope table",
        "tokenizer",
        "chat template",
        "runner configuration",
    ]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert bundle_outdated(load_document(copied.document), copied.manifest, copied.bundle) is None


def test_lost_bundle_comes_back_from_finished_pieces(copied: Exported) -> None:
    first = copied.manifest
    shutil.rmtree(copied.bundle)
    result = copied.again()
    assert not result.current
    assert result.manifest == first
    assert all(chunk.reused for chunk in result.chunks)
    assert copied.again().current


@pytest.mark.parametrize(
    "name", ["embedding_float32.bin", "chunks/small_1.pte", "tokenizer/tokenizer.json", "runner.cfg"]
)
def test_damaged_file_is_replaced(copied: Exported, name: str) -> None:
    path = copied.bundle / name
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    assert not copied.again().current
    assert path.read_bytes() == whole
    path.unlink()
    assert not copied.again().current
    assert path.read_bytes() == whole


def test_damaged_piece_is_made_again(copied: Exported, started: list[str]) -> None:
    pieces = copied.workspace.export_work / "pieces"
    (piece,) = [path for path in pieces.glob("*/chunk.pte") if path.samefile(copied.bundle / "chunks/small_1.pte")] or [
        path
        for path in pieces.glob("*/chunk.pte")
        if path.read_bytes() == (copied.bundle / "chunks/small_1.pte").read_bytes()
    ]
    piece.write_bytes(b"x" * piece.stat().st_size)
    shutil.rmtree(copied.bundle)
    with pytest.raises(_Started):
        copied.again()
    assert started == ["chunk 1"]


def test_copied_bundle_is_hashed_and_current(copied: Exported) -> None:
    for path in copied.bundle.rglob("*"):
        os.utime(path)
    assert copied.again().current


@pytest.mark.known_failure("export-stale-embedding")
def test_changed_source(copied: Exported, tmp_path: Path, started: list[str]) -> None:
    """A touched source is hashed, not exported; another tensor is exported where it is used."""
    source = tmp_path / "model"
    shutil.copytree(copied.checkpoint, source)
    document = {**copied.document, "model": {"source": str(source)}}
    result = export_here(document, copied.workspace.root)  # another place, so another recipe: but equal tensors
    assert not result.current
    assert all(chunk.reused for chunk in result.chunks)
    os.utime(source / "model.safetensors")
    assert not export_here(document, copied.workspace.root).current
    assert export_here(document, copied.workspace.root).current

    import safetensors.torch

    tensors = safetensors.torch.load_file(source / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][0, 0] += 1
    safetensors.torch.save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(_Started):
        export_here(document, copied.workspace.root)
    assert started == ["chunk 1"]


@pytest.mark.known_failure("export-overwritten-by-another")
def test_changed_recipe_and_force(copied: Exported, started: list[str]) -> None:
    document = {**copied.document, "export": {**copied.document["export"], "shapes": ["4t32c", "1t32c"]}}
    with pytest.raises(_Started):
        export_here(document, copied.workspace.root)
    assert started == ["chunk 0", "chunk 1"]
    started.clear()
    with pytest.raises(_Started):
        copied.again(force=True)
    assert started == ["chunk 0", "chunk 1", "the embedding"]


def test_force_with_only_chunks(copied: Exported, started: list[str]) -> None:
    with pytest.raises(_Started):
        copied.again(force=True, only_chunks=(0,))
    assert started == ["chunk 0"]


@pytest.mark.known_failure("export-unpinned-versions")
def test_changed_versions(copied: Exported, monkeypatch: pytest.MonkeyPatch, started: list[str]) -> None:
    import etcli

    monkeypatch.setattr(etcli, "__version__", "9.9.9")
    with pytest.raises(_Started):
        copied.again()
    assert started == ["chunk 0", "chunk 1", "the embedding"]


def test_without_hard_links(copied: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    shutil.rmtree(copied.bundle)
    assert not copied.again().current
    assert copied.again().current


def test_leftovers_of_a_killed_export(copied: Exported) -> None:
    """A bundle moved aside by an export that died before putting the new one in its place comes back; half-made ones go."""
    work = copied.workspace.export_work
    (work / "bundle-new-abc" / "chunks").mkdir(parents=True)
    (work / "running" / "key").mkdir(parents=True)
    copied.bundle.rename(work / "bundle-new-xyz-old")
    assert copied.again().current
    assert not list(work.glob("bundle-new-*"))
    assert not (work / "running").exists()


def test_dry_run_writes_nothing(copied: Exported, tmp_path: Path) -> None:
    result = export_here(copied.document, tmp_path / "empty", dry_run=True)
    assert result.dry_run
    assert not result.current
    assert result.plan is not None
    assert [chunk.layers for chunk in result.plan.chunks] == [1, 1]
    assert not (tmp_path / "empty").exists()
    assert copied.again(dry_run=True).current


def test_remarks(copied: Exported, tmp_path: Path) -> None:
    document = {**copied.document, "export": {**copied.document["export"], "shapes": ["8t512c", "1t512c"]}}
    console = Console(verbosity=-1)
    with pytest.raises(_Started):
        export_here(document, tmp_path, console)
    assert "export.long_cache" in [warning.code for warning in console.warnings]
