"""`etcli bench`: warm-up and counted runs, what they tell, memory watched in the first, and how it ends early."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import pytest
import samples
from bench_reports import counting_runner
from deploy_scene import Scene
from local_device import LocalDevice

from etcli.common.errors import InterruptedByUser, RunError
from etcli.common.workspace import Workspace
from etcli.device.base import ShellResult
from etcli.manifests.bench import BenchReport
from etcli.output.console import Console
from etcli.verbs.bench import BenchOptions, bench, measuring


class WarmDevice(LocalDevice):
    """Gets a degree warmer with every look at its sensors."""

    looks = 0

    def shell(self, argv, **options):
        if any("thermal_zone" in word for word in argv):
            self.looks += 1
            return ShellResult(0, f"zone {40000 + 1000 * self.looks} cpu-0\ncore 1800000\ncore 2200000\n", "")
        return super().shell(argv, **options)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    loaded = samples.make_recipe(tmp_path, run={"prompt": "Hello world", "chat": False, "timeout_s": 60})
    workspace = Workspace(tmp_path / "work", loaded.recipe.name)
    samples.make_bundle(loaded, workspace)
    return Scene(loaded, workspace, WarmDevice(tmp_path / "device"), Console(verbosity=-1))


def measure(scene: Scene, script: str, **options: object) -> BenchReport:
    samples.make_build(scene.loaded, scene.workspace, runner=script)
    scene.deploy()
    chosen = replace(BenchOptions(runs=3, max_new_tokens=3), **options)
    return bench(scene.loaded, scene.workspace, scene.device, chosen, scene.console)


def test_warm_up_is_not_counted_and_the_rest_is(scene):
    report = measure(scene, counting_runner([1.0, 10.0, 30.0, 20.0]))
    decode = report.figure("decode")
    assert decode.values == (10.0, 30.0, 20.0)
    assert (decode.median, decode.low, decode.high) == (20.0, 10.0, 30.0)
    assert decode.spread == 1.0
    assert (report.runs, report.warm_up, report.new_tokens, report.prompt_tokens) == (3, 1, 3, 2)
    assert (scene.folder / "count").read_text() == "4\n"


def test_without_warm_up_every_run_counts_and_no_memory_is_watched(scene):
    report = measure(scene, counting_runner([1.0, 2.0]), runs=2, warm_up=0)
    assert report.figure("decode").values == (1.0, 2.0)
    assert report.memory.samples == ()


def test_each_token_and_chunk_has_its_time(scene):
    report = measure(scene, counting_runner([1.0] * 4))
    assert report.each[0].token_s == (0.5, 0.6, 0.7)
    assert report.figure("token latency, median").median == pytest.approx(100)
    # 0.1 and 0.2 s in two decode steps
    assert report.figure("chunk 0, a token").median == pytest.approx(50)
    assert report.figure("chunk 1, a token").median == pytest.approx(100)


def test_heat_and_clock_are_read_around_each_counted_run(scene):
    report = measure(scene, counting_runner([1.0] * 3), runs=2)
    # the warm-up's look before is the first; then before and after each run
    assert [(run.before.hottest_c, run.after.hottest_c) for run in report.each] == [(42, 43), (44, 45)]
    assert report.each[0].before.clock_mhz == 2000
    assert report.figure("hottest after").median == 44


def test_the_runners_memory_is_watched_while_it_runs(scene):
    # twenty megabytes in a shell variable, held for a moment
    hold = "x=$(head -c 20000000 /dev/zero | tr '\\0' a); sleep 0.7"
    report = measure(scene, counting_runner([1.0, 1.0], hold=hold), runs=1)
    trace = report.memory
    assert max(sample.resident_bytes for sample in trace.samples) > 20e6
    times = [sample.t_s for sample in trace.samples]
    assert times == sorted(times)
    assert trace.loaded_s <= trace.first_token_s <= trace.ended_s


def test_a_runner_that_does_not_tell_its_process_is_measured_all_the_same(scene):
    lines = samples.answer_lines([3, 4, 5], stop_reason="max_new_tokens")
    report = measure(scene, samples.script(lines), runs=1)
    assert report.memory.samples == ()
    assert report.figure("decode").median == 10.0


def test_a_run_ended_by_the_clock_is_no_figure(scene):
    scene.loaded = samples.make_recipe(
        scene.loaded.base, run={"prompt": "Hello world", "chat": False, "timeout_s": 1.0}
    )
    with pytest.raises(RunError) as caught:
        measure(scene, samples.script(samples.answer_lines([3, 4])[:-1], after="sleep 60"))
    assert caught.value.problems[0].code == "bench.timeout"
    assert "2 of 3 tokens" in str(caught.value)


def test_an_interrupt_keeps_the_runs_that_were_counted(scene, monkeypatch):
    real = measuring.run
    calls = []

    def third_is_interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise InterruptedByUser("run interrupted", code="interrupted")
        return real(*arguments)

    monkeypatch.setattr(measuring, "run", third_is_interrupted)
    with pytest.raises(InterruptedByUser) as caught:
        measure(scene, counting_runner([1.0, 7.0, 8.0, 9.0]))
    assert caught.value.etcli_result.runs == 1
    assert caught.value.etcli_result.figure("decode").values == (7.0,)


def test_the_report_says_which_bundle_it_is_of_and_can_be_read_again(scene):
    report = measure(scene, counting_runner([1.0] * 4))
    assert BenchReport.parse(report.to_text()) == report
    assert len(report.bundle_sha256) == 64
    assert report.figure("prefill").median == statistics.median([4.0] * 3)


def test_a_run_that_fails_in_the_middle_keeps_those_that_were_counted(scene):
    with pytest.raises(RunError) as caught:
        measure(scene, counting_runner([1.0, 10.0, 30.0]), runs=5)
    assert caught.value.problems[0].code == "run.no_result"
    report = caught.value.etcli_result
    assert report.figure("decode").values == (10.0, 30.0)
    assert report.runs == 2


def test_the_report_tells_prompt_program_and_drawing_apart(scene):
    script = counting_runner([1.0] * 12)
    first = measure(scene, script)
    again = measure(scene, script, prompt="Hello world")
    other = measure(scene, script, prompt="world Hello")
    assert first.prompt_sha256 == again.prompt_sha256 != other.prompt_sha256
    assert first.runner_sha256 is not None
    assert first.sampling is None
