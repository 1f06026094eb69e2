"""Two processes on one workspace: one waits for the other, says for whom, and neither spoils the other's work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import samples

from etcli.common.locks import exclusive
from etcli.common.workspace import Workspace, in_use

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """The workspace of the recipe `etcli.yaml`, with a bundle and a build in it."""
    (tmp_path / "etcli.yaml").write_text("name: tiny\nmodel: {source: model.gguf}\n")
    loaded = samples.make_recipe(tmp_path)
    found = Workspace(tmp_path / ".etcli", "tiny")
    samples.make_bundle(loaded, found)
    samples.make_build(loaded, found)
    return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `etcli WORDS` in the recipe's folder."""
    running: list[subprocess.Popen[str]] = []

    def run(*words: str) -> subprocess.Popen[str]:
        running.append(
            subprocess.Popen(
                [sys.executable, "-m", "etcli", *words],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return running[-1]

    yield run
    for process in running:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


@pytest.mark.parametrize("stage", ["export", "build"])
def test_clean_waits_for_a_stage_under_way(workspace: Workspace, start: Start, stage: str) -> None:
    lock = workspace.export_lock if stage == "export" else workspace.build_lock("host")
    with exclusive(lock, what=f"{stage} of tiny"):
        cleaning = start("clean", "--json")
        said = first_line(cleaning)
        assert f"waiting for another process that uses {workspace.home}: etcli {stage} of tiny" in said
        assert f"process {os.getpid()} of" in said
        assert (workspace.bundle / "manifest.json").exists()
        assert lock.exists()
    out, errors = cleaning.communicate(timeout=60)
    assert cleaning.returncode == 0, errors
    assert json.loads(out)["result"]["kept"] == []
    assert not workspace.root.exists(), "the locks go too"


def test_clean_waits_for_who_uses_the_workspace(workspace: Workspace, start: Start) -> None:
    said: list[str] = []
    with in_use(workspace, said.append), in_use(workspace, said.append):  # several share it
        cleaning = start("clean")
        assert "waiting for another process that uses" in first_line(cleaning)
        assert (workspace.bundle / "manifest.json").exists()
    cleaning.communicate(timeout=60)
    assert said == []
    assert not workspace.root.exists()


def test_a_verb_waits_for_clean(workspace: Workspace, start: Start) -> None:
    with exclusive(workspace.use_lock):
        packing = start("bundle", "pack", "-o", "out.zip")
        assert f"waiting for another etcli that cleans {workspace.home}" in first_line(packing)
        (workspace.bundle / "manifest.json").unlink()
    _, errors = packing.communicate(timeout=60)
    assert packing.returncode == 2
    assert "there is no bundle" in errors


def test_a_verb_that_only_looks_waits_for_nobody(workspace: Workspace, start: Start) -> None:
    with exclusive(workspace.use_lock), exclusive(workspace.export_lock):
        shown = start("recipe", "show")
        _, errors = shown.communicate(timeout=60)
    assert (shown.returncode, errors) == (0, "")


def test_a_workspace_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    nothing = Workspace(tmp_path / "none", "tiny")
    with in_use(nothing, lambda _: None):
        assert not nothing.root.exists()


def test_a_workspace_that_may_only_be_read_is_used_all_the_same(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("etcli.common.workspace.shared", refuses)
    with in_use(workspace, lambda _: None):
        assert (workspace.bundle / "manifest.json").exists()
