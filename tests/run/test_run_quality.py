"""An answer of weights of demonstration quality is marked as such in every output."""

from __future__ import annotations

import pytest
import samples
from deploy_scene import Scene

from etcli.cli import show
from etcli.manifests.run_record import RunRecord
from etcli.output.console import Console
from etcli.run.stage import RunOptions, run

GOOD = samples.script(samples.answer_lines([samples.STOP_ID]))


@pytest.mark.parametrize("quality", ["demonstration", None])
def test_the_bundles_quality_stands_under_its_answers(
    scene: Scene, quality: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = samples.make_bundle(scene.loaded, scene.workspace).model_copy(update={"quality": quality})
    bundle.write(scene.workspace.bundle / "manifest.json")
    samples.make_build(scene.loaded, scene.workspace, runner=GOOD)
    scene.deploy()
    record = run(scene.loaded, scene.workspace, scene.device, RunOptions(), scene.console)
    assert record.quality == quality
    [kept] = scene.workspace.runs.glob("*/record.json")
    assert RunRecord.read(kept).quality == quality
    capsys.readouterr()
    show.ran(Console(), record)
    assert ("weights of demonstration quality" in capsys.readouterr().out) == (quality is not None)
