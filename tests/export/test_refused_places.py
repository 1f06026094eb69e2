"""Workspaces that cannot be written to: named with the remedy, and nothing lost."""

from __future__ import annotations

import errno
import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from small_export import Exported, export_here, small_document

from etcli.common.errors import CheckpointError, ExitCode, ExportError, Problem, RecipeError, UsageError
from etcli.common.files import is_no_space
from etcli.export import worker
from etcli.export.job import Job, TablesWork, Troubles

Build = Callable[..., Path]


def failure(root: Path, checkpoint: Path) -> Problem:
    with pytest.raises(ExportError) as caught:
        export_here(small_document(checkpoint), root)
    (problem,) = caught.value.problems
    assert problem.exit_code == ExitCode.EXPORT
    assert "--workspace" in str(problem.hint)
    return problem


@pytest.mark.parametrize("what", ["root", "home", "work", "lock", "link"])
def test_something_else_stands_in_the_way(tmp_path: Path, random_llama: Build, what: str) -> None:
    root = tmp_path / "workspace"
    if what == "link":
        root.symlink_to(tmp_path / "nowhere" / "at all")
    elif what == "lock":
        (root / "small" / "export" / ".lock").mkdir(parents=True)
    else:
        path = {"root": root, "home": root / "small", "work": root / "small" / "export"}[what]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    assert failure(root, random_llama(tokenizer=True)).code == "export.files"
    if what in ("root", "home", "work"):
        assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, "export.no_space"), (errno.EDQUOT, "export.no_space"), (errno.EROFS, "export.files")],
    ids=errno.errorcode.get,
)
def test_a_bundle_that_cannot_be_put_together_leaves_the_old_one(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    before = {path: path.stat().st_mtime_ns for path in exported.bundle.rglob("*")}

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("etcli.export.assembly.link_or_copy", refuse)
    with pytest.raises(ExportError) as caught:
        exported.again(force=True, only_chunks=())
    assert caught.value.problems[0].code == code
    assert {path: path.stat().st_mtime_ns for path in exported.bundle.rglob("*")} == before
    assert not list(exported.workspace.export_work.glob("bundle-new-*"))


def test_a_checkpoint_that_goes_away_is_the_checkpoints_fault(
    tmp_path: Path, random_llama: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = random_llama(tokenizer=True)

    def gone(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error", str(checkpoint / "model.safetensors"))

    monkeypatch.setattr("etcli.export.stage.tensor_hashes", gone)
    with pytest.raises(CheckpointError) as caught:
        export_here(small_document(checkpoint), tmp_path)
    assert caught.value.problems[0].file == checkpoint / "model.safetensors"


# What safetensors raises from Rust when the disk is full, word for word.
SAFETENSORS_FULL = "Error while serializing: I/O error: No space left on device (os error 28)"


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "x"), True),
        (OSError(errno.EDQUOT, "x"), True),
        (OSError(errno.EACCES, "No space left on device"), False),
        (RuntimeError(SAFETENSORS_FULL), True),
        (RuntimeError("Disk quota exceeded"), True),
        (RuntimeError("os error 280)"), False),
    ],
    ids=repr,
)
def test_a_full_disk_is_known_in_every_wrapping(error: Exception, full: bool) -> None:
    assert is_no_space(error) is full


# What torch raises when an allocation fails, word for word.
TORCH_FULL = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 999998000001 bytes."


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError(SAFETENSORS_FULL), "export.no_space"),
        (RuntimeError(TORCH_FULL), "export.out_of_memory"),
        (MemoryError(), "export.out_of_memory"),
    ],
    ids=("disk", "torch", "python"),
)
def test_a_worker_names_what_is_full_whichever_library_meets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    def fail_not(_: int) -> None:
        pass

    monkeypatch.setattr(worker, "_work", fail)
    monkeypatch.setattr(worker, "end_with_parent", fail_not)
    Job(parent=os.getpid(), checkpoint="x", threads=1, work=TablesWork(positions=1)).write(tmp_path / Job.FILE)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{tmp_path}\n"))
    assert worker.main() == ExitCode.EXPORT
    assert [trouble.code for trouble in Troubles.read(tmp_path / Troubles.FILE).problems] == [code]


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_chunk_that_there_is_none_of_is_refused_though_the_bundle_is_current(
    exported: Exported, dry_run: bool
) -> None:
    with pytest.raises(UsageError, match="no chunk 7") as caught:
        exported.again(only_chunks=(7,), dry_run=dry_run)
    assert caught.value.problems[0].code == "export.no_such_chunk"
    assert caught.value.exit == ExitCode.USAGE


def test_a_refusal_leaves_no_folder(tmp_path: Path, random_llama: Build) -> None:
    checkpoint = shutil.copytree(random_llama(tokenizer=True), tmp_path / "model")
    root = tmp_path / "workspace"
    with pytest.raises(UsageError):
        export_here(small_document(checkpoint), root, only_chunks=(7,))
    with pytest.raises(RecipeError):
        export_here(small_document(checkpoint, chunks=97), root)
    (checkpoint / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError):
        export_here(small_document(checkpoint), root)
    assert not root.exists()
