"""Two processes on one workspace: one waits for the other, says for whom, and neither spoils the other's work."""

from __future__ import annotations

import fcntl
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import samples
from local_device import LocalDevice

from etcli.common.locks import exclusive
from etcli.common.workspace import Workspace, in_use, unchanged
from etcli.deploy.stage import DeployOptions, deploy
from etcli.output.console import Console

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


@pytest.mark.parametrize("stage", ["export", "build"])
def test_a_deploy_waits_until_what_it_sends_is_whole(workspace: Workspace, tmp_path: Path, stage: str) -> None:
    """Not half of an old bundle and half of a new one."""
    device = LocalDevice(tmp_path / "device")
    said: queue.Queue[str] = queue.Queue()

    class Heard(Console):
        def note(self, text: str) -> None:
            said.put(text)

    loaded = samples.make_recipe(tmp_path)
    lock = workspace.export_lock if stage == "export" else workspace.build_lock("host")
    with exclusive(lock, what=f"{stage} of tiny"):
        thread = threading.Thread(
            target=deploy, args=(loaded, workspace, device, DeployOptions(), Heard(verbosity=-1)), daemon=True
        )
        thread.start()
        assert f"waiting for another process that uses {workspace.home}: etcli {stage} of tiny" in said.get(timeout=30)
        assert device.pushed == []
        samples.make_bundle(loaded, workspace, weights=b"new" * 500)
    thread.join(60)
    sent = device.local(loaded.recipe.device_dir) / "bundle/chunks/tiny_0.pte"
    assert sent.read_bytes() == b"\0" + b"new" * 500


def test_deploys_of_one_workspace_do_not_wait_for_one_another(workspace: Workspace) -> None:
    for lock in (workspace.export_lock, workspace.build_lock("host")):
        with exclusive(lock):
            pass
    with unchanged(workspace, pytest.fail), unchanged(workspace, pytest.fail):
        for lock in (workspace.export_lock, workspace.build_lock("host")):
            with pytest.raises(BlockingIOError), lock.open("ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
