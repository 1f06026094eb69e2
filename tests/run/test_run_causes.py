"""From a failing run to its cause by the message alone, on devices of both protocols through a real adb server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import samples
from device_fixtures import MakeDevice

from etcli.common.errors import Problem, RunError, UsageError
from etcli.common.workspace import Workspace
from etcli.deploy.stage import DeployOptions, deploy
from etcli.device.adb import AdbDevice
from etcli.output.console import Console
from etcli.run.stage import RunOptions, run

START = """#!/bin/sh
printf '{"event": "start", "protocol": 1, "runner": "r", "version": "0", "executorch": "1.5.1", "pid": %d}\\n' $$
"""


@pytest.fixture(params=["new", "old"])
def device(virtual_device: MakeDevice, request: pytest.FixtureRequest) -> Iterator[AdbDevice]:
    device = virtual_device("x86_64", protocol=request.param)
    device.shell(["logcat", "-c"])
    yield device
    device.shell(["rm", "-rf", "/data/local/tmp/etcli"])


@pytest.fixture
def failing(tmp_path: Path, device: AdbDevice) -> Callable[..., Problem]:
    def call(script: str, **options: object) -> Problem:
        loaded = samples.make_recipe(tmp_path, run={"prompt": "Hello world", "chat": False})
        workspace = Workspace(tmp_path / "work", "tiny")
        samples.make_bundle(loaded, workspace)
        samples.make_build(loaded, workspace, runner=script)
        console = Console(verbosity=-1)
        deploy(loaded, workspace, device, DeployOptions(), console)
        with pytest.raises((RunError, UsageError)) as caught:
            run(loaded, workspace, device, replace(RunOptions(), **options), console)
        (problem,) = caught.value.problems
        return problem

    return call


def log_of(problem: Problem) -> str:
    """The log that was kept with a failed run."""
    assert problem.file is not None
    return (Path(problem.file).parent / "logcat.txt").read_text()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param(
            "Load failed: 34",
            ("ExecuTorch error 34 (0x22), AccessFailed", "etcli deploy"),
            marks=pytest.mark.known_failure("run-bare-error-codes"),
        ),
        pytest.param("Load failed: 20", ("error 20 (0x14), OperatorMissing", "operator's library")),
        pytest.param("Loading of method failed with error 0x21", ("error 33 (0x21), MemoryAllocationFailed", "memory")),
        pytest.param(
            "Program identifier 'ET13' != expected 'ET12'",
            ("another release of ExecuTorch",),
            marks=pytest.mark.known_failure("run-program-of-another-release"),
        ),
        pytest.param(
            "Backend XnnpackBackend is not registered, error 0x20",
            ("The build has XnnpackBackend", "--verify"),
            marks=pytest.mark.known_failure("run-backend-not-registered"),
        ),
    ],
)
def test_what_the_runtime_says_is_explained(failing: Callable[..., Problem], line: str, words: tuple[str, ...]) -> None:
    problem = failing(f'{START}echo "{line}" >&2\nexit 1\n')
    assert line in problem.message
    for word in words:
        assert word in (problem.hint or "")


def test_an_error_event_is_explained_too(failing: Callable[..., Problem]) -> None:
    line = samples.event("error", code="runner.load", message="Load failed: 48 (0x30)")
    problem = failing(START + samples.script([line], after="exit 3").removeprefix("#!/bin/sh\n"))
    assert problem.code == "runner.load"
    assert "DelegateInvalidCompatibility" in (problem.hint or "")


@pytest.mark.known_failure("run-prompt-beyond-cache")
def test_a_prompt_beyond_the_cache_never_reaches_the_device(failing: Callable[..., Problem], device: AdbDevice) -> None:
    problem = failing("#!/bin/sh\ntouch /data/local/tmp/etcli/ran\n", prompt="Hello " * samples.CACHE)
    assert problem.code == "run.prompt_too_long"
    assert f"{samples.CACHE} tokens" in problem.message
    assert f"{samples.CACHE - 1} tokens or fewer" in (problem.hint or "")
    assert device.stat("/data/local/tmp/etcli/ran") is None


@pytest.mark.known_failure("run-killed-for-memory")
def test_the_systems_word_about_a_process_that_it_killed(failing: Callable[..., Problem]) -> None:
    killer = "sh -c \"log -p i -t lowmemorykiller 'Kill etcli_llama_runner ('$$'), uid 2000, oom_score_adj 905 to free 4200000kB'; true\""
    other = "sh -c \"log -p i -t lowmemorykiller 'Kill com.example.mail (77), uid 10077'; true\""
    problem = failing(f"{START}{other}\n{killer}\nkill -KILL $$\nsleep 9\n")
    assert problem.code == "run.sigkill"
    assert "to free 4200000kB" in problem.message
    assert "com.example.mail" not in problem.message
    assert "com.example.mail" in log_of(problem)
    assert "Memory ran out" in (problem.hint or "")


@pytest.mark.known_failure("run-error-in-the-log-alone")
def test_what_was_only_said_to_the_log(failing: Callable[..., Problem]) -> None:
    """Errors of our process, and neither its chatter nor what others say."""
    problem = failing(
        f"{START}log -p d -t ExecuTorch 'a detail'\nlog -p e -t ExecuTorch 'Failed to open chunk_0.pte'\n"
        "sh -c \"log -p e -t Wifi 'no network'; true\"\nexit 1\n"
    )
    assert "The device's log says:\n  ExecuTorch: Failed to open chunk_0.pte" in problem.message
    assert "a detail" not in problem.message
    assert "no network" not in problem.message
    for words in ("a detail", "no network"):
        assert words in log_of(problem)
    assert "Check chunk_0.pte on the device" in (problem.hint or "")


@pytest.mark.known_failure("run-npu-session-refused")
def test_the_npus_service_is_heard(failing: Callable[..., Problem]) -> None:
    """It is another process, whose tag tells that it speaks of us."""
    problem = failing(
        f"{START}sh -c \"log -p e -t AdapterShimApi 'APU: failed to open session, permission denied'; true\"\nexit 1\n"
    )
    assert "AdapterShimApi: APU: failed to open session" in problem.message
    assert "does not let this program open the NPU" in (problem.hint or "")


def test_the_log_of_an_earlier_run_is_left_out(failing: Callable[..., Problem], device: AdbDevice) -> None:
    old = "01-01 00:00:00.000     7     7 E ExecuTorch: etcli_llama_runner of long ago"
    assert device.shell(["sh", "-c", f"echo '{old}' >> /data/local/.log"]).code == 0
    problem = failing(f"{START}log -p e -t ExecuTorch 'of today'\nexit 1\n")
    assert "of today" in problem.message
    assert "long ago" not in problem.message + log_of(problem)
