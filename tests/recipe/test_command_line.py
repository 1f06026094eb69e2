"""The commands that hints show are the ones to type."""

from __future__ import annotations

import shlex

from etcli.common.workspace import Workspace
from etcli.recipe.loader import load
from etcli.recipe.outdated import command_line


def test_as_the_user_named_it(write, minimal, tmp_path):
    write(minimal, "sub/r.yaml")
    workspace = Workspace(tmp_path / ".etcli", "tiny")
    assert command_line("export", load("sub/r.yaml"), workspace) == "etcli export sub/r.yaml"
    assert command_line("export", load("smollm2-135m"), workspace) == "etcli export smollm2-135m"


def test_found_by_lookup(write, minimal, tmp_path):
    workspace = Workspace(tmp_path / ".etcli", "tiny")
    assert command_line("build", load(None), workspace) == "etcli build smollm2-135m"
    path = write(minimal, "etcli.yaml")
    assert command_line("build", load(None), workspace) == f"etcli build {path}"


def test_settings_and_workspace_are_part_of_it(write, minimal, tmp_path):
    path = write(minimal, "a b.yaml")
    sets = ["run.prompt=It's", "export.chunks=2"]
    words = shlex.split(command_line("export", load(str(path), sets), Workspace(tmp_path / "ws", "tiny")))
    assert words[:3] == ["etcli", "export", str(path)]
    assert words[3:7] == ["--set", sets[0], "--set", sets[1]]
    assert words[7:] == ["--workspace", str(tmp_path / "ws")]
