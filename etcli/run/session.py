"""A runner's life on the device: started, read line by line, ended by itself, by the clock or by the user."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from etcli.common.errors import DeviceError, EtcliError
from etcli.device.base import Device, Stream
from etcli.device.wire import was_ended_here
from etcli.run.capture import STDERR, Capture
from etcli.run.events import AnyEvent, Note
from etcli.run.runners import Reader

LONGEST_LINE = 1 << 16
_QUEUED_LINES = 4096


@dataclass
class Session:
    """How it went: events in order, stderr, and the exit status, None where the program was ended from here (`ended_by`)."""

    events: list[AnyEvent] = field(default_factory=list)
    stderr: str = ""
    code: int | None = None
    ended_by: Literal["timeout", "interrupted"] | None = None
    seconds: float = 0.0


def run_program(
    device: Device,
    reader: Reader,
    argv: list[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    timeout_s: float | None,
    capture: Capture,
    on_event: Callable[[AnyEvent], None],
) -> Session:
    """Run `argv` to its end, or end it after `timeout_s` seconds or at Ctrl-C. All that it prints goes into `capture`.

    Raises:
        RunError: it printed something that the runner's protocol does not allow; it has been ended then.
        DeviceError: the device went away.
    """
    session = Session()
    started = time.monotonic()
    with device.open(argv, cwd=cwd, env=env) as stream:
        lines = Lines(stream)
        try:
            while True:
                line = lines.next(None if timeout_s is None else started + timeout_s)
                if line is None:
                    session.code = stream.code
                    break
                capture.line(line)
                event = reader.line(line) if len(line) <= LONGEST_LINE else Note(text=line[:LONGEST_LINE])
                session.events.append(event)
                on_event(event)
        except TimeoutError:
            session.ended_by = "timeout"
        except KeyboardInterrupt:
            session.ended_by = "interrupted"
        except DeviceError as error:
            if not was_ended_here(error):
                raise
            # with several devices only one thread gets Ctrl-C, and ends the work of the others
            session.ended_by = "interrupted"
        finally:
            lines.stop()
            with contextlib.suppress(EtcliError):
                if session.code is None:
                    stream.close()
            session.seconds = time.monotonic() - started
            session.stderr = stream.stderr
            capture.text(STDERR, session.stderr)
    if session.code is not None:
        for event in reader.end(session.stderr, session.code):
            session.events.append(event)
            on_event(event)
    return session


class Lines:
    """A stream's lines, read by a thread, so that waiting for the next one can be timed and interrupted."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._queue: queue.Queue[str | BaseException | None] = queue.Queue(_QUEUED_LINES)
        self._stopped = threading.Event()
        threading.Thread(target=self._read, name="etcli-runner-output", daemon=True).start()

    def next(self, deadline: float | None) -> str | None:
        """The next line, or None at the end of the program.

        Raises:
            TimeoutError: it is later than `deadline`, a time of `time.monotonic`.
        """
        # Waiting without bound is done in short waits: only between them does Python deliver Ctrl-C on every platform.
        while True:
            left = 0.5 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            try:
                item = self._queue.get(timeout=min(0.5, left))
            except queue.Empty:
                continue
            if isinstance(item, BaseException):
                raise item
            return item

    def stop(self) -> None:
        """Let the thread go; what it still reads is dropped."""
        self._stopped.set()

    def _read(self) -> None:
        try:
            for line in self._stream.lines():
                if not self._put(line):
                    return
            self._put(None)
        except BaseException as error:  # handed to the waiting thread, which raises it
            self._put(error)

    def _put(self, item: str | BaseException | None) -> bool:
        while not self._stopped.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(item, timeout=0.2)
                return True
        return False
