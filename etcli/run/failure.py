"""Why a run failed, in words: the runner's own error, the number behind it, the signal that ended it, its last messages."""

from __future__ import annotations

import itertools
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass

from etcli.common.errors import RunError
from etcli.device.base import Device
from etcli.manifests.run_record import DeviceFacts
from etcli.run.capture import LOGCAT, STDERR, Capture
from etcli.run.events import Failure, Loaded, Note, Start, Token
from etcli.run.log import DeviceLog, device_log
from etcli.run.session import Session
from etcli.tables.known_errors import explain_runner_code, explain_status, explain_text

_LAST_LINES = 8
_LONGEST_MESSAGE = 2000
_BACKEND = re.compile(
    r"\bBackend (\w{1,80}) is not registered|needs the backend (\w{1,80}), which this program was built without"
)
_RUNNER_CODE = re.compile(r"runner\.[a-z_]{1,40}")


@dataclass(frozen=True)
class Started:
    """The program that was started: `path` on the device; `own` tells that it is the user's, given with `--runner-binary`.

    `speaks` tells that it gives etcli's events (docs/runner-protocol.md) as it runs. `told` is what an exit status means for this runner, see
    `Runner.explain`; `backends` are those of the build, which the bundle's programs were held against before.
    """

    path: str
    own: bool
    speaks: bool
    told: Callable[[int], str | None]
    backends: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of its file, by which the system may speak of it."""
        return self.path.rpartition("/")[2]


def explain(device: Device, facts: DeviceFacts, session: Session, capture: Capture, program: Started) -> RunError:
    """The error for a run that ended without a result. The device's log is captured too, where it has one."""
    log = keep_log(device, session, capture, program.name)
    code, what, hint = _cause(session, program)
    where = f"{device.serial} ({facts.model}, {facts.os}{', emulated' if facts.emulated else ''})"
    tokens = sum(isinstance(event, Token) for event in session.events)
    loaded = any(isinstance(event, Loaded) for event in session.events)
    progress = f" after {tokens} tokens" if tokens else "" if loaded else " before it had loaded"
    said, known = _evidence(what, session, log, program)
    failed = any(isinstance(event, Failure) for event in session.events)
    if failed and not known:
        known = [found] if (found := explain_runner_code(code)) else []
    if not known and program.own and program.speaks and _silent(session) and code in ("run.failed", "run.no_result"):
        code = "run.no_protocol"
        what += ", and nothing that it printed is of the runner's protocol"
        hint = (
            "The program given with --runner-binary is no runner that etcli can talk to (docs/runner-protocol.md): "
            "give one that speaks the protocol, or leave the option out for the build's own."
        )
    not_begun = code == "run.cannot_start"
    if not_begun and known:
        hint = known.pop(0)  # what it said itself is the cause; others would be guesses beside it
        known.clear()
    return RunError(
        f"the runner on {where} failed{progress}: {what}{said}",
        code=code,
        hint="\n".join(dict.fromkeys([*known, hint, f"Everything it printed is in {capture.folder}"])),
        file=program.path if not_begun else capture.folder / STDERR,
    )


def _silent(session: Session) -> bool:
    """Whether no event of the protocol came: lines that are none are notes."""
    return all(isinstance(event, Note) for event in session.events)


def never_answered(device: Device, session: Session, capture: Capture, program: Started, message: str) -> RunError:
    """The error for a run that gave no token until its time was up, with what was heard of it until then."""
    said, known = _evidence("", session, keep_log(device, session, capture, program.name), program)
    loaded = any(isinstance(event, Loaded) for event in session.events)
    hint = (
        f"{'It had loaded' if loaded else 'It had not loaded yet'}. Give it more time with --set run.timeout_s=SECONDS."
    )
    return RunError(
        f"{message}{said}",
        code="run.timeout",
        hint="\n".join([*known, hint, f"Everything it printed is in {capture.folder}"]),
        file=capture.folder / STDERR,
    )


def _evidence(what: str, session: Session, log: DeviceLog | None, program: Started) -> tuple[str, list[str]]:
    """Its last messages and the log's, as text to go behind a message, and what is known of them."""
    lines = [line for line in _last_lines(session) if line.removeprefix("error: ") not in what]
    telling = [_printable(line)[:300] for line in log.telling] if log else []
    text = "\n".join([what, *lines, *telling])
    known = _not_the_builds(text, program) or explain_text(text)
    said = ""
    if lines:
        said += "\nIts last messages:\n" + "\n".join(f"  {line}" for line in lines)
    if telling:
        said += "\nThe device's log says:\n" + "\n".join(f"  {line}" for line in _without_runs(telling)[-_LAST_LINES:])
    return said, known


def _not_the_builds(text: str, program: Started) -> list[str]:
    """What `text` means where it says that a backend is lacking that the build has: another program ran than the build's."""
    lacking = _BACKEND.search(text)
    name = next(filter(None, lacking.groups()), "") if lacking is not None else ""
    if name not in program.backends:
        return []
    if program.own:
        return [
            f"The build's own runner has {name}, the program given with --runner-binary has it not: "
            f"link {name} whole into it, or leave the option out."
        ]
    return [
        f"The build has {name}, so the program or a library of it on the device is not the build's any more: "
        "`etcli deploy --verify` reads everything that is there and sends again what differs."
    ]


def _cause(session: Session, program: Started) -> tuple[str, str, str]:
    """Stable code, what happened, and what to do."""
    status = session.code if session.code is not None else -1
    failure = next((event for event in reversed(session.events) if isinstance(event, Failure)), None)
    if failure is not None:
        code = failure.code if _RUNNER_CODE.fullmatch(failure.code) else "run.failed"
        what = f"{_printable(failure.code)[:100]}: {_printable(failure.message)[:_LONGEST_MESSAGE]}"
        return code, what, f"Its exit status is {status}."
    if status > 128:
        try:
            number = signal.Signals(status - 128)
        except ValueError:
            return "run.failed", f"exit status {status}", "Its messages say why."
        hint = program.told(status) or explain_status(status) or "Something on the device ended it."
        return f"run.{number.name.lower()}", f"it was ended by {number.name} (exit status {status})", hint
    if status in (126, 127):
        hint = explain_status(status) or "`etcli deploy` puts the program back."
        return "run.cannot_start", f"{program.path} could not be started (exit status {status})", hint
    if status == 0:
        return (
            "run.no_result",
            "it ended with exit status 0 and without a result",
            program.told(status) or "It was killed, or it is no runner of etcli's protocol.",
        )
    return "run.failed", f"exit status {status}", program.told(status) or "Its messages say why."


def _last_lines(session: Session) -> list[str]:
    notes = [event.text for event in session.events if isinstance(event, Note)]
    every = [line for text in (*notes, session.stderr) for line in text.splitlines() if line.strip()]
    return [_printable(line)[:300] for line in _without_runs(every)[-_LAST_LINES:]]


def _without_runs(lines: list[str]) -> list[str]:
    """The same line over and over is one."""
    return [line for line, _ in itertools.groupby(lines)]


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\ufffd" for char in text.replace("\t", " "))


def keep_log(device: Device, session: Session, capture: Capture, program: str) -> DeviceLog | None:
    """What the device's log tells of the run, kept with it; None where there is no log."""
    pid = next((event.pid for event in session.events if isinstance(event, Start)), None)
    log = device_log(device, program=program, pid=pid, seconds=session.seconds)
    if log is not None and log.text:
        capture.text(LOGCAT, log.text)
    return log
