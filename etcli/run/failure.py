"""Why a run failed, in words: the runner's own error, the number behind it, the signal that ended it, its last messages."""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
from collections.abc import Callable

from etcli.common.errors import EtcliError, RunError
from etcli.device.base import Device
from etcli.manifests.run_record import DeviceFacts
from etcli.run.capture import LOGCAT, STDERR, Capture
from etcli.run.events import Note
from etcli.run.outcome import Answer
from etcli.run.session import Session
from etcli.tables.known_errors import explain_status, explain_text

_LAST_LINES = 8
_RUNNER_CODE = re.compile(r"runner\.[a-z_]{1,40}")


def explain(
    device: Device,
    facts: DeviceFacts,
    session: Session,
    answer: Answer,
    capture: Capture,
    told: Callable[[int], str | None],
) -> RunError:
    """The error for a run that ended without a result. The device's log is captured too, where it has one.

    Args:
        told: what an exit status means for this runner, see `Runner.explain`.
    """
    _keep_log(device, capture)
    code, what, hint = _cause(session, answer, told)
    where = f"{device.serial} ({facts.model}, {facts.os}{', emulated' if facts.emulated else ''})"
    progress = (
        f" after {len(answer.tokens)} tokens" if answer.tokens else "" if answer.loaded else " before it had loaded"
    )
    lines = _last_lines(session)
    known = explain_text("\n".join([what, *lines]))
    message = f"the runner on {where} failed{progress}: {what}"
    if lines:
        message += "\nIts last messages:\n" + "\n".join(f"  {line}" for line in lines)
    return RunError(
        message,
        code=code,
        hint="\n".join(dict.fromkeys([*known, hint, f"Everything it printed is in {capture.folder}"])),
        file=capture.folder / STDERR,
    )


def _cause(session: Session, answer: Answer, told: Callable[[int], str | None]) -> tuple[str, str, str]:
    """Stable code, what happened, and what to do."""
    status = session.code if session.code is not None else -1
    if answer.failure is not None:
        name = answer.failure.code
        code = name if _RUNNER_CODE.fullmatch(name) else "run.failed"
        return code, f"{_printable(name)}: {_printable(answer.failure.message)}", f"Its exit status is {status}."
    if status > 128:
        try:
            number = signal.Signals(status - 128)
        except ValueError:
            return "run.failed", f"exit status {status}", "Its messages say why."
        hint = told(status) or explain_status(status) or "Something on the device ended it."
        return f"run.{number.name.lower()}", f"it was ended by {number.name} (exit status {status})", hint
    if status in (126, 127):
        hint = explain_status(status) or "Run `etcli deploy` again."
        return "run.cannot_start", f"it could not be started (exit status {status})", hint
    if status == 0 and answer.stats is None:
        return (
            "run.no_result",
            "it ended with exit status 0 and without a result",
            told(status) or "It was killed, or it is no runner of etcli's protocol.",
        )
    return "run.failed", f"exit status {status}", told(status) or "Its messages say why."


def _last_lines(session: Session) -> list[str]:
    notes = [event.text for event in session.events if isinstance(event, Note)]
    every = [line for text in (*notes, session.stderr) for line in text.splitlines() if line.strip()]
    lines = [line for line, _ in itertools.groupby(every)]  # the same one over and over is one
    return [_printable(line)[:300] for line in lines[-_LAST_LINES:]]


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\ufffd" for char in text.replace("\t", " "))


def _keep_log(device: Device, capture: Capture) -> None:
    # Android's runtimes write some errors to the log alone.
    with contextlib.suppress(EtcliError):
        log = device.shell(["logcat", "-d", "-t", "400"], timeout=10)
        if log.code == 0 and log.stdout.strip():
            capture.text(LOGCAT, log.stdout)
