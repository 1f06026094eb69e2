"""A runner's process that is asked more than once: requests in, events out (docs/runner-protocol.md, Conversations)."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from etcli.common.errors import DeviceError, EtcliError, RunError
from etcli.device.base import Device, Stream
from etcli.manifests.run_record import DeviceFacts
from etcli.run.capture import STDERR, Capture
from etcli.run.events import AnyEvent, Kept, Loaded, Note, Refused, Start
from etcli.run.failure import Started, explain, never_answered
from etcli.run.outcome import bad_output
from etcli.run.runners import Reader
from etcli.run.session import LONGEST_LINE, Lines, Session

STOP_SECONDS = 15.0
"""In which an answer has to end once it was asked to: a call of the largest prompt shape on a slow device."""
_QUIT_SECONDS = 10.0


@dataclass
class Talk:
    """The runner's process: requests in, events out."""

    device: Device
    facts: DeviceFacts
    stream: Stream
    reader: Reader
    capture: Capture
    timeout_s: float | None
    program: Started
    session: Session = field(default_factory=Session)
    loaded: Loaded | None = None

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._lines = Lines(self.stream)

    def limit(self) -> float | None:
        """When what begins now has to be done."""
        return None if self.timeout_s is None else time.monotonic() + self.timeout_s

    def send(self, line: str) -> None:
        """A request."""
        try:
            self.stream.write(f"{line}\n".encode())
        except DeviceError:
            for _ in self.events(time.monotonic() + _QUIT_SECONDS):  # which tell why nobody listens
                pass
            raise

    def events(self, deadline: float | None) -> Iterator[AnyEvent]:
        """Events as they come. They end in an error alone: the caller leaves when it has what it waits for.

        Raises:
            TimeoutError: it is later than `deadline`.
            RunError: the program ended, or printed what its protocol does not allow.
        """
        while (line := self._lines.next(deadline)) is not None:
            self.capture.line(line)
            event = self.reader.line(line) if len(line) <= LONGEST_LINE else Note(text=line[:LONGEST_LINE])
            self.session.events.append(event)
            yield event
        self.session.code = self.stream.code
        raise self._explained()

    def unexpected(self, event: AnyEvent) -> None:
        """Refuse an event that neither an answer nor a wait for something else may hold."""
        if isinstance(event, Refused):
            raise bad_output(f"the runner does not take what it was asked: {event.message}")
        if isinstance(event, Start | Loaded | Kept):
            raise bad_output(f"the runner gave a {event.event!r} event where none was due")

    def deaf(self) -> RunError:
        """The error for a program that does not end its answer."""
        return RunError(
            f"the runner on {self.device.serial} did not end its answer within {STOP_SECONDS:g} s of being asked to, and was ended",
            code="run.timeout",
            hint="Its messages are in the file.",
            file=self.capture.folder / STDERR,
        )

    def late(self, message: str) -> RunError:
        """The error for a program that was not even loaded in time."""
        self.session.stderr = self.stream.stderr
        self.session.seconds = time.monotonic() - self._began
        return never_answered(self.device, self.session, self.capture, self.program, message)

    def quit(self) -> None:
        """Let the program end."""
        self.stream.write(b"quit\n")
        with contextlib.suppress(TimeoutError):
            deadline = time.monotonic() + _QUIT_SECONDS
            while (line := self._lines.next(deadline)) is not None:
                self.capture.line(line)
            self.session.code = self.stream.code

    def end(self) -> None:
        """End it if it still runs, and keep its messages."""
        self._lines.stop()
        with contextlib.suppress(EtcliError):
            if self.session.code is None:
                self.stream.close()
        self.capture.text(STDERR, self.stream.stderr)

    def _explained(self) -> RunError:
        self.session.stderr = self.stream.stderr
        self.capture.text(STDERR, self.session.stderr)
        self.session.seconds = time.monotonic() - self._began
        return explain(self.device, self.facts, self.session, self.capture, self.program)


class Interrupts:
    """With `kept`, the first Ctrl-C in the block is noted and not raised, so that it falls between two events and never into one."""

    def __init__(self, *, kept: bool) -> None:
        self.asked = False
        self._kept = kept and threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Interrupts:
        if self._kept:
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._kept:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
