"""Workers that fail, are killed or have to stop. Most here are scripts in the place of real ones."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_export import Exported, small_document, start_export

from etcli.common.errors import CheckpointError, EtcliError, ExportError, InterruptedByUser, ToolError
from etcli.common.workspace import Workspace
from etcli.export import pool
from etcli.export.job import STEPS, LowerWork, TablesWork, Trouble, Troubles, step_words
from etcli.export.pool import Pool, Task, check_memory, fitting
from etcli.output.console import Console

Scripted = Callable[[dict[str, str]], None]


SCRIPTED = """
import os, signal, sys, time
from pathlib import Path
scripts = {scripts!r}
for line in sys.stdin:
    folder = Path(line.rstrip())
    exec(scripts[folder.name])
    print("@last" if "leave" in scripts[folder.name] else "@done", flush=True)
    if "leave" in scripts[folder.name]:
        break
"""


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Replaces workers by Python scripts, chosen by the name of a task's folder; `folder` is that."""

    def use(scripts: dict[str, str]) -> None:
        monkeypatch.setattr(pool, "command", lambda *_: [sys.executable, "-c", SCRIPTED.format(scripts=scripts)])

    return use


def run(
    tmp_path: Path,
    names: list[str],
    jobs: int = 2,
    *,
    after: dict[str, tuple[str, ...]] | None = None,
    memory: dict[str, int] | None = None,
) -> list[str]:
    """Runs a task a name; returns the names that finished, in that order."""
    finished: list[str] = []

    def begin(key: str) -> Path:
        folder = tmp_path / key
        folder.mkdir()
        return folder

    tasks = [
        Task(
            name,
            name,
            TablesWork(positions=1),
            (memory or {}).get(name, 1),
            tmp_path / "logs" / f"{name}.log",
            (after or {}).get(name, ()),
        )
        for name in names
    ]
    parts: list[float] = []
    workers = Pool(
        jobs,
        tmp_path,
        memory_bytes=100,
        begin=begin,
        finished=lambda task: finished.append(task.key),
        advance=parts.append,
    )
    try:
        workers.run(tasks)
        assert sum(parts) == pytest.approx(len(names))
    except BaseException as error:
        error.finished = finished  # type: ignore[attr-defined]
        raise
    return finished


@pytest.fixture
def new_children() -> Callable[[], list[psutil.Process]]:
    """Gives the living children that this process has got since the test began; virtual devices of other tests are older ones."""

    def living() -> set[psutil.Process]:
        return {child for child in psutil.Process().children(recursive=True) if child.is_running()}

    before = living()
    return lambda: [child for child in living() - before if child.status() != psutil.STATUS_ZOMBIE]


def test_all_tasks_run_at_most_so_many_at_once(tmp_path: Path, scripted: Scripted) -> None:
    crowd = "".join(
        (
            "here = folder.parent / f'at-{folder.name}'; here.touch(); time.sleep(0.3)\n",
            "count = len(list(folder.parent.glob('at-*'))); here.unlink()\n",
            "print('@step write'); assert count <= 2\n",
        )
    )
    names = [f"n{index}" for index in range(5)]
    scripted(dict.fromkeys(names, crowd))
    assert sorted(run(tmp_path, names)) == names


def test_what_is_under_way_is_said(tmp_path: Path, scripted: Scripted) -> None:
    scripted({"chunk 0": "print('@step write', flush=True); time.sleep(0.4)"})
    said: list[str] = []

    def begin(key: str) -> Path:
        folder = tmp_path / key
        folder.mkdir()
        return folder

    task = Task("chunk 0", "chunk 0", TablesWork(positions=1), 1, tmp_path / "log")
    Pool(1, tmp_path, begin=begin, finished=lambda _: None, advance=lambda _: None, doing=said.append).run([task])
    assert said == ["chunk 0: starting", "chunk 0: writing"]


@pytest.mark.parametrize(("step", "words"), [("lower", "lowering"), ("compile a_1t32c_0", "compiling a_1t32c_0")])
def test_every_step_has_words(step: str, words: str) -> None:
    assert step_words(step) == words
    assert all(step_words(name) != name for steps in STEPS.values() for name in steps)


@pytest.mark.known_failure("export-killed-for-memory")
def test_killed_worker_is_named_with_its_memory(
    tmp_path: Path,
    scripted: Scripted,
    new_children: Callable[[], list[psutil.Process]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kills = iter([3])
    monkeypatch.setattr(pool, "oom_kills", lambda: next(kills, 4))
    body = "print('@step lower', flush=True); time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)"
    scripted({"chunk 3": body, "other": "time.sleep(60)", "first": "pass"})
    with pytest.raises(ExportError) as caught:
        run(tmp_path, ["first", "chunk 3", "other"])
    (problem,) = caught.value.problems
    assert problem.code == "export.worker_killed"
    assert "chunk 3 was killed by SIGKILL, out of memory (likely): it held at least 0.0" in problem.message
    assert "at step lower" in problem.message
    assert "--jobs 1" in str(problem.hint)
    assert str(tmp_path / "logs" / "chunk 3.log") in str(problem.hint)
    assert caught.value.finished == ["first"]  # type: ignore[attr-defined]
    assert new_children() == []


def test_a_worker_killed_by_somebody_is_not_called_out_of_memory(tmp_path: Path, scripted: Scripted) -> None:
    scripted({"a": "os.kill(os.getpid(), signal.SIGKILL)"})
    with pytest.raises(ExportError, match="killed by SIGKILL, not for want of memory as it seems") as caught:
        run(tmp_path, ["a"])
    assert "--jobs" not in str(caught.value.problems[0].hint)


def test_crashed_worker_is_not_called_out_of_memory(tmp_path: Path, scripted: Scripted) -> None:
    scripted({"a": "os.kill(os.getpid(), signal.SIGSEGV)"})
    with pytest.raises(ExportError, match="killed by SIGSEGV") as caught:
        run(tmp_path, ["a"])
    assert "memory" not in caught.value.problems[0].message


def test_failed_worker_tells_its_last_words_and_keeps_its_log(tmp_path: Path, scripted: Scripted) -> None:
    scripted({"a": "print('a detail')\nraise ValueError('no such thing')"})
    with pytest.raises(ExportError, match=r"exit status 1\): ValueError: no such thing") as caught:
        run(tmp_path, ["a"])
    assert caught.value.problems[0].code == "export.worker_failed"
    log = (tmp_path / "logs" / "a.log").read_text()
    assert "a detail" in log
    assert "Traceback" in log


def test_a_log_that_cannot_be_written_costs_only_the_log(tmp_path: Path, scripted: Scripted) -> None:
    # More than a pipe holds: a reader that gave up would leave the worker waiting for ever.
    scripted({"a": "print('x' * 99, flush=True)\nfor _ in range(5000): print('y' * 99)\nprint('@step lower')"})
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").symlink_to("/dev/full")
    assert run(tmp_path, ["a"]) == ["a"]


def test_a_disk_too_full_even_for_the_report_is_named(tmp_path: Path, scripted: Scripted) -> None:
    scripted({"a": "raise OSError(28, 'No space left on device')"})
    with pytest.raises(ExportError, match="no space left") as caught:
        run(tmp_path, ["a"])
    assert caught.value.problems[0].code == "export.no_space"


def test_workers_problems_keep_their_exit_code(tmp_path: Path, scripted: Scripted) -> None:
    error = CheckpointError("bad tensor", code="checkpoint.truncated", hint="again", file="model.gguf", line=3)
    text = Troubles(problems=tuple(Trouble.of(problem) for problem in error.problems)).to_text()
    scripted({"a": f"(folder / 'troubles.json').write_text({text!r}); sys.exit(5)"})
    with pytest.raises(EtcliError) as caught:
        run(tmp_path, ["a"])
    assert caught.value.problems == error.problems
    assert caught.value.exit == 5


def test_a_broken_report_of_problems_is_still_a_clear_failure(tmp_path: Path, scripted: Scripted) -> None:
    scripted({"a": "(folder / 'troubles.json').write_text('{'); sys.exit('gave up')"})
    with pytest.raises(ExportError, match="gave up"):
        run(tmp_path, ["a"])


def test_an_interrupt_ends_workers_and_their_children(
    tmp_path: Path, scripted: Scripted, new_children: Callable[[], list[psutil.Process]]
) -> None:
    nest = "import subprocess; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60)"
    scripted({"a": nest, "b": nest})
    started = time.monotonic()

    def interrupt(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, ["a", "b"])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - started < 50
    assert new_children() == []


@pytest.mark.known_failure("export-killed-for-memory")
def test_jobs_fit_memory_and_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (100, 300, 200)
    monkeypatch.setattr(pool, "usable_cores", lambda: 8)
    for available, jobs in ((50, 1), (350, 1), (550, 2), (600, 3), (10**9, 3)):
        monkeypatch.setattr(pool, "available_bytes", lambda available=available: available)
        assert fitting(sizes) == jobs
    monkeypatch.setattr(pool, "usable_cores", lambda: 2)
    assert fitting(sizes) == 2


def test_memory_that_does_not_suffice_is_told_before_work(tmp_path: Path) -> None:
    tasks = [Task(str(size), f"chunk {size}", TablesWork(positions=1), size, tmp_path) for size in (300, 200, 200)]
    console = Console(verbosity=-1)
    check_memory(tasks, 2, 500, console, chosen=False)
    assert not console.warnings
    check_memory(tasks, 2, 499, console, chosen=True)
    assert [warning.code for warning in console.warnings] == ["export.memory"]
    with pytest.raises(ExportError, match="chunk 300 needs about 300 B of memory, 299 B are available") as caught:
        check_memory(tasks, 1, 299, console, chosen=False)
    assert "export.chunks" in str(caught.value.problems[0].hint)
    check_memory(tasks, 1, 299, console, chosen=True)


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        children = psutil.Process(process.pid).children()
        return [child for child in children if "etcli.export.worker" in child.cmdline()]
    except psutil.Error:
        return []


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_export_leaves_no_worker_and_no_bundle(
    small_checkpoint: Path, tmp_path: Path, how: signal.Signals
) -> None:
    root = tmp_path / "workspace"
    process = start_export(small_document(small_checkpoint), root)
    wait_for(lambda: len(workers_of(process)) == 2, process)
    workers = workers_of(process)
    process.send_signal(how)
    _, errors = process.communicate()
    assert process.returncode != 0
    if how == signal.SIGINT:
        assert "InterruptedByUser" in errors
    gone, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive
    assert len(gone) == 2
    assert not (root / "small" / "bundle").exists()


@pytest.mark.parametrize("victim", ["export", "worker"])
def test_an_export_killed_in_the_middle_goes_on(
    small_checkpoint: Path, exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    """What was lowered before is not lowered again, and the bundle is the one that an undisturbed export gives."""
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    document, root = small_document(small_checkpoint), tmp_path / "workspace"
    process = start_export(document, root)
    wait_for(lambda: bool(list((tmp_path / "cache" / "templates").glob("*.template"))), process)
    if victim == "export":
        process.kill()
    while (
        victim == "worker" and process.poll() is None
    ):  # one that has just finished is replaced by one that is hit at work
        for worker in workers_of(process):
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
        time.sleep(0.05)
    _, errors = process.communicate()
    assert process.returncode != 0
    if victim == "worker":
        assert "export.worker_killed" in errors or "SIGKILL" in errors
    lowered: list[str] = []
    run_tasks = Pool.run

    def watched(self: Pool, tasks: Sequence[Task]) -> None:
        lowered.extend(task.title for task in tasks if isinstance(task.work, LowerWork))
        run_tasks(self, tasks)

    monkeypatch.setattr(Pool, "run", watched)
    again = Exported(document, type(exported.workspace)(root, "small"), small_checkpoint)
    assert again.again().manifest == exported.manifest
    assert len(lowered) <= 1


@pytest.mark.known_failure("export-missing-chunk")
def test_interrupted_export_goes_on(small_checkpoint: Path, exported: Exported, tmp_path: Path) -> None:
    """Chunks named by --only-chunks stay finished; the next export makes the rest, and the bundle is the same."""
    partial = Exported(small_document(small_checkpoint), type(exported.workspace)(tmp_path, "small"), small_checkpoint)
    result = partial.again(only_chunks=(1,))
    assert result.manifest is None
    assert result.missing_chunks == (0,)
    assert not partial.bundle.exists()
    result = partial.again()
    assert {chunk.index: chunk.reused for chunk in result.chunks} == {0: False, 1: True}
    assert result.manifest == exported.manifest


def test_interrupt_is_reported_with_what_to_do(copied: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Pool, "run", stop)
    before = copied.manifest
    with pytest.raises(InterruptedByUser) as caught:
        copied.again(force=True)
    assert caught.value.exit == 130
    assert copied.manifest == before


def test_too_little_space_is_told_before_work(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(ExportError, match="are free") as caught:
        Exported(exported.document, type(exported.workspace)(tmp_path, "small"), exported.checkpoint).again()
    assert caught.value.problems[0].code == "export.no_space"


def test_a_worker_does_not_outlive_its_parent(tmp_path: Path) -> None:
    """A job whose parent is another process than the one that started it is not done."""
    from etcli.export.job import Job
    from etcli.export.worker import command

    Job(parent=os.getppid(), checkpoint=str(tmp_path), threads=1, work=TablesWork(positions=1)).write(
        tmp_path / Job.FILE
    )
    assert subprocess.run(command(), input=f"{tmp_path}\n", text=True).returncode == signal.SIGTERM


def test_workers_import_the_real_torch_and_wait_without_spinning(
    copied: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the user's that is named as a package is, and threads that leave the cores to other workers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    (tmp_path / "torch.py").write_text("raise SystemExit(9)")
    started: list[dict[str, str]] = []
    start = pool.start

    def watched(*arguments: Any, env: dict[str, str], **options: Any) -> Any:
        started.append(env)
        return start(*arguments, env=env, **options)

    monkeypatch.setattr(pool, "start", watched)
    assert copied.again(force=True, jobs=1).manifest == copied.manifest
    assert {env["OMP_WAIT_POLICY"] for env in started} == {"PASSIVE"}


def test_what_verification_runs_is_compiled_before_anything_is_lowered(
    small_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    begun: list[object] = []
    monkeypatch.setattr(Pool, "run", lambda _self, tasks: begun.append(tasks))
    ring = Exported(
        small_document(small_checkpoint, cache="ring"), Workspace(tmp_path / "work", "small"), small_checkpoint
    )
    with pytest.raises(ToolError) as caught:
        ring.again()
    assert caught.value.exit == 3
    assert "--no-verify" in str(caught.value.problems[0].hint)
    assert begun == []
