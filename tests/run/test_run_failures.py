"""Runs that go badly: each ends in one explained error, with everything the program printed kept."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import samples
from deploy_scene import Scene
from local_device import LocalStream

from etcli.common.errors import DeviceError, ExitCode, InterruptedByUser, RunError
from etcli.manifests.run_record import RunRecord

RunScript = Callable[..., RunRecord]


def fails(run_script: RunScript, script: str, **options: object) -> RunError:
    with pytest.raises(RunError) as caught:
        run_script(script, **options)
    assert caught.value.exit == ExitCode.RUN
    assert caught.value.problems[0].hint
    return caught.value


def test_error_event_is_shown_with_device_and_last_messages(run_script: RunScript, scene: Scene) -> None:
    line = samples.event("error", code="runner.load", message="chunk 0: ExecuTorch error OperatorMissing 0x14")
    error = fails(run_script, samples.script([line], after="echo kernel not found >&2; exit 3"))
    problem = error.problems[0]
    assert problem.code == "runner.load"
    assert "local-1 (Local, Linux test, emulated)" in problem.message
    assert "OperatorMissing 0x14" in problem.message
    assert "kernel not found" in problem.message
    assert problem.file is not None
    assert problem.file.read_text() == "kernel not found\n"
    assert (problem.file.parent / "events.jsonl").read_text() == line + "\n"
    assert not (problem.file.parent / "record.json").exists()


def test_a_message_that_comes_over_and_over_is_shown_once(run_script: RunScript) -> None:
    line = samples.event("error", code="runner.load", message="no")
    after = "echo why it is so >&2; for i in 1 2 3 4 5 6 7 8 9; do echo again >&2; done; exit 3"
    message = fails(run_script, samples.script([line], after=after)).problems[0].message
    assert message.count("again") == 1
    assert "why it is so" in message


def test_what_the_runner_says_twice_is_shown_once(run_script: RunScript) -> None:
    line = samples.event("error", code="runner.config", message="line 3: what is this")
    problem = fails(
        run_script, samples.script([line], after="echo 'error: line 3: what is this' >&2; exit 2")
    ).problems[0]
    assert problem.message.count("line 3") == 1
    assert "etcli export" in (problem.hint or ""), "nothing is known of the words, so the code says what to do"


def test_a_message_without_end_is_cut(run_script: RunScript) -> None:
    line = samples.event("error", code="runner.load", message="x" * 60_000)
    assert len(fails(run_script, samples.script([line], after="exit 3")).problems[0].message) < 5000


def test_an_error_after_some_text_begins_a_line(
    run_script: RunScript, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(scene.console, "write", shown.append)
    lines = [*samples.answer_lines([5])[:-1], samples.event("token", index=7, id=5, t_s=1.0)]
    assert fails(run_script, samples.script(lines, after="sleep 100")).problems[0].code == "run.bad_output"
    assert "".join(shown) == "Tokyo\n"


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("ILL", "instruction"),
        ("ABRT", "gave up"),
        ("KILL", "memory"),
        ("SEGV", "crashed"),
        ("BUS", "mapped file"),
        ("TERM", "ended it"),
        ("TRAP", "compiler"),
        ("HUP", "connection"),
    ],
)
def test_signal_is_named_and_explained(run_script: RunScript, name: str, word: str) -> None:
    lines = samples.answer_lines([5, 6])[:-1]
    error = fails(run_script, samples.script(lines, after=f"kill -{name} $$; sleep 10"))
    problem = error.problems[0]
    number = 128 + signal.Signals[f"SIG{name}"]
    assert problem.code == f"run.sig{name.lower()}"
    assert f"after 2 tokens: it was ended by SIG{name} (exit status {number})" in problem.message
    assert word in (problem.hint or "")


@pytest.mark.parametrize("status", [0, 1, 7, 126, 127, 255])
def test_end_without_a_result_is_an_error(run_script: RunScript, status: int) -> None:
    error = fails(run_script, f"#!/bin/sh\nexit {status}\n")
    assert f"exit status {status}" in error.problems[0].message


def test_result_with_a_bad_exit_status_is_an_error(run_script: RunScript) -> None:
    error = fails(run_script, samples.script(samples.answer_lines([samples.STOP_ID]), after="kill -SEGV $$"))
    assert error.problems[0].code == "run.sigsegv"


def hint_of(error: RunError) -> str:
    (problem,) = error.problems
    return problem.hint or ""


def test_a_program_for_another_cpu_has_one_remedy_and_its_place_is_the_devices(
    run_script: RunScript, scene: Scene
) -> None:
    error = fails(run_script, "#!/bin/sh\necho 'sh: r: Exec format error' >&2\nexit 126\n")
    (problem,) = error.problems
    program = f"{scene.loaded.recipe.device_dir}/bin/etcli_llama_runner"
    assert problem.code == "run.cannot_start"
    assert f"{program} could not be started (exit status 126)" in problem.message
    assert str(problem.file) == program
    remedy, kept = hint_of(error).splitlines()
    assert "another kind of CPU" in remedy
    assert "permission" not in remedy
    assert kept.startswith("Everything it printed")


def test_commands_in_hints_are_whole(run_script: RunScript, scene: Scene) -> None:
    """With the recipe, the workspace and the device, so that they can be typed."""
    hint = hint_of(fails(run_script, "#!/bin/sh\necho 'sh: r: Exec format error' >&2\nexit 126\n"))
    after = f" --workspace {scene.workspace.root}`"
    assert f"`etcli build {scene.loaded.path} --target host{after}" in hint
    assert f"`etcli deploy {scene.loaded.path} --serial local-1{after}" in hint


@pytest.mark.parametrize(
    "said",
    [
        "Backend XnnpackBackend is not registered, error 0x20",
        "c.pte needs the backend XnnpackBackend, which this program was built without",
    ],
)
def test_a_backend_that_the_build_has_was_lost_on_the_device(run_script: RunScript, tmp_path: Path, said: str) -> None:
    line = samples.event("error", code="runner.method", message=said)
    hint = hint_of(fails(run_script, samples.script([line], after="exit 3")))
    assert "not the build's any more" in hint
    assert "`etcli deploy" in hint
    assert "--verify" in hint
    assert "etcli build" not in hint
    own = c_program(tmp_path, f"fputs({json.dumps(line + chr(10))}, stdout); return 3;")
    hint = hint_of(fails(run_script, "#!/bin/sh\nexit 0\n", runner_binary=own))
    assert "link XnnpackBackend whole into it" in hint
    assert "etcli deploy" not in hint


@pytest.mark.parametrize("status", [0, 2])
def test_a_program_of_the_users_that_does_not_speak_the_protocol(
    run_script: RunScript, tmp_path: Path, status: int
) -> None:
    own = c_program(tmp_path, f'puts("README.md"); return {status};')
    error = fails(run_script, "#!/bin/sh\nexit 0\n", runner_binary=own)
    assert error.problems[0].code == "run.no_protocol"
    assert "runner's protocol" in error.problems[0].message
    assert "--runner-binary is no runner" in hint_of(error)


def c_program(folder: Path, body: str) -> Path:
    """A program of this machine whose `main` is `body`."""
    source = folder / "own.c"
    source.write_text(f"#include <stdio.h>\nint main(void) {{ {body} }}\n")
    subprocess.run(["cc", str(source), "-o", str(folder / "own")], check=True, timeout=60)
    return folder / "own"


def test_program_that_is_no_runner(run_script: RunScript) -> None:
    error = fails(run_script, "#!/bin/sh\necho hello\n")
    assert error.problems[0].code == "run.no_result"
    assert "hello" in error.problems[0].message


@pytest.mark.parametrize(
    "line",
    [
        samples.event("token", index=0, id=len(samples.VOCABULARY), t_s=1.0),
        samples.event("token", index=0, id=-1, t_s=1.0),
        samples.event("token", index=1, id=5, t_s=1.0),
        samples.event("token", index=0, id=5.5, t_s=1.0),
        samples.event("token", index=0, id="5", t_s=1.0),
        samples.event("token", index=0, id=True, t_s=1.0),
        samples.event("token", index=0, id=1 << 70, t_s=1.0),
        '{"event": "token", "index": 0, "id": 5, "t_s": NaN}',
        '{"event": "token", "index": 0, "id": 5, "t_s": -1}',
        samples.event("token"),
        samples.event("stats"),
        samples.answer_lines([5])[-1],
    ],
)
def test_impossible_event_ends_the_run(run_script: RunScript, line: str) -> None:
    error = fails(run_script, samples.script([line], after="sleep 100"))
    assert error.problems[0].code in ("run.bad_output", "run.bad_event")


def test_wrong_counts_and_reasons_in_the_statistics(run_script: RunScript) -> None:
    good = samples.answer_lines([5, samples.STOP_ID])
    for change in ({"new_tokens": 3}, {"prompt_tokens": 9}, {"stop_reason": "max_new_tokens"}):
        bad = samples.answer_lines([5, samples.STOP_ID], **change)[-1]
        assert fails(run_script, samples.script([*good[:-1], bad])).problems[0].code == "run.bad_output"
    claimed = samples.answer_lines([5, 6], stop_reason="stop_id")
    assert "is no stop id" in fails(run_script, samples.script(claimed)).problems[0].message


def test_more_tokens_than_asked_for(run_script: RunScript) -> None:
    error = fails(run_script, samples.script(samples.answer_lines([5, 6, 7])), max_new_tokens=2)
    assert "more than the 2 tokens" in error.problems[0].message


def test_runner_of_another_protocol(run_script: RunScript) -> None:
    line = samples.event("start", protocol=2, runner="r", version="1", executorch="2")
    assert fails(run_script, samples.script([line])).problems[0].code == "run.protocol"


@pytest.mark.parametrize(
    "line",
    ["", "{", "[1]", "null", '"event"', '{"event": {}}', '{"event": null}', "[" * 5000, "x" * 200_000],
    ids=lambda line: line[:16],  # pytest hands the id to every program in the environment, where it must fit
)
def test_lines_that_are_no_events_do_no_harm(run_script: RunScript, tmp_path: Path, line: str) -> None:
    content = tmp_path / "line.txt"
    content.write_text(line + "\n")
    script = samples.script(samples.answer_lines([samples.STOP_ID]))
    record = run_script(script.replace("#!/bin/sh\n", f"#!/bin/sh\ncat {content}\n", 1))
    assert record.tokens == (samples.STOP_ID,)


def test_endless_output_is_ended(run_script: RunScript, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etcli.run.capture._MOST_BYTES", 10_000)
    assert fails(run_script, "#!/bin/sh\nexec yes\n").problems[0].code == "run.too_much_output"


def test_control_characters_of_the_device_do_not_reach_the_terminal(run_script: RunScript) -> None:
    error = fails(run_script, "#!/bin/sh\nprintf '\\033[2Jbad\\007\\n' >&2\nexit 5\n")
    assert "\x1b" not in error.problems[0].message
    assert "[2Jbad" in error.problems[0].message


def ended(pid: Path) -> bool:
    """Whether the process whose id is in `pid` is gone."""
    return not psutil.pid_exists(int(pid.read_text()))


def with_timeout(scene: Scene, seconds: float) -> None:
    scene.loaded = samples.make_recipe(
        scene.loaded.base, run={"prompt": "Hello world", "chat": False, "timeout_s": seconds}
    )


def test_timeout_keeps_the_tokens_and_ends_the_program(run_script: RunScript, scene: Scene, tmp_path: Path) -> None:
    with_timeout(scene, 1.5)
    lines = samples.answer_lines([5, 6, 7])[:-1]
    pid = tmp_path / "pid"
    record = run_script(samples.script(lines, after=f"echo $$ > {pid}; sleep 100"))
    assert ended(pid)
    assert record.stop_reason == "timeout"
    assert record.tokens == (5, 6, 7)
    assert record.text == "Tokyo is nice"
    assert record.prefill_tokens_per_s == 4.0
    assert record.decode_tokens_per_s == pytest.approx(10.0)
    assert (record.load_s, record.peak_memory_bytes) == (0.25, None)
    assert [warning.code for warning in scene.console.warnings] == ["run.timeout"]
    (folder,) = scene.workspace.runs.iterdir()
    assert RunRecord.read(folder / "record.json") == record


def test_timeout_reaches_a_program_that_never_stops_talking(run_script: RunScript, scene: Scene) -> None:
    with_timeout(scene, 0.5)
    error = fails(run_script, "#!/bin/sh\nwhile :; do echo noise; sleep 0.01; done\n")
    assert error.problems[0].code == "run.timeout"


def test_timeout_before_the_first_token_tells_what_was_heard(run_script: RunScript, scene: Scene) -> None:
    with_timeout(scene, 1.5)
    said = "echo 'Backend XnnpackBackend is not registered' >&2; sleep 100"
    problem = fails(run_script, samples.script(samples.answer_lines([5])[:2], after=said)).problems[0]
    assert problem.code == "run.timeout"
    assert "before its first token" in problem.message
    assert "XnnpackBackend is not registered" in problem.message
    assert "The build has XnnpackBackend" in (problem.hint or "")
    assert "It had loaded" in (problem.hint or "")


def test_interrupt_ends_the_program_and_keeps_the_record(
    run_script: RunScript, scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(text: str) -> None:
        if "is" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(scene.console, "write", interrupt)
    lines = samples.answer_lines([5, 6, 7])[:-1]
    with pytest.raises(InterruptedByUser) as caught:
        run_script(f"#!/bin/sh\necho $$ > {tmp_path / 'pid'}\n" + samples.script(lines, after="sleep 100"))
    assert caught.value.exit == ExitCode.INTERRUPTED
    assert ended(tmp_path / "pid")
    (folder,) = scene.workspace.runs.iterdir()
    record = RunRecord.read(folder / "record.json")
    assert record.stop_reason == "interrupted"
    assert record.tokens == (5, 6)
    assert caught.value.etcli_result == record  # type: ignore[attr-defined] # what --json shows
    assert str(folder / "record.json") in (caught.value.problems[0].hint or "")


@pytest.mark.parametrize(("told", "words"), [(1, "after 0 tokens"), (-1, "after 2 tokens")])
def test_device_that_goes_away_is_a_device_error(
    run_script: RunScript, scene: Scene, monkeypatch: pytest.MonkeyPatch, told: int, words: str
) -> None:
    def lines(self: LocalStream) -> object:
        yield from samples.answer_lines([5, 6])[:told]
        raise DeviceError("the device went away", code="device.offline", hint="Look for it.")

    monkeypatch.setattr(LocalStream, "lines", lines)
    with pytest.raises(DeviceError) as caught:
        run_script("#!/bin/sh\nsleep 100\n")
    (folder,) = scene.workspace.runs.iterdir()
    assert "start" in (folder / "events.jsonl").read_text()
    assert caught.value.problems[0].message == f"the device went away {words}"
    assert caught.value.problems[0].hint == f"Look for it.\nWhat it printed until then is in {folder}"
