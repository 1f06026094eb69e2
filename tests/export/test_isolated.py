"""A worker process: its events, its result, and every way in which it can fail, as its parent sees them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from etcli.common.errors import CheckpointError, EtcliError, ExitCode, ExportError
from etcli.export.isolated import run_isolated


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """`run(body, **job)` runs a worker whose `work(job, send)` has this body; what it sent is in `run.events`, `run.lines`."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run_body(body: str, **job: Any) -> dict[str, Any]:
        (tmp_path / "worker_under_test.py").write_text(
            "import ctypes, os, sys, time\nfrom pathlib import Path\n"
            "from etcli.common.errors import CheckpointError, EtcliError, ExportError\n"
            "from etcli.export.isolated import isolated_main\n"
            f"def work(job, send):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
            "if __name__ == '__main__':\n    sys.exit(isolated_main(work, sys.argv))\n"
        )
        return run_isolated(
            "worker_under_test",
            job,
            title="the worker",
            on_event=run_body.events.append,
            on_line=run_body.lines.append,
            memory_hint="free some memory",
        )

    run_body.events, run_body.lines = [], []
    return run_body


def test_job_events_and_result_pass_through(run) -> None:
    result = run("send({'event': 'half', 'of': job['number']})\nreturn {'double': 2 * job['number']}", number=21)
    assert run.events == [{"event": "half", "of": 21}]
    assert result["double"] == 42


def test_whatever_libraries_print_does_not_disturb_the_events(run) -> None:
    result = run(
        """
        print('noise')
        os.write(1, b'{"event": "result", "forged": true}')
        os.system('echo from a child')
        send({'event': 'ok'})
        sys.stderr.write('x' * 300000)
        return {'right': 1}
        """
    )
    assert result == {"event": "result", "right": 1}
    assert run.events == [{"event": "ok"}]


def test_problems_keep_class_place_and_exit_codes(run) -> None:
    with pytest.raises(CheckpointError) as caught:
        run(
            """
            raise EtcliError.many([
                ExportError.problem('later', code='export.x'),
                CheckpointError.problem('torn', code='checkpoint.x', hint='fetch it', file=Path('/m/f'), line=3),
            ])
            """
        )
    late, torn = caught.value.problems
    assert (late.code, late.exit_code, late.file) == ("export.x", ExitCode.EXPORT, None)
    assert (torn.message, torn.hint, torn.place) == ("torn", "fetch it", "/m/f:3")
    assert caught.value.exit is ExitCode.CHECKPOINT


@pytest.mark.parametrize(
    "body", ["raise MemoryError", "raise RuntimeError('DefaultCPUAllocator: can\\'t allocate memory: you tried')"]
)
def test_a_failed_allocation_is_named(run, body: str) -> None:
    with pytest.raises(ExportError, match="memory ran out") as caught:
        run(body)
    assert caught.value.problems[0].code == "export.out_of_memory"


def test_a_killed_worker_is_named_with_the_likely_cause(run) -> None:
    with pytest.raises(ExportError, match=r"SIGKILL.*memory") as caught:
        run("os.kill(os.getpid(), 9)")
    problem = caught.value.problems[0]
    assert (problem.code, problem.hint) == ("export.worker_killed", "free some memory")


def test_a_crashed_worker_is_named_by_its_signal(run) -> None:
    with pytest.raises(ExportError, match="SIGSEGV"):
        run("os.kill(os.getpid(), 11)")


def test_a_worker_killed_in_the_middle_of_a_line(run) -> None:
    with pytest.raises(ExportError, match="SIGKILL"):
        run(
            "send.__closure__[0].cell_contents.write('{\"event\": '); send.__closure__[0].cell_contents.flush(); os.kill(os.getpid(), 9)"
        )


def test_an_unexpected_exception_gives_its_last_line_and_the_rest_on_request(run) -> None:
    with pytest.raises(ExportError, match="ZeroDivisionError") as caught:
        run("1 / 0")
    assert caught.value.problems[0].code == "export.worker_failed"
    assert any("Traceback" in line for line in run.lines)


def test_a_result_followed_by_a_crash_is_no_result(run) -> None:
    with pytest.raises(ExportError, match="exit status 7"):
        run("import atexit; atexit.register(os._exit, 7); return {'right': 1}")


def test_an_interrupted_parent_leaves_no_worker(run) -> None:
    pids: list[int] = []

    def interrupt(event: dict[str, Any]) -> None:
        pids.append(event["pid"])
        raise KeyboardInterrupt

    run.events = type("Events", (), {"append": staticmethod(interrupt)})
    with pytest.raises(KeyboardInterrupt):
        run("send({'event': 'up', 'pid': os.getpid()})\ntime.sleep(600)")
    assert not Path(f"/proc/{pids[0]}").exists()


def test_a_killed_parent_leaves_no_worker(run, tmp_path: Path) -> None:
    run("return {}")
    (tmp_path / "worker_under_test.py").write_text(
        (tmp_path / "worker_under_test.py")
        .read_text()
        .replace("return {}", "send({'pid': os.getpid(), 'event': 'up'}); time.sleep(600)")
    )
    program = """if True:
        from etcli.export.isolated import run_isolated
        tell = lambda event: print(event["pid"], flush=True)
        run_isolated("worker_under_test", {}, title="w", on_event=tell, on_line=print, memory_hint="")
    """
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        assert worker.is_running()
        parent.kill()
    psutil.wait_procs([worker], timeout=30)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE


def test_a_module_in_the_users_folder_is_not_taken_for_a_library(run, tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "textwrap.py").write_text("raise SystemExit('taken')")
    monkeypatch.chdir(folder)
    assert run("import textwrap; return {'from': textwrap.__file__}")["from"] != str(folder / "textwrap.py")


@pytest.mark.known_failure("export-nothing-made")
def test_an_end_without_a_result_is_a_failure_whatever_the_exit_status(run) -> None:
    with pytest.raises(EtcliError, match="without a result"):
        run("os._exit(0)")
