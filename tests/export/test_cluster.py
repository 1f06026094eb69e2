"""The same tasks on the workers of a Dask cluster: two processes on this machine."""

from __future__ import annotations

import concurrent.futures
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_export import Exported

from etcli.common.errors import CheckpointError, EtcliError, ExportError, ToolError, UsageError
from etcli.export import cluster as module
from etcli.export.cluster import Cluster, cluster_address
from etcli.export.job import TablesWork, Trouble, Troubles
from etcli.export.pool import Task

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def dask_cluster() -> Iterator[Any]:
    """A scheduler and two worker processes, all on loopback."""
    import dask

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
        ) as running,
    ):
        yield running


@pytest.fixture
def executor(dask_cluster: Any) -> str:
    return str(dask_cluster.scheduler_address).replace("tcp://", "dask://")


def test_addresses() -> None:
    assert cluster_address(None) is None
    assert cluster_address("local") is None
    assert cluster_address("dask://10.0.0.1:8786") == "tcp://10.0.0.1:8786"
    assert cluster_address("dask://[::1]:8786") == "tcp://[::1]:8786"
    for wrong in ("dask", "dask://", "dask://host", "tcp://host:1", "dask://host:1/x", "dask://a b:1"):
        with pytest.raises(UsageError, match="--executor") as caught:
            cluster_address(wrong)
        assert caught.value.problems[0].code == "export.executor"


def test_a_cluster_gives_the_bundle_that_this_machine_gives(exported: Exported, tmp_path: Path, executor: str) -> None:
    result = Exported(exported.document, type(exported.workspace)(tmp_path, "small"), exported.checkpoint).again(
        executor=executor
    )
    assert result.manifest == exported.manifest
    assert all(not chunk.reused and chunk.errors for chunk in result.chunks)


def run(address: str, root: Path, names: list[str], after: dict[str, tuple[str, ...]] | None = None) -> list[str]:
    finished: list[str] = []

    def begin(key: str) -> Path:
        folder = root / key
        folder.mkdir()
        return folder

    tasks = [
        Task(name, name, TablesWork(positions=1), 1, root / "logs" / f"{name}.log", (after or {}).get(name, ()))
        for name in names
    ]
    place = cluster_address(address)
    assert place is not None
    cluster = Cluster(
        place,
        root,
        workspace=root,
        begin=begin,
        finished=lambda task: finished.append(task.key),
        advance=lambda _: None,
    )
    try:
        cluster.run(tasks)
    except BaseException as error:
        error.finished = finished  # type: ignore[attr-defined]
        raise
    return finished


@pytest.fixture
def scripted(dask_cluster: Any, tmp_path: Path) -> Iterator[None]:
    """On the cluster's workers, a task runs the script `NAME.py` beside its folder."""

    def use(folder: str) -> None:
        from etcli.export import remote

        body = (
            "import os, runpy, signal, sys; from pathlib import Path; folder = Path(sys.stdin.readline().rstrip());"
            f"runpy.run_path(str(Path({folder!r}) / (folder.name + '.py')), {{'folder': folder}})"
        )
        remote.command = lambda: [sys.executable, "-c", body]

    def restore() -> None:
        from etcli.export import remote, worker

        remote.command = worker.command

    with distributed.Client(dask_cluster, set_as_default=False) as client:
        client.run(use, str(tmp_path))
        yield
        client.run(restore)


@pytest.mark.usefixtures("scripted")
def test_order_failures_and_kills_are_as_on_this_machine(tmp_path: Path, executor: str) -> None:
    (tmp_path / "graph.py").write_text("import time; time.sleep(0.5); (folder / 'made').touch()")
    (tmp_path / "chunk.py").write_text("assert (folder.parent / 'graph' / 'made').exists()")
    assert run(executor, tmp_path, ["chunk", "graph"], {"chunk": ("graph",)}) == ["graph", "chunk"]

    error = CheckpointError("bad tensor", code="checkpoint.truncated", hint="again", file="model.gguf", line=3)
    text = module_troubles(error)
    (tmp_path / "wrong.py").write_text(f"import sys; (folder / 'troubles.json').write_text({text!r}); sys.exit(5)")
    with pytest.raises(EtcliError) as caught:
        run(executor, tmp_path, ["wrong"])
    assert caught.value.problems == error.problems

    (tmp_path / "shot.py").write_text("import os; print('@step lower', flush=True); os.kill(os.getpid(), 9)")
    with pytest.raises(ExportError, match=r"worker of shot was killed by SIGKILL.* at step lower"):
        run(executor, tmp_path, ["shot"])

    (tmp_path / "broken.py").write_text("raise ValueError('no such thing')")
    with pytest.raises(ExportError, match="ValueError: no such thing"):
        run(executor, tmp_path, ["broken"])
    assert "Traceback" in (tmp_path / "logs" / "broken.log").read_text()


@pytest.mark.usefixtures("scripted")
def test_an_interrupt_ends_what_runs_there(tmp_path: Path, executor: str) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.py").write_text(
            "import os, time; (folder / 'pid').write_text(str(os.getpid())); time.sleep(60)"
        )

    def interrupt(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    watcher = threading.Thread(target=_alarm_when, args=(lambda: len(list(tmp_path.glob("*/pid"))) == 2,))
    watcher.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(executor, tmp_path, ["a", "b", "c"])
    finally:
        signal.signal(signal.SIGALRM, before)
        watcher.join()
    pids = [int(path.read_text()) for path in tmp_path.glob("*/pid")]
    assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.usefixtures("scripted")
def test_a_dask_worker_that_dies_is_named_with_its_chunk(tmp_path: Path, executor: str) -> None:
    (tmp_path / "chunk 7.py").write_text("import os, time; os.kill(os.getppid(), 9); time.sleep(60)")
    with pytest.raises(ExportError, match="the Dask worker of chunk 7 died") as caught:
        run(executor, tmp_path, ["chunk 7"])
    assert caught.value.problems[0].code == "export.worker_killed"


def test_workers_that_do_not_fit_are_refused_before_work(
    tmp_path: Path, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "all_versions", lambda: {"etcli": "9", "executorch": "1.0", "torch": "2.0"})
    monkeypatch.setattr(module, "program_code_sha256", lambda: "0")
    with pytest.raises(EtcliError) as caught:
        Cluster(
            str(cluster_address(executor)),
            tmp_path / "nowhere",
            workspace=tmp_path,
            begin=Path,
            finished=lambda _: None,
            advance=lambda _: None,
        ).run([])
    text = str(caught.value)
    assert "has etcli" in text
    assert "here it is etcli 9, executorch 1.0, torch 2.0" in text
    assert "other code of etcli" in text
    assert f"does not see the checkpoint {tmp_path / 'nowhere'}" in text
    assert {problem.code for problem in caught.value.problems} == {"export.cluster_workers"}
    assert not list(tmp_path.iterdir())


def test_a_worker_that_cannot_look_is_named(tmp_path: Path, executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose Python has no etcli."""
    monkeypatch.setattr(module, "look", _no_such_module)
    with pytest.raises(EtcliError, match="cannot make chunks: ModuleNotFoundError") as caught:
        run(executor, tmp_path, [])
    assert {problem.code for problem in caught.value.problems} == {"export.cluster_workers"}
    assert "Install etcli" in str(caught.value.problems[0].hint)


def _no_such_module(*_arguments: object) -> None:
    raise ModuleNotFoundError("No module named 'etcli'")


def test_a_scheduler_that_goes_away_is_named_without_tracebacks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Lost:
        def result(self) -> None:
            raise concurrent.futures.CancelledError("scheduler-connection-lost")

    cluster = Cluster(
        "tcp://127.0.0.1:9",
        tmp_path,
        workspace=tmp_path,
        begin=Path,
        finished=lambda _: None,
        advance=lambda _: None,
    )
    task = Task("a", "chunk 7", TablesWork(positions=1), 1, tmp_path / "a.log")
    with pytest.raises(ExportError, match=r"the Dask scheduler at tcp://127.0.0.1:9 was lost while chunk 7") as caught:
        cluster._collect(Lost(), task, tmp_path)
    assert caught.value.problems[0].code == "export.cluster_lost"
    with module._quiet():
        logging.getLogger("distributed.client").error("Traceback")
    assert not caplog.records
    logging.getLogger("distributed.client").error("again")
    assert [record.message for record in caplog.records] == ["again"]


def test_no_scheduler_and_no_package_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CONNECT_SECONDS", 0.5)
    with pytest.raises(ToolError, match="no Dask scheduler answers") as caught:
        run("dask://127.0.0.1:9", tmp_path, ["a"])
    assert caught.value.exit == 3
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ToolError, match="not installed") as caught:
        run("dask://127.0.0.1:9", tmp_path, ["a"])
    assert "etcli[cluster]" in str(caught.value.problems[0].hint)


def module_troubles(error: EtcliError) -> str:

    return Troubles(problems=tuple(Trouble.of(problem) for problem in error.problems)).to_text()


def _alarm_when(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGALRM)
