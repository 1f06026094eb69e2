"""A bundle from another machine: deployed with `--bundle`, then run although the workspace has none of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import samples
from click.testing import CliRunner
from local_device import LocalDevice

from etcli.cli.invocation import Invocation
from etcli.cli.main import cli
from etcli.common.workspace import Workspace


def test_deployed_and_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = samples.make_recipe(tmp_path, run={"prompt": "Hello world", "chat": False, "max_new_tokens": 8})
    workspace = Workspace(tmp_path / "work", "tiny")
    samples.make_bundle(loaded, workspace)
    samples.make_build(loaded, workspace, runner=samples.script(samples.answer_lines([5, samples.STOP_ID])))
    carried = tmp_path / "carried"
    shutil.move(workspace.bundle, carried)
    device = LocalDevice(tmp_path / "device")
    monkeypatch.setattr(Invocation, "on_devices", lambda self, work, _show: [work(device, self.console)])
    monkeypatch.setattr(Invocation, "loaded", loaded)

    def etcli(*words: str) -> dict[str, object]:
        done = CliRunner().invoke(cli, [*words, "--workspace", str(workspace.root), "--bundle", str(carried), "--json"])
        assert done.exception is None, done.exception
        document: dict[str, object] = json.loads(done.stdout)["result"]
        return document

    assert etcli("deploy")["sent_files"]
    assert etcli("run")["tokens"] == [5, samples.STOP_ID]
