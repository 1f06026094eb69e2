"""Running on real x86_64 virtual devices of both protocols through a real adb server: programs that end well, badly, and not at all."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import samples
from breaking_proxy import BreakingProxy
from device_fixtures import MakeDevice

from etcli.common.errors import DeviceError, InterruptedByUser, RunError
from etcli.common.workspace import Workspace
from etcli.deploy.stage import DeployOptions, deploy
from etcli.device.adb import AdbDevice
from etcli.device.server import AdbServer
from etcli.manifests.run_record import RunRecord
from etcli.output.console import Console
from etcli.run.events import AnyEvent, Token
from etcli.run.stage import RunOptions, run

RunScript = Callable[..., RunRecord]


@pytest.fixture(params=["new", "old"])
def device(virtual_device: MakeDevice, request: pytest.FixtureRequest) -> Iterator[AdbDevice]:
    device = virtual_device("x86_64", protocol=request.param)
    yield device
    device.shell(["rm", "-rf", "/data/local/tmp/etcli"])


@pytest.fixture
def run_script(tmp_path: Path, device: AdbDevice) -> RunScript:
    def call(script: str, *, timeout_s: float | None = None, on: AdbDevice = device, **options: object) -> RunRecord:
        section = {"prompt": "Hello world", "chat": False, "timeout_s": timeout_s}
        loaded = samples.make_recipe(tmp_path, run=section)
        workspace = Workspace(tmp_path / "work", "tiny")
        samples.make_bundle(loaded, workspace)
        samples.make_build(loaded, workspace, runner=script)
        console = Console(verbosity=-1)
        deploy(loaded, workspace, device, DeployOptions(), console)
        return run(loaded, workspace, on, replace(RunOptions(), **options), console)

    return call


def processes(device: AdbDevice, word: str) -> list[str]:
    """Command lines of the device's processes that hold `word`."""
    script = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done"
    return [
        line for line in device.shell(["sh", "-c", script]).stdout.splitlines() if word in line and script not in line
    ]


def gone(device: AdbDevice, word: str) -> bool:
    """Whether the device's processes with `word` end within a few seconds."""
    for _ in range(50):
        if not processes(device, word):
            return True
        time.sleep(0.1)
    return False


def test_answer_and_stderr_come_through(run_script: RunScript, device: AdbDevice, tmp_path: Path) -> None:
    lines = samples.answer_lines([5, 6, 7, samples.STOP_ID])
    record = run_script(samples.script(lines, after="echo note >&2; exit 0"))
    assert record.text == "Tokyo is nice"
    assert record.device.serial == device.serial
    assert record.device.emulated
    (folder,) = (tmp_path / "work/tiny/runs").iterdir()
    assert (folder / "stderr.txt").read_text() == "note\n"
    assert (folder / "events.jsonl").read_text().splitlines() == lines


@pytest.mark.parametrize("name", ["SIGILL", "SIGABRT", "SIGKILL", "SIGSEGV"])
def test_signals_reach_us_as_exit_status(run_script: RunScript, name: str) -> None:
    number = int(signal.Signals[name])
    with pytest.raises(RunError) as caught:
        run_script(samples.script(samples.answer_lines([5])[:-1], after=f"kill -{number} $$; sleep 9"))
    assert caught.value.problems[0].code == f"run.{name.lower()}"
    assert f"exit status {128 + number}" in caught.value.problems[0].message


def test_program_whose_interpreter_is_missing(run_script: RunScript) -> None:
    with pytest.raises(RunError) as caught:
        run_script("#!/system/bin/no-such-shell\n")
    assert caught.value.problems[0].code == "run.cannot_start"


def test_timeout_ends_the_program_on_the_device(run_script: RunScript, device: AdbDevice) -> None:
    record = run_script(samples.script(samples.answer_lines([5, 6])[:-1], after="exec sleep 98765"), timeout_s=2)
    assert record.stop_reason == "timeout"
    assert record.tokens == (5, 6)
    assert gone(device, "98765")


@pytest.mark.known_failure("run-hangs")
def test_program_that_hangs_before_its_first_token_is_explained(run_script: RunScript, device: AdbDevice) -> None:
    with pytest.raises(RunError) as caught:
        run_script("#!/bin/sh\necho 'Backend XnnpackBackend is not registered'\nexec sleep 65432\n", timeout_s=2)
    problem = caught.value.problems[0]
    assert problem.code == "run.timeout"
    assert "XnnpackBackend is not registered" in problem.message
    assert "The build has XnnpackBackend" in (problem.hint or "")
    assert gone(device, "65432")


@pytest.mark.known_failure("run-library-damaged")
def test_program_whose_library_is_damaged_is_explained(run_script: RunScript) -> None:
    words = "error while loading shared libraries: /d/libx.so: invalid ELF header"
    with pytest.raises(RunError) as caught:
        run_script(f"#!/bin/sh\necho '{words}' >&2\nexit 127\n")
    problem = caught.value.problems[0]
    assert problem.code == "run.cannot_start"
    assert "/d/libx.so is no whole library: `etcli deploy " in (problem.hint or "")


def test_interrupt_ends_the_program_on_the_device(run_script: RunScript, device: AdbDevice) -> None:
    def press() -> None:
        for _ in range(300):
            if processes(device, "87654"):
                break
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(InterruptedByUser):
        run_script(samples.script(samples.answer_lines([5])[:-1], after="exec sleep 87654"))
    presser.join()
    assert gone(device, "87654")


def test_a_device_that_goes_away_in_the_middle(
    tmp_path: Path, device: AdbDevice, adb_server: AdbServer, run_script: RunScript
) -> None:
    cable = BreakingProxy(int(device.serial.rpartition(":")[2]))
    adb_server.connect(cable.serial, timeout=20)
    script = samples.script(samples.answer_lines([5, 6])[:-1], after="exec sleep 65432")
    tokens = 0

    def count(event: AnyEvent) -> None:
        nonlocal tokens
        tokens += isinstance(event, Token)
        if tokens == 2:
            cable.cut()

    try:
        with pytest.raises(DeviceError) as caught:
            run_script(script, on=AdbDevice(adb_server, cable.serial), on_event=count)
    finally:
        adb_server.forget(cable.serial)
        cable.close()
    (problem,) = caught.value.problems
    assert problem.code == "device.gone"
    assert "after 2 tokens" in problem.message
    (folder,) = (tmp_path / "work/tiny/runs").iterdir()
    assert str(folder) in (problem.hint or "")
    assert (folder / "events.jsonl").read_text().count('"token"') == 2
    assert gone(device, "65432")


def test_program_that_prints_without_end_is_stopped(
    run_script: RunScript, device: AdbDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etcli.run.capture._MOST_BYTES", 1 << 20)
    with pytest.raises(RunError) as caught:
        run_script("#!/bin/sh\nexec yes 76543-$(printf %0400d 0)\n")
    assert caught.value.problems[0].code == "run.too_much_output"
    assert gone(device, "76543")


def test_line_without_end_does_no_harm(run_script: RunScript) -> None:
    script = samples.script(samples.answer_lines([samples.STOP_ID]))
    record = run_script(script.replace("#!/bin/sh\n", "#!/bin/sh\nhead -c 3000000 /dev/zero | tr '\\0' x; echo\n", 1))
    assert record.tokens == (samples.STOP_ID,)


def test_runner_binary_of_the_users_own(run_script: RunScript, device: AdbDevice) -> None:
    script = samples.script(samples.answer_lines([samples.STOP_ID]))
    with pytest.raises(RunError, match="without a result"):
        run_script(script, runner_binary=Path(shutil.which("true") or "/bin/true"))
    path = "/data/local/tmp/etcli/tiny/.etcli-runner"
    assert device.shell(["stat", "-c", "%a", path]).stdout.strip() == "755"
    assert run_script(script).tokens == (samples.STOP_ID,), "the deployed one is still there"


def test_long_prompt_goes_through_a_file(
    run_script: RunScript, monkeypatch: pytest.MonkeyPatch, device: AdbDevice
) -> None:
    monkeypatch.setattr("etcli.run.runners.etcli_runner.LONGEST_PROMPT_ARGUMENT", 3)
    check = '#!/bin/sh\n[ "$(cat "$4")" = 3,4,5 ] || exit 1\n'
    lines = samples.answer_lines([samples.STOP_ID], prompt_tokens=3)
    record = run_script(samples.script(lines).replace("#!/bin/sh\n", check, 1), prompt="Hello world Tokyo")
    assert record.prompt_ids == (3, 4, 5)
    assert device.stat("/data/local/tmp/etcli/tiny/.etcli-prompt-ids") is None
