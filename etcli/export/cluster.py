"""`--executor dask://HOST:PORT`: the tasks of an export on the workers of a Dask cluster, for models and machines that outgrow this one.

Each task is the process that the local pool would start, beside the Dask worker that was given it. The cluster's machines must see the
checkpoint and the workspace under the same paths, and have the same etcli, torch and ExecuTorch: both are asked first.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from etcli.common.errors import EtcliError, ExportError, Problem, ToolError, UsageError
from etcli.common.files import remove_tree
from etcli.export.failures import failure
from etcli.export.inputs import all_versions, program_code_sha256
from etcli.export.job import Job
from etcli.export.pool import Task
from etcli.export.remote import STOP, Seen, do_job, look

SCHEME = "dask://"
_CONNECT_SECONDS = 10
_LEAVE_SECONDS = 10


def cluster_address(executor: str | None) -> str | None:
    """The scheduler's address as Dask writes it; None where the export is to run on this machine.

    Raises:
        UsageError: `export.executor`.
    """
    if executor is None or executor == "local":
        return None
    match = re.fullmatch(re.escape(SCHEME) + r"(?P<place>(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5})", executor)
    if match is None:
        raise UsageError(
            f"--executor: {executor!r} is not a place where chunks can be made",
            code="export.executor",
            hint="Use local, or dask://HOST:PORT with the address of a Dask scheduler, as dask://127.0.0.1:8786.",
        )
    return f"tcp://{match['place']}"


class Cluster:
    """A Dask cluster in the place of a `Pool`.

    Args:
        address: of its scheduler, as `cluster_address` gives it.
        checkpoint, adapter, begin, finished, advance: as for `Pool`.
        workspace: a folder that the workers must see, and may write into.
    """

    def __init__(
        self,
        address: str,
        checkpoint: Path,
        *,
        adapter: Path | None = None,
        workspace: Path,
        begin: Callable[[str], Path],
        finished: Callable[[Task], None],
        advance: Callable[[float], None],
    ) -> None:
        self._address, self._checkpoint, self._adapter, self._workspace = address, checkpoint, adapter, workspace
        self._begin, self._finished, self._advance = begin, finished, advance

    def run(self, tasks: Sequence[Task]) -> None:
        """Do all tasks, as `Pool.run` does.

        Raises:
            ToolError: `export.no_dask`, the package is not installed; `export.cluster_unreachable`, no scheduler answers or it has no workers.
            ExportError: `export.cluster_workers`, a worker does not see what it must or has other versions; and what `Pool.run` raises.
        """
        with _connected(self._address) as client:
            self._check_workers(client)
            self._do(client, tasks)

    def _check_workers(self, client: Any) -> None:
        """Ask every worker what it sees, before any work."""
        probe, word = self._workspace / f".probe-{secrets.token_hex(4)}", secrets.token_hex(16)
        probe.write_text(word)
        try:
            # a worker without etcli, or with a much older one, answers with an exception
            found: dict[str, Seen | Exception] = client.run(
                look, str(self._checkpoint), str(probe), tuple(all_versions()), on_error="return"
            )
        finally:
            remove_tree(probe)
        if not found:
            raise ToolError(
                f"the Dask scheduler at {self._address} has no workers",
                code="export.cluster_unreachable",
                hint=f"Start some: dask worker {self._address}",
            )
        problems = [problem for name, seen in sorted(found.items()) for problem in self._problems(name, seen, word)]
        if problems:
            raise EtcliError.many(problems)

    def _problems(self, name: str, seen: Seen | Exception, word: str) -> Iterator[Problem]:
        own = all_versions()
        if isinstance(seen, Exception):
            yield ExportError.problem(
                f"the Dask worker {name} cannot make chunks: {type(seen).__name__}: {seen}",
                code="export.cluster_workers",
                hint=f"Install etcli {own['etcli']} there, with its export extras, in the Python that runs dask worker.",
            )
            return
        others = {package: version for package, version in seen["versions"].items() if own.get(package) != version}
        if others:
            theirs = ", ".join(f"{package} {version or 'missing'}" for package, version in sorted(others.items()))
            ours = ", ".join(f"{package} {own[package]}" for package in sorted(others))
            yield ExportError.problem(
                f"the Dask worker {name} on {seen['host']} has {theirs}; here it is {ours}",
                code="export.cluster_workers",
                hint="Install the same versions there: the bytes of a bundle depend on them.",
            )
        if seen["code"] != program_code_sha256():
            yield ExportError.problem(
                f"the Dask worker {name} on {seen['host']} has other code of etcli {own['etcli']}",
                code="export.cluster_workers",
                hint="Install the same build of etcli there.",
            )
        if seen["word"] != word:
            yield ExportError.problem(
                f"the Dask worker {name} on {seen['host']} does not see the workspace {self._workspace}",
                code="export.cluster_workers",
                hint="Put the workspace into a folder that all machines share under the same path (--workspace).",
            )
        if not seen["checkpoint"]:
            yield ExportError.problem(
                f"the Dask worker {name} on {seen['host']} does not see the checkpoint {self._checkpoint}",
                code="export.cluster_workers",
                hint="Put it into a folder that all machines share under the same path (model.source), or the cache folder: ETCLI_CACHE_DIR.",
            )

    def _do(self, client: Any, tasks: Sequence[Task]) -> None:
        from distributed import as_completed

        waiting, ended = list(tasks), set[str]()
        running: dict[Any, tuple[Task, Path]] = {}
        done = as_completed(loop=client.loop)
        try:
            while waiting or running:
                for task in [task for task in waiting if ended.issuperset(task.after)]:
                    waiting.remove(task)
                    future, folder = self._submitted(client, task)
                    running[future] = (task, folder)
                    done.add(future)
                future = self._next(done)
                if future is not None:
                    task, folder = running.pop(future)
                    self._collect(future, task, folder)
                    ended.add(task.key)
                    self._advance(1)
                    self._finished(task)
        finally:
            self._stop(client, running)

    def _next(self, done: Any) -> Any:
        """The next future that is done, None where there is none yet."""
        if not done.has_ready():
            time.sleep(0.2)
            self._advance(0)  # a sign of life
        return next(done) if done.has_ready() else None

    def _submitted(self, client: Any, task: Task) -> tuple[Any, Path]:
        folder = self._begin(task.key)
        adapter = None if self._adapter is None else str(self._adapter)
        Job(parent=0, checkpoint=str(self._checkpoint), adapter=adapter, threads=1, work=task.work).write(
            folder / Job.FILE
        )
        name = f"{task.title} {secrets.token_hex(4)}"
        return client.submit(do_job, str(folder), str(task.log), key=name, pure=False, retries=0), folder

    def _collect(self, future: Any, task: Task, folder: Path) -> None:
        from distributed.scheduler import KilledWorker

        try:
            ended = future.result()
        except KilledWorker as error:
            raise ExportError(
                f"the Dask worker of {task.title} died, as did those that tried after it: {error}",
                code="export.worker_killed",
                hint="It may have wanted more memory than it had: use more chunks (export.chunks) or larger workers (--memory-limit). "
                "Finished chunks are kept.",
            ) from None
        except concurrent.futures.CancelledError:
            raise ExportError(
                f"the connection to the Dask scheduler at {self._address} was lost while {task.title} was made",
                code="export.cluster_lost",
                hint="See the scheduler's own output, start it again, and run the same command: finished chunks are kept.",
            ) from None
        except Exception as error:
            raise ExportError(
                f"{task.title} failed on the cluster: {type(error).__name__}: {error}",
                code="export.worker_failed",
                hint=f"Its output, if it got so far, is in {task.log}. Finished chunks are kept.",
            ) from error
        if ended is not None:
            raise failure(task.title, ended)

    def _stop(self, client: Any, running: dict[Any, tuple[Task, Path]]) -> None:
        """End what still runs: a task ends at the sight of a file, one that has not begun does so at once."""
        for _, folder in running.values():
            with contextlib.suppress(OSError):
                (folder / STOP).touch()
        deadline = time.monotonic() + _LEAVE_SECONDS
        while not all(future.done() for future in running) and time.monotonic() < deadline:
            time.sleep(0.1)
        with contextlib.suppress(Exception):  # the cluster may be gone
            client.cancel(list(running))


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Any]:
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise ToolError(
            "--executor dask:// needs the package distributed, which is not installed",
            code="export.no_dask",
            hint="Run: pip install 'etcli[cluster]'",
        ) from None
    with _quiet():
        yield from _client(address, Client)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Within the block Dask logs nothing: of a lost connection it prints tracebacks, and what they come to is an error of ours."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _client(address: str, connect: Callable[..., Any]) -> Iterator[Any]:
    try:
        client = connect(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise ToolError(
            f"no Dask scheduler answers at {address}: {error}",
            code="export.cluster_unreachable",
            hint="Start one with: dask scheduler --host 127.0.0.1 --port 8786. Check host, port and firewall.",
        ) from None
    try:
        yield client
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=_LEAVE_SECONDS)
