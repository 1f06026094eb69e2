"""`etcli bench` through a real adb server: the memory of a process on the device, and two devices at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import samples
from bench_reports import counting_runner
from click.testing import CliRunner
from device_fixtures import MakeDevice

from etcli.cli.main import cli
from etcli.common.workspace import Workspace
from etcli.deploy.stage import DeployOptions, deploy
from etcli.output.console import Console
from etcli.recipe.loader import load

HOLD = "x=$(head -c 20000000 /dev/zero | tr '\\0' a); sleep 0.7"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text("name: tiny\nmodel: {source: model.gguf}\nrun: {prompt: Hello world, chat: false}\n")
    workspace = Workspace(tmp_path / ".etcli", "tiny")
    samples.make_bundle(load(str(path)), workspace)
    samples.make_build(load(str(path)), workspace, runner=counting_runner([10.0, 20.0], hold=HOLD))
    return path


def test_two_devices_are_measured_and_compared(recipe, tmp_path, virtual_device: MakeDevice):
    devices = [virtual_device("x86_64"), virtual_device("x86_64", {"ro.product.model": "<b>Second</b>"})]
    for device in devices:
        device.shell(["rm", "-rf", "/data/local/tmp/etcli"])
        deploy(
            load(str(recipe)), Workspace(tmp_path / ".etcli", "tiny"), device, DeployOptions(), Console(verbosity=-1)
        )
    words = ["bench", str(recipe), "--runs", "1", "--max-new-tokens", "3", "--html", "page.html", "--json"]
    for device in devices:
        words += ["--serial", device.serial]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    reports = json.loads(done.stdout)["result"]["devices"]
    assert [report["device"]["serial"] for report in reports] == [device.serial for device in devices]
    for report in reports:
        # the process is found by the number that it has on the device, where it is another one than here
        assert max(sample["resident_bytes"] for sample in report["memory"]["samples"]) > 20e6
        assert next(figure for figure in report["figures"] if figure["name"] == "decode")["values"] == [20.0]
        assert report["device"]["emulated"]
    page = Path("page.html").read_text()
    assert "&lt;b&gt;Second&lt;/b&gt;" in page
    assert "<b>" not in page

    Path("both.json").write_text(done.stdout)
    done = CliRunner().invoke(cli, ["bench", "--compare", "both.json", "both.json", "--json"])
    pairs = json.loads(done.stdout)["result"]["pairs"]
    assert [pair["b"]["device"]["serial"] for pair in pairs] == [device.serial for device in devices]
    assert {row["ratio"] for pair in pairs for row in pair["figures"]} == {1.0}
