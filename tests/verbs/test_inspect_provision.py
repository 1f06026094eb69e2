"""`etcli inspect` marks what a runner lacks: etcli's own with the installed ExecuTorch, or a build that is named."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys

import pytest
import samples
from click.testing import CliRunner

from etcli.cli.main import cli
from etcli.common.assets import asset_dir
from etcli.common.errors import UsageError
from etcli.common.workspace import Workspace
from etcli.tables.operators import AQLM, read_operators
from etcli.verbs import provision as module
from etcli.verbs.inspect import inspect
from etcli.verbs.provision import provision


def test_what_every_runner_has_and_what_a_recipe_brings_and_what_none_has():
    aqlm = read_operators(asset_dir("native") / AQLM).operators[0]
    found = provision(
        ["aten::add.out", "etcli::ring_attention.out", aqlm, "XnnpackBackend", "mine::op.out", "QnnBackend"]
    )
    assert found.lacking == ("QnnBackend", "mine::op.out")
    assert dict(found.conditional) == {aqlm: "build.custom_ops: [aqlm]", "XnnpackBackend": "export.backend: xnnpack"}
    assert found.mark("aten::add.out") == ""
    assert found.mark("mine::op.out") == "NOT PROVIDED"
    assert found.by.endswith(importlib.metadata.version("executorch").partition("+")[0])


def test_they_are_the_operators_that_the_runtime_itself_lists():
    # the oracle: ExecuTorch's own registry, in another process
    script = (
        "from executorch.extension.pybindings.portable_lib import _get_operator_names\n"
        "print('\\n'.join(_get_operator_names()))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    listed = {name for name in done.stdout.split() if name.startswith("aten::")}
    assert len(listed) > 100
    assert provision(listed).lacking == ()


def test_a_build_that_is_named_is_what_counts(tmp_path):
    workspace = Workspace(tmp_path, "tiny")
    samples.make_build(samples.make_recipe(tmp_path), workspace)
    folder = workspace.build("host")
    found = provision(["aten::add.out", "aten::sin.out", "XnnpackBackend"], folder)
    assert (found.lacking, dict(found.conditional)) == (("aten::sin.out",), {})
    assert found.by == "the host build of tiny"
    with pytest.raises(UsageError) as caught:
        provision([], tmp_path)
    assert caught.value.problems[0].code == "inspect.build"


def test_without_executorch_nothing_is_claimed(monkeypatch):
    def missing():
        raise UsageError("no", code="executorch.missing")

    monkeypatch.setattr(module, "host_package", missing)
    assert provision(["aten::add.out"]) is None


def test_a_bundles_needs_are_held_against_a_build(tmp_path):
    workspace = Workspace(tmp_path, "tiny")
    loaded = samples.make_recipe(tmp_path)
    samples.make_bundle(loaded, workspace)
    samples.make_build(loaded, workspace, backends=())
    found = inspect(workspace.bundle, workspace.build("host"))
    assert found.provision.lacking == ("XnnpackBackend",)
    done = CliRunner().invoke(
        cli, ["inspect", str(workspace.bundle), "--build", str(workspace.build("host")), "--json"]
    )
    document = json.loads(done.stdout)
    assert document["result"]["provision"]["lacking"] == ["XnnpackBackend"]
    assert [warning["code"] for warning in document["warnings"]] == ["inspect.not_provided"]
