"""`smoke` as the conductor: order, what counts as current, how each kind of failure ends, the report for CI. The stages stand in."""

from __future__ import annotations

import errno
import os
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import samples
from local_device import LocalDevice

from etcli.common.errors import DeviceError, ExitCode, ExportError, MismatchError, RunError, ToolError, UsageError
from etcli.common.workspace import Workspace
from etcli.llama.answers import Judgement
from etcli.manifests.export_report import ChunkReport
from etcli.manifests.run_record import DeviceFacts
from etcli.output.console import Console
from etcli.output.document import to_plain
from etcli.verbs import comparison
from etcli.verbs import smoke as module
from etcli.verbs.comparison import GAPS, first_difference
from etcli.verbs.smoke import SmokeOptions, SmokeResult, choose_device, smoke
from etcli.verbs.smoke_stages import CHECKS

STAGES = ["device", "export", "build", "deploy", "run", "compare"]


class Scene:
    """A workspace whose export and build stand in by made-up files, and a local folder as the device; deploy and run are real."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loaded = samples.make_recipe(home, run={"prompt": "Hello world", "chat": False, "max_new_tokens": 8})
        self.workspace = Workspace(home / "work", "tiny")
        self.device = LocalDevice(home / "device")
        self.calls: list[str] = []
        self.tokens = [5, 6, samples.STOP_ID]
        self.reference = (5, 6, samples.STOP_ID)
        self.gaps = (0.0, 0.0, 0.0)
        self.stop_reason = "stop_id"
        self.current = False
        self.chunks: tuple[ChunkReport, ...] = ()
        self.fail: Exception | None = None
        self.lacking: Exception | None = None
        monkeypatch.setattr(module, "select_device", lambda **_: self.device)
        monkeypatch.setattr(module, "export", self._export)
        monkeypatch.setattr(module, "build", self._build)
        monkeypatch.setattr(comparison, "run_reference", self._reference)
        monkeypatch.setattr(comparison, "judge_tokens", self._judge)

    def _export(self, *_: Any) -> SimpleNamespace:
        self.calls.append("export")
        if self.fail is not None:
            raise self.fail
        manifest = samples.make_bundle(self.loaded, self.workspace)
        return SimpleNamespace(manifest=manifest, current=self.current, chunks=self.chunks)

    def _build(self, loaded: Any, workspace: Any, options: Any, console: Any) -> SimpleNamespace:
        if options.dry_run:
            if self.lacking is not None:
                raise self.lacking
            return SimpleNamespace(current=self.current, manifest=None)
        self.calls.append(f"build {options.target}")
        runner = samples.script(samples.answer_lines(self.tokens, stop_reason=self.stop_reason))
        manifest = samples.make_build(loaded, workspace, runner=runner)
        return SimpleNamespace(current=self.current, manifest=manifest)

    def _reference(self, loaded: Any, **values: Any) -> SimpleNamespace:
        self.calls.append(f"reference {values['prompt_ids']} {values['max_new_tokens']} {values['cache_length']}")
        return SimpleNamespace(tokens=self.reference)

    def _judge(self, loaded: Any, **values: Any) -> tuple[Judgement, ...]:
        self.calls.append(f"judge {values['prompt_ids']} {values['tokens']} {values['cache_length']}")
        pairs = zip(values["tokens"], self.gaps, strict=True)
        return tuple(Judgement(token, 1.0 - gap, token if gap == 0 else 7, 1.0) for token, gap in pairs)

    def smoke(self, **options: Any) -> SmokeResult:
        return smoke(self.loaded, self.workspace, SmokeOptions(**options), Console(verbosity=-1))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


def cases(path: Path) -> dict[str, dict[str, ET.Element]]:
    """The cases of every suite of a JUnit report, by name."""
    return {
        suite.attrib["name"]: {case.attrib["name"]: case for case in suite.iter("testcase")}
        for suite in ET.parse(path).getroot()
    }


def outcome(case: ET.Element) -> str:
    """`passed`, `failure`, `error` or `skipped`."""
    kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
    return kinds[0] if kinds else "passed"


def outcomes(path: Path) -> dict[str, str]:
    """Outcome of every suite: `failure` or `error` where a case is one, `skipped` where the last of the stage's own was not reached."""
    found = {}
    for suite, checks in cases(path).items():
        by_check = {name: outcome(case) for name, case in checks.items()}
        last = CHECKS[suite][-1] if suite in CHECKS else next(iter(by_check))
        found[suite] = next((kind for kind in ("failure", "error") if kind in by_check.values()), by_check[last])
    return found


def test_stages_in_order_and_tokens_compared(scene: Scene, tmp_path: Path) -> None:
    result = scene.smoke(junit=tmp_path / "out.xml")
    assert scene.calls == ["export", "build host", "reference (3, 4) 8 16"]
    assert result.tokens == result.reference_tokens == (5, 6, samples.STOP_ID)
    assert result.matches
    assert result.first_difference is None
    assert [stage.name for stage in result.stages] == STAGES
    assert {stage.outcome for stage in result.stages} == {"passed"}
    assert not any(stage.current for stage in result.stages)
    assert result.sent_bytes > 0
    assert outcomes(tmp_path / "out.xml") == dict.fromkeys(STAGES, "passed")


def chunk(index: int, *, reused: bool = False, error: float | None = 2e-6) -> ChunkReport:
    return ChunkReport(
        index=index,
        file=f"chunks/tiny_{index}.pte",
        errors={} if error is None else {"tiny_1t": error},
        seconds={"lower": 1.5},
        peak_memory_bytes=3_000_000,
        weights_bytes=10,
        max_abs_error=error,
        reused=reused,
    )


def test_each_check_is_a_case_with_what_was_said_of_it(scene: Scene, tmp_path: Path) -> None:
    scene.chunks = (chunk(0), chunk(1, reused=True))
    result = scene.smoke(junit=tmp_path / "out.xml")
    told = cases(tmp_path / "out.xml")
    by_outcome = {suite: {name: outcome(case) for name, case in checks.items()} for suite, checks in told.items()}
    assert by_outcome == {
        "device": {"a device is there": "passed", "a target fits it": "passed"},
        "export": {
            "the bundle is whole": "passed",
            "chunks/tiny_0.pte computes what eager PyTorch does": "passed",
            "chunks/tiny_1.pte computes what eager PyTorch does": "skipped",
        },
        "build": {
            "what it needs is there": "passed",
            "it compiles, and its audit finds nothing": "passed",
            "audit of etcli_llama_runner": "passed",
            "audit of libhelper.so": "passed",
        },
        "deploy": {"the device is free": "passed", "the device holds bundle and build": "passed"},
        "run": {"the runner answers": "passed"},
        "compare": {"the tokens agree with the reference's": "passed"},
    }

    def output(suite: str, name: str) -> str:
        return told[suite][name].findtext("system-out") or ""

    assert "local-1" in output("device", "a device is there")
    assert "tiny_1t: largest difference 2e-06" in output("export", "chunks/tiny_0.pte computes what eager PyTorch does")
    assert "EM_X86_64" in output("build", "audit of etcli_llama_runner")
    # though the console is quiet
    assert "==> deploy tiny (host)" in output("deploy", "the device holds bundle and build")
    assert result.text.strip()
    assert result.text in output("run", "the runner answers")
    assert "==> deploy" not in output("run", "the runner answers")
    assert all(float(case.attrib["time"]) >= 0 for checks in told.values() for case in checks.values())
    assert float(told["run"]["the runner answers"].attrib["time"]) > 0
    properties = {one.attrib["name"]: one.attrib["value"] for one in ET.parse(tmp_path / "out.xml").iter("property")}
    assert properties["recipe"] == "tiny"
    assert properties["device"].startswith("local-1 (")


def test_what_was_current_was_not_checked_again_and_says_so(scene: Scene, tmp_path: Path) -> None:
    scene.chunks = (chunk(0), chunk(1, error=None))
    scene.current = True
    scene.smoke(junit=tmp_path / "out.xml")
    told = cases(tmp_path / "out.xml")
    assert outcome(told["export"]["the bundle is whole"]) == "passed"
    assert "current" in (told["export"]["the bundle is whole"].findtext("system-out") or "")
    why = {name: case.find("skipped") for suite in ("export", "build") for name, case in told[suite].items()}
    messages = {name: skipped.attrib["message"] for name, skipped in why.items() if skipped is not None}
    assert messages == {
        "chunks/tiny_0.pte computes what eager PyTorch does": "current: it was held against it when it was made",
        "chunks/tiny_1.pte computes what eager PyTorch does": "it was exported with --no-verify",
        "audit of etcli_llama_runner": "current: it was audited when built",
        "audit of libhelper.so": "current: it was audited when built",
    }


def test_a_failure_has_its_code_and_remedy_and_what_it_kept_from_running_is_skipped(
    scene: Scene, tmp_path: Path
) -> None:
    scene.fail = ExportError(
        "worker killed", code="export.killed", hint="Use --jobs 1.", file=tmp_path / "r.yaml", line=3
    )
    with pytest.raises(ExportError):
        scene.smoke(junit=tmp_path / "out.xml")
    told = cases(tmp_path / "out.xml")
    failure = told["export"]["the bundle is whole"].find("failure")
    assert failure is not None
    assert failure.attrib == {"message": "worker killed", "type": "export.killed"}
    assert failure.text == f"{tmp_path / 'r.yaml'}:3: worker killed [export.killed]\n    Use --jobs 1."
    assert outcome(told["build"]["what it needs is there"]) == "passed"  # it was looked at before the export
    skipped = told["build"]["it compiles, and its audit finds nothing"].find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"] == "not reached: export failed"


def test_much_output_keeps_its_end(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def talkative(*values: Any) -> Any:
        values[-1].note("x" * 100_000)
        raise ExportError("worker killed", code="export.killed")

    monkeypatch.setattr(module, "export", talkative)
    with pytest.raises(ExportError):
        scene.smoke(junit=tmp_path / "out.xml")
    said = cases(tmp_path / "out.xml")["export"]["the bundle is whole"].findtext("system-out") or ""
    assert said.startswith("(its beginning was left out)")
    assert 60_000 < len(said) < 70_000


def test_what_the_build_lacks_is_said_before_the_long_export(scene: Scene, tmp_path: Path) -> None:
    scene.lacking = ToolError("no compiler", code="compiler.missing")
    with pytest.raises(ToolError, match="no compiler"):
        scene.smoke(junit=tmp_path / "out.xml")
    assert scene.calls == []
    told = outcomes(tmp_path / "out.xml")
    assert told == {**dict.fromkeys(STAGES, "skipped"), "device": "passed", "build": "failure"}


def test_a_runner_of_the_users_own_is_run_and_compared(scene: Scene, tmp_path: Path) -> None:
    """It is a program that ends at once: the stages before it are done, and it is what the run stage names."""
    binary = Path(shutil.which("true") or "/bin/true")
    with pytest.raises(RunError, match="without a result"):
        scene.smoke(runner_binary=binary, junit=tmp_path / "out.xml")
    assert scene.calls == ["export", "build host"]
    assert outcomes(tmp_path / "out.xml")["run"] == "failure"
    assert any(remote.endswith("/.etcli-runner") for remote in scene.device.pushed)


def test_a_runner_of_another_machine_is_refused_before_the_long_export(scene: Scene, tmp_path: Path) -> None:
    content = bytearray(Path(shutil.which("true") or "/bin/true").read_bytes())
    content[18:20] = (183).to_bytes(2, "little")  # e_machine: EM_AARCH64
    (tmp_path / "runner").write_bytes(content)
    with pytest.raises(UsageError, match="is for EM_AARCH64") as caught:
        scene.smoke(runner_binary=tmp_path / "runner", junit=tmp_path / "out.xml")
    assert caught.value.problems[0].code == "run.binary_machine"
    assert scene.calls == []
    assert outcomes(tmp_path / "out.xml") == {**dict.fromkeys(STAGES, "skipped"), "device": "passed", "run": "failure"}


def test_a_report_that_cannot_be_written_is_refused_before_the_work(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="JUnit report") as caught:
        scene.smoke(junit=tmp_path / "file" / "out.xml")
    assert caught.value.exit == ExitCode.USAGE
    assert scene.calls == []


def test_a_smoke_under_way_has_no_older_report(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.smoke(junit=tmp_path / "out.xml")
    seen = {}

    def look(*_: Any) -> SimpleNamespace:
        seen.update(outcomes(tmp_path / "out.xml"))
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "export", look)
    with pytest.raises(KeyboardInterrupt) as caught:
        scene.smoke(junit=tmp_path / "out.xml")
    assert "stages" in caught.value.etcli_result  # type: ignore[attr-defined]
    assert seen == {"smoke": "error"}  # which is no verdict on the product
    assert outcomes(tmp_path / "out.xml") == {**dict.fromkeys(STAGES, "skipped"), "device": "passed", "export": "error"}
    (suites,) = ET.parse(tmp_path / "out.xml").iter("testsuites")
    assert (suites.get("failures"), suites.get("errors")) == ("0", "1")


def test_on_a_full_disk_no_older_report_stays(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.smoke(junit=tmp_path / "out.xml")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "write_junit", full)
    with pytest.raises(UsageError, match="No space left on device"):
        scene.smoke(junit=tmp_path / "out.xml")
    assert not (tmp_path / "out.xml").exists()


@pytest.mark.parametrize("link", [False, True])
def test_no_report_takes_the_place_of_a_device(scene: Scene, tmp_path: Path, link: bool) -> None:
    device = tmp_path / "null"
    os.mkfifo(device)
    report = tmp_path / "link" if link else device
    if link:
        report.symlink_to(device)
    with pytest.raises(UsageError, match="not a regular file"):
        scene.smoke(junit=report)
    assert scene.calls == []
    assert device.is_fifo()


def test_a_linked_report_stays_a_link(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "link.xml").symlink_to("out.xml")
    scene.smoke(junit=tmp_path / "link.xml")
    assert (tmp_path / "link.xml").is_symlink()
    assert outcomes(tmp_path / "out.xml") == dict.fromkeys(STAGES, "passed")


@pytest.mark.parametrize("target", ["riscv", "Host"])
def test_a_target_that_is_none_is_a_matter_of_usage(scene: Scene, target: str) -> None:
    with pytest.raises(UsageError, match=f"no target '{target}'") as caught:
        scene.smoke(target=target)
    assert caught.value.exit == ExitCode.USAGE
    assert scene.calls == []


def test_current_stages_are_said_to_be_and_run_and_comparison_never_are(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.smoke()
    scene.current = True
    result = smoke(scene.loaded, scene.workspace, SmokeOptions(), Console())
    assert "export: current" in capsys.readouterr().err
    current = {stage.name for stage in result.stages if stage.current}
    assert current == {"export", "build", "deploy"}
    assert result.sent_bytes == 0
    assert sum(call.startswith("reference") for call in scene.calls) == 2
    assert len(list(scene.workspace.runs.iterdir())) == 2


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ((5, 7, 2), "token 1: the device gave 6 ('is'), the reference 7 ('nice')"),
        ((5, 6, 8, 2), "token 2: the device gave 2 (''), the reference 8 ('.')"),
        ((5, 6), "token 2: the device gave 2 (''), the reference nothing more"),
        ((5, 6, 2, 9), "token 3: the device gave nothing more, the reference 9 ('capital')"),
    ],
)
def test_first_difference_is_told(scene: Scene, tmp_path: Path, reference: tuple[int, ...], message: str) -> None:
    scene.reference = reference
    with pytest.raises(MismatchError) as caught:
        scene.smoke(junit=tmp_path / "out.xml")
    assert caught.value.exit == ExitCode.MISMATCH
    assert message in caught.value.problems[0].message
    result = caught.value.etcli_result  # type: ignore[attr-defined]
    assert isinstance(result, SmokeResult)
    assert not result.matches
    assert result.reference_tokens == reference
    assert result.stages[-1].outcome == "failed"
    assert outcomes(tmp_path / "out.xml") == {**dict.fromkeys(STAGES, "passed"), "compare": "failure"}


def quantised(scene: Scene, tmp_path: Path, **export: Any) -> None:
    scene.loaded = samples.make_recipe(
        tmp_path, export=export, run={"prompt": "Hello world", "chat": False, "max_new_tokens": 8}
    )


def test_quantised_tokens_are_judged_where_the_device_went(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quantised(scene, tmp_path, precision="8da4w")
    scene.gaps = (0.0, GAPS["8da4w"] * 0.9, 0.0)
    result = smoke(scene.loaded, scene.workspace, SmokeOptions(), Console())
    assert scene.calls[-1] == f"judge (3, 4) (5, 6, {samples.STOP_ID}) 16"
    assert result.matches
    assert (result.exact_matches, result.allowed_gap) == (2, GAPS["8da4w"])
    assert result.largest_gap == pytest.approx(GAPS["8da4w"] * 0.9)
    assert result.reference_tokens == (5, 7, samples.STOP_ID)
    assert "2 of 3 tokens are the reference's own choice" in capsys.readouterr().err


@pytest.mark.parametrize("gap", [GAPS["8da4w"] * 1.01, float("nan")])
def test_a_token_beyond_the_gap_is_a_mismatch(scene: Scene, tmp_path: Path, gap: float) -> None:
    quantised(scene, tmp_path, precision="8da4w")
    scene.gaps = (0.0, gap, 0.0)
    with pytest.raises(MismatchError, match="token 1: the device gave 6") as caught:
        scene.smoke()
    result = caught.value.etcli_result  # type: ignore[attr-defined]
    assert not result.matches
    assert result.first_difference.index == 1


@pytest.mark.parametrize(("own", "matches"), [(4, True), (3, False)])
def test_half_of_the_tokens_are_the_reference_s_own_choice(own: int, matches: bool) -> None:
    judged = [Judgement(5, 1.0, 5, 1.0) if index < own else Judgement(5, 0.9, 6, 1.0) for index in range(8)]
    tokenizer = SimpleNamespace(decode=str)
    found = comparison.judged_comparison(judged, GAPS["A8W8"], tokenizer)  # type: ignore[arg-type]
    assert (found.matches, found.exact_matches, found.exact_needed) == (matches, own, 4)
    assert (found.first_difference is None) == matches
    few = comparison.judged_comparison(judged[own:], GAPS["A8W8"], tokenizer)  # type: ignore[arg-type]
    assert few.matches, "few tokens may all be nearly as good"


@pytest.mark.parametrize(
    ("export", "gap"),
    [
        ({}, 0.0),
        ({"embedding": "int8"}, 0.0),
        ({"precision": "fp16"}, GAPS["fp16"]),
        ({"head": "8da8w"}, GAPS["8da8w"]),
        ({"precision": "8da4w", "head": "fp32"}, GAPS["8da4w"]),
    ],
)
def test_the_gap_is_that_of_the_coarsest_part(tmp_path: Path, export: dict[str, Any], gap: float) -> None:
    assert comparison.allowed_gap(samples.make_recipe(tmp_path, export=export)) == gap


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ((5, 6), "stopped before token 8"),
        ((5, 2, 6), "went on after token 2"),
        ((5,) * 9, "went on after token 8"),
        ((5, 6, 2), None),
        ((5,) * 8, None),
        ((5,) * 7 + (2,), None),
    ],
)
def test_an_answer_ends_where_it_must(tokens: tuple[int, ...], said: str | None) -> None:
    problem = comparison.ending_problem(tokens, (2, 9), 8)
    assert (problem is None) == (said is None)
    assert problem is None or (said or "") in problem.message


def test_a_quantised_answer_that_stops_too_soon_is_not_compared(scene: Scene, tmp_path: Path) -> None:
    quantised(scene, tmp_path, precision="8da4w")
    scene.tokens, scene.stop_reason = [5, 6], "max_new_tokens"
    with pytest.raises(RunError) as caught:
        scene.smoke()
    assert caught.value.problems[0].code == "smoke.ending"
    assert not any(call.startswith("judge") for call in scene.calls)


def test_failed_stage_leaves_the_later_ones_skipped(scene: Scene, tmp_path: Path) -> None:
    scene.fail = ExportError("worker killed", code="export.killed")
    with pytest.raises(ExportError) as caught:
        scene.smoke(junit=tmp_path / "out.xml")
    shown = to_plain(caught.value.etcli_result)  # type: ignore[attr-defined] # what --json shows
    assert {stage["name"]: stage["outcome"] for stage in shown.pop("stages")} == {
        **dict.fromkeys(STAGES, "skipped"),
        "device": "passed",
        "export": "failed",
    }
    assert shown == {}
    assert outcomes(tmp_path / "out.xml") == {
        "device": "passed",
        "export": "failure",
        "build": "skipped",
        "deploy": "skipped",
        "run": "skipped",
        "compare": "skipped",
    }
    assert "worker killed" in (tmp_path / "out.xml").read_text()


def test_run_that_was_cut_short_is_not_compared(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.run
    monkeypatch.setattr(module, "run", lambda *values: real(*values).model_copy(update={"stop_reason": "timeout"}))
    with pytest.raises(RunError, match=r"run\.timeout_s") as caught:
        scene.smoke(junit=tmp_path / "out.xml")
    shown = to_plain(caught.value.etcli_result)  # type: ignore[attr-defined] # what --json shows
    assert (shown["tokens"], shown["stop_reason"]) == ([5, 6, samples.STOP_ID], "timeout")
    assert [stage["outcome"] for stage in shown["stages"]] == ["passed"] * 4 + ["failed", "skipped"]
    assert outcomes(tmp_path / "out.xml")["run"] == "failure"
    assert not any(call.startswith("reference") for call in scene.calls)


def test_target_of_another_device_is_refused_before_the_export(scene: Scene) -> None:
    with pytest.raises(Exception, match="linux-aarch64 does not fit local-1"):
        scene.smoke(target="linux-aarch64")
    assert scene.calls == []


def nothing_connected(**values: Any) -> LocalDevice:
    if values["virtual"] is None:
        raise DeviceError("no device is connected", code="device.none")
    return SimpleNamespace(serial=values["virtual"])  # type: ignore[return-value]


def test_virtual_device_is_taken_only_where_none_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(verbosity=-1)
    monkeypatch.setattr(module, "select_device", nothing_connected)
    assert choose_device(SmokeOptions(), console).serial == "virtual"
    for options in (SmokeOptions(require_device=True), SmokeOptions(serial="phone")):
        with pytest.raises(DeviceError) as caught:
            choose_device(options, console)
        assert caught.value.problems[0].code == "device.none"

    def several(**_: Any) -> LocalDevice:
        raise DeviceError("2 devices are connected", code="device.several")

    monkeypatch.setattr(module, "select_device", several)
    with pytest.raises(DeviceError, match="2 devices"):
        choose_device(SmokeOptions(), console)


def test_required_device_must_be_physical(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="local-1 is emulated") as caught:
        scene.smoke(require_device=True)
    assert caught.value.exit == ExitCode.DEVICE
    with pytest.raises(DeviceError, match="a virtual device was asked for"):
        scene.smoke(require_device=True, virtual="virtual")
    facts = DeviceFacts(serial="p", model="Phone", soc="", abi="x86_64", os="Android", emulated=False)
    monkeypatch.setattr(LocalDevice, "facts", lambda _: facts)
    assert scene.smoke(require_device=True).matches


def test_equal_tokens_have_no_difference() -> None:
    tokenizer: Any = SimpleNamespace(decode=lambda ids: str(ids))
    assert first_difference([], [], tokenizer) is None
    assert first_difference([1, 2], (1, 2), tokenizer) is None
    difference = first_difference([1], [], tokenizer)
    assert difference is not None
    assert (difference.index, difference.device_id, difference.reference_id) == (0, 1, None)
