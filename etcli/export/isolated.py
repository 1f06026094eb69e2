"""Work that needs torch, done in a process of its own: a job in, events out, failures as errors of this process.

The worker is `python -m MODULE JOB.json`; it writes one JSON object a line to its stdout: any number of events, at last either
`{"event": "result", ...}` or `{"event": "error", "problems": [...]}`. What libraries print goes to stderr, so it never mixes with events.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from etcli.common import process
from etcli.common.errors import CheckpointError, EtcliError, ExitCode, ExportError, ToolError, UsageError
from etcli.common.memory import is_out_of_memory
from etcli.export.environment import torch_environment
from etcli.export.job import Trouble
from etcli.output.console import Console

Send = Callable[[Mapping[str, Any]], None]

_CLASSES: dict[ExitCode, type[EtcliError]] = {
    kind.exit_code: kind for kind in (UsageError, ToolError, CheckpointError, ExportError)
}
_KEPT_LINES = 60


def run_isolated(
    module: str,
    job: Mapping[str, Any],
    *,
    title: str,
    on_event: Callable[[Mapping[str, Any]], None],
    on_line: Callable[[str], None],
    memory_hint: str,
) -> dict[str, Any]:
    """Run `module` on `job` (plain JSON values) and return its result.

    Args:
        title: what the process is, for messages: `the reference`.
        on_event: called with every event but the last.
        on_line: called with the last lines of the worker's stderr if it ended without result or problems.
        memory_hint: what to do if the worker was killed, most likely for want of memory.

    Raises:
        EtcliError: the worker's own problems, with the class of their exit code; otherwise `ExportError`, `export.worker_killed` or
            `export.worker_failed`.
    """
    with tempfile.TemporaryDirectory(prefix="etcli-job-") as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps({"parent": os.getpid(), "job": job}))
        worker = process.start([sys.executable, "-m", module, path], env=torch_environment())
        with _drained(worker) as said:
            last = _listen(worker, on_event)
            code = worker.wait()
    if last is not None and last.get("event") == "error":
        raise _rebuilt(last["problems"])
    if last is None or code != 0:
        for line in said:
            on_line(line)
        raise _failure(title, code, said, memory_hint)
    return dict(last)


def isolated_main(body: Callable[[dict[str, Any], Send], Mapping[str, Any]], argv: list[str]) -> int:
    """The worker's side: read the job named in `argv`, call `body(job, send)`, send its result or its problems; the exit status."""
    order = json.loads(Path(argv[1]).read_text())
    process.end_with_parent(order["parent"])
    send = _take_stdout()
    try:
        result = body(order["job"], send)
    except EtcliError as error:
        send({"event": "error", "problems": [Trouble.of(problem).model_dump() for problem in error.problems]})
        return int(error.exit)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        problem = ExportError.problem(
            f"memory ran out: {str(error).splitlines()[0] if str(error) else 'no more can be allocated'}",
            code="export.out_of_memory",
            hint="Close other programs, or use a machine with more memory.",
        )
        send({"event": "error", "problems": [Trouble.of(problem).model_dump()]})
        return int(ExitCode.EXPORT)
    send({**result, "event": "result"})
    return 0


class EventConsole(Console):
    """For the worker's side: remarks become events `note`, whose `text` the parent is to show."""

    def __init__(self, send: Send) -> None:
        super().__init__(json=True, verbosity=0)
        self._send = send

    def note(self, text: str) -> None:
        """As `Console.note`."""
        self._send({"event": "note", "text": text})


def _take_stdout() -> Send:
    """Keep stdout for events alone: whatever else writes to it, from C as well, writes to stderr from now on."""
    channel: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(event: Mapping[str, Any]) -> None:
        channel.write(json.dumps(event) + "\n")
        channel.flush()

    return send


def _listen(worker: subprocess.Popen[bytes], on_event: Callable[[Mapping[str, Any]], None]) -> dict[str, Any] | None:
    assert worker.stdout is not None  # noqa: S101 - a pipe was asked for
    for line in worker.stdout:
        if not line.endswith(b"\n"):
            break  # killed while writing
        event: dict[str, Any] = json.loads(line)
        if event["event"] in ("result", "error"):
            return event
        on_event(event)
    return None


@contextlib.contextmanager
def _drained(worker: subprocess.Popen[bytes]) -> Iterator[collections.deque[str]]:
    """The last lines of the worker's stderr, read all the while so that it never blocks; the worker is gone at the end."""
    lines: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
    assert worker.stderr is not None  # noqa: S101 - a pipe was asked for
    pipe = worker.stderr

    def read() -> None:
        for raw in pipe:
            lines.append(raw.decode(errors="replace").rstrip())

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield lines
        reader.join(timeout=5)
    finally:
        process.end(worker)


def _failure(title: str, code: int, said: collections.deque[str], memory_hint: str) -> ExportError:
    how = process.describe_exit(code)
    if code == -signal.SIGKILL:
        return ExportError(
            f"{title} was {how}, most likely because memory ran out", code="export.worker_killed", hint=memory_hint
        )
    if code < 0:
        return ExportError(
            f"{title} was {how}", code="export.worker_killed", hint="Run it again with -v to see what it printed."
        )
    cause = next((line for line in reversed(said) if line.strip()), "it printed nothing")
    return ExportError(
        f"{title} ended without a result ({how}): {cause}",
        code="export.worker_failed",
        hint="Run it again with -v to see all that it printed.",
    )


def _rebuilt(problems: list[dict[str, Any]]) -> EtcliError:
    found = [Trouble.model_validate(fields).problem() for fields in problems]
    return _CLASSES.get(min(problem.exit_code for problem in found), ExportError).many(found)
