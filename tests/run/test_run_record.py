"""A run that goes well: the command line, the streamed text, the record and what is kept of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import samples
from deploy_scene import Scene

from etcli.common.errors import RunError
from etcli.common.hashing import file_sha256
from etcli.manifests.run_record import RunRecord
from etcli.output.console import Console
from etcli.run import stage
from etcli.run.runners import RUNNERS
from etcli.run.stage import RunOptions, run

RunScript = Callable[..., RunRecord]


def test_record_holds_what_the_runner_told(
    run_script: RunScript, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.console = Console(verbosity=-1)  # writes to the stdout that capsys reads
    record = run_script(samples.script(samples.answer_lines([5, 6, 7, samples.STOP_ID])))
    assert record.prompt == "Hello world"
    assert record.prompt_ids == (3, 4)
    assert record.tokens == (5, 6, 7, samples.STOP_ID)
    assert record.text == "Tokyo is nice"
    assert record.stop_reason == "stop_id"
    assert (record.prefill_tokens_per_s, record.decode_tokens_per_s) == (4.0, 10.0)
    assert (record.load_s, record.peak_memory_bytes, record.threads) == (0.25, 4096, 2)
    assert record.device.emulated
    assert (record.runner, record.target) == ("etcli", "host")
    assert record.runner_sha256 == file_sha256(scene.folder / "bin" / RUNNERS["etcli"].program)
    assert capsys.readouterr().out == "Tokyo is nice\n"


@pytest.mark.known_failure("mtk-runner-of-another-release")
def test_record_says_which_program_of_the_users_own_it_was(run_script: RunScript, scene: Scene, tmp_path: Path) -> None:
    lines = samples.answer_lines([5, samples.STOP_ID])
    source, binary = tmp_path / "runner.c", tmp_path / "runner"
    said = "".join(f"puts({json.dumps(line)});" for line in lines)
    source.write_text(f"#include <stdio.h>\nint main(void) {{ {said} return 0; }}\n")
    subprocess.run(["cc", "-o", binary, source], check=True, timeout=60)
    record = run_script(samples.script(samples.answer_lines([5, 6, samples.STOP_ID])), runner_binary=binary)
    assert record.tokens == (5, samples.STOP_ID)
    assert record.runner_sha256 == file_sha256(binary)


def test_what_the_runner_is_at_is_said_until_it_answers(
    run_script: RunScript, scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.console = Console()
    run_script(samples.script(samples.answer_lines([5, 6, 2])))
    assert "    loaded in 0.25 s; prefill of 2 tokens\n" in capsys.readouterr().err
    facts = scene.device.facts().model_copy(update={"abi": "arm64-v8a"})
    monkeypatch.setattr(stage.platform, "machine", lambda: "x86_64")
    with stage._until_first_token("loading", facts, 2, RunOptions(), scene.console) as tell:
        for line in samples.answer_lines([5])[:2]:
            tell(RUNNERS["etcli"].reader(None).line(line))
    assert "(emulated: about a minute)" in capsys.readouterr().err


def test_command_line_of_the_runner(run_script: RunScript, scene: Scene) -> None:
    run_script(samples.script(samples.answer_lines([5], stop_reason="max_new_tokens")), max_new_tokens=1)
    assert scene.device.commands[-1] == (
        "/data/local/tmp/etcli/tiny/bin/etcli_llama_runner",
        "--config",
        "bundle/runner.cfg",
        "--prompt-ids",
        "3,4",
        "--max-new-tokens",
        "1",
    )


def test_everything_is_kept(run_script: RunScript, scene: Scene) -> None:
    lines = samples.answer_lines([samples.STOP_ID])
    record = run_script(samples.script([lines[0], "a line that is no event", *lines[1:]], after="echo warmed up >&2"))
    (folder,) = scene.workspace.runs.iterdir()
    assert (folder / "events.jsonl").read_text().splitlines() == [lines[0], "a line that is no event", *lines[1:]]
    assert (folder / "stderr.txt").read_text() == "warmed up\n"
    assert RunRecord.read(folder / "record.json") == record


def test_every_run_has_a_folder_of_its_own(run_script: RunScript, scene: Scene) -> None:
    script = samples.script(samples.answer_lines([samples.STOP_ID]))
    run_script(script)
    run_script(script)
    assert len(list(scene.workspace.runs.iterdir())) == 2


def test_program_runs_in_the_deployment_with_its_libraries(run_script: RunScript, scene: Scene) -> None:
    script = samples.script(samples.answer_lines([samples.STOP_ID]), after='pwd >&2; echo "$LD_LIBRARY_PATH" >&2')
    run_script(script)
    (folder,) = scene.workspace.runs.iterdir()
    where, libraries = (folder / "stderr.txt").read_text().splitlines()
    assert where == str(scene.folder)
    assert libraries == str(scene.folder / "bin")


def test_events_after_the_end_and_unknown_ones_are_not_taken(run_script: RunScript) -> None:
    lines = samples.answer_lines([5, samples.STOP_ID])
    lines.insert(2, samples.event("weather", sky="blue"))
    record = run_script(samples.script([*lines, samples.event("token", index=0, id=5, t_s=9.0)]))
    assert record.tokens == (5, samples.STOP_ID)


def test_prompt_too_long_for_a_command_line_goes_through_a_file(
    run_script: RunScript, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etcli.run.runners.etcli_runner.LONGEST_PROMPT_ARGUMENT", 3)
    script = samples.script(samples.answer_lines([samples.STOP_ID], prompt_tokens=3), after='cat "$4" >&2')
    run_script(script, prompt="Hello world Tokyo")
    (folder,) = scene.workspace.runs.iterdir()
    assert (folder / "stderr.txt").read_text() == "3,4,5\n"
    assert scene.device.commands[-2][3] == "--prompt-ids-file"
    assert not (scene.folder / ".etcli-prompt-ids").exists()


def test_stop_ids_can_be_ignored(run_script: RunScript, scene: Scene) -> None:
    lines = samples.answer_lines([5, samples.STOP_ID], stop_reason="max_new_tokens")
    record = run_script(samples.script(lines), max_new_tokens=2, ignore_stop_ids=True)
    assert record.stop_reason == "max_new_tokens"
    assert scene.device.commands[-1][-1] == "--ignore-stop-ids"


def test_text_is_not_shown_when_not_asked_for(
    run_script: RunScript, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.console = Console(verbosity=-1)
    record = run_script(samples.script(samples.answer_lines([5, samples.STOP_ID])), stream=False)
    assert record.text == "Tokyo"
    assert capsys.readouterr().out == ""


def test_full_cache_is_a_result(run_script: RunScript, scene: Scene) -> None:
    tokens = [5] * 15
    record = run_script(samples.script(samples.answer_lines(tokens, stop_reason="cache_full")))
    assert record.stop_reason == "cache_full"
    assert len(record.tokens) == 15


def test_recipe_values_are_overridden_by_options(scene: Scene, run_script: RunScript) -> None:
    run_script(samples.script(samples.answer_lines([samples.STOP_ID])))
    options = RunOptions(prompt="Hello", max_new_tokens=9, chat=False)
    with pytest.raises(RunError, match="counts 2 prompt tokens, it was given 1"):
        run(scene.loaded, scene.workspace, scene.device, options, scene.console)
    program = [command for command in scene.device.commands if command[0].endswith("etcli_llama_runner")][-1]
    assert program[3:] == ("--prompt-ids", "3", "--max-new-tokens", "9")
