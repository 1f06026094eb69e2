"""A run on the simulated NPU is marked in every output, and needs a build that has the simulated libraries."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import samples
from deploy_scene import Scene

from etcli.cli import show
from etcli.common.errors import DeployError
from etcli.manifests.run_record import RunRecord
from etcli.output.console import Console
from etcli.run.stage import RunOptions, run

GOOD = samples.script(samples.answer_lines([samples.STOP_ID]))


@pytest.fixture
def record_of(scene: Scene) -> Callable[[bool, bool], RunRecord]:
    def call(bundle_simulated: bool, build_simulated: bool) -> RunRecord:
        bundle = samples.make_bundle(scene.loaded, scene.workspace)
        changed = bundle.model_copy(update={"platform": "mt6991", "simulated": bundle_simulated})
        changed.write(scene.workspace.bundle / "manifest.json")
        samples.make_build(scene.loaded, scene.workspace, runner=GOOD, simulated=bundle_simulated)
        scene.deploy()
        samples.make_build(scene.loaded, scene.workspace, runner=GOOD, simulated=build_simulated)
        scene.console.warnings.clear()
        return run(scene.loaded, scene.workspace, scene.device, RunOptions(), scene.console)

    return call


def test_every_output_says_simulated(
    record_of: Callable[[bool, bool], RunRecord], scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    record = record_of(True, True)
    assert record.simulated
    assert [warning.code for warning in scene.console.warnings] == ["neuron.simulated"]
    [kept] = scene.workspace.runs.glob("*/record.json")
    assert RunRecord.read(kept).simulated
    capsys.readouterr()
    show.ran(Console(), record)
    assert "simulated NPU" in capsys.readouterr().out


def test_a_run_on_a_real_npu_does_not(record_of: Callable[[bool, bool], RunRecord]) -> None:
    assert not record_of(False, False).simulated


@pytest.mark.parametrize("bundle", [True, False])
def test_a_build_of_the_other_kind_is_refused(record_of: Callable[[bool, bool], RunRecord], bundle: bool) -> None:
    with pytest.raises(DeployError) as caught:
        record_of(bundle, not bundle)
    assert caught.value.problems[0].code == "deploy.simulated"
