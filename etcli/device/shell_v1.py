"""The shell of daemons before Android 7: one stream for both outputs, no exit status, lines ended as on a terminal.

What is lacking is made up for by the device's own shell. The command's text is wrapped: stderr goes to a file that is already removed when the
command starts, so that nothing stays however it ends; after the command come a marker with `$?`, what was written to stderr, and the marker
again. The marker is random and stands in the text only in halves, so that no output can be taken for it, a list of processes included.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from etcli.device.shell import EXIT, STDERR, STDOUT, Frames
from etcli.device.wire import Wire

SERVICE = "shell:"
"""Followed by the command's text. There is a terminal on the device, whose line ends are made plain again here."""

FED_SERVICE = "exec:"
"""The same without a terminal, for a program with input: a terminal would send that back, and cut its lines."""

LONGEST = 4000
"""Bytes of a command that every old daemon takes: one message holds 4096."""

_BLOCK = 64 * 1024
_LONGEST_STATUS = 8
_HALF = 23
_SCRATCH = "/data/local/tmp/.etcli-"

# Without a place for the file, stderr is dropped. `true` and not `:`, whose failing redirection would end the shell. The shell's own remarks
# ("Segmentation fault") are no output of the command's.
_WRAPPED = """exec 2>/dev/null; t={scratch}
if true >$t; then exec 3>$t 4<$t; rm -f $t; else exec 3>/dev/null 4</dev/null; fi
( {text}
) 2>&3 3>&- 4<&-{stdin}
echo {half}{other}$?; cat <&4; echo {half}{other}"""


def new_marker() -> str:
    """A word that no output holds: 16 random bytes, half of them in either half."""
    return f"=etcli-{secrets.token_hex(16)}="


def _name(marker: str) -> str:
    # only the half that tells nobody the marker
    return marker[:_HALF].strip("=")


def wrapped(text: str, marker: str, *, fed: bool = False) -> str:
    """Shell text that runs `text` and tells its status and its stderr between two `marker`s. Its input is empty, or with `fed` the shell's."""
    return _WRAPPED.format(
        text=text,
        half=marker[:_HALF],
        other="''" + marker[_HALF:],
        scratch=_SCRATCH + _name(marker),
        stdin="" if fed else " </dev/null",
    )


def script_file(marker: str) -> str:
    """Path on the device of the file that holds a command too long for one message."""
    return f"{_SCRATCH}{_name(marker)}.sh"


def sourced(marker: str) -> str:
    """Text that runs the command in `script_file(marker)`."""
    return f". {script_file(marker)}"


def self_removing(text: str, marker: str) -> str:
    """What `script_file(marker)` holds: it is read by then, and its name is not needed any more."""
    return f"rm -f {script_file(marker)}; {text}\n"


def frames(wire: Wire, marker: str) -> Frames:
    """What a wrapped command sends as frames of the shell protocol: stdout as it arrives, stderr and the status at the end.

    Raises:
        DeviceError: the time is up.
    """
    word = marker.encode()
    arrived = _plain_lines(wire)
    pending = bytearray()
    for data in arrived:
        pending += data
        place = pending.find(word)
        if place >= 0:
            break
        keep = _start_of(word, pending)
        if len(pending) > keep:
            yield STDOUT, bytes(pending[: len(pending) - keep])
            del pending[: len(pending) - keep]
    else:
        if pending and wire.closed:
            yield STDOUT, bytes(pending)
        return
    if place:
        yield STDOUT, bytes(pending[:place])
    del pending[: place + len(word)]
    while word not in pending and (more := next(arrived, b"")):
        pending += more
    told, found, _ = bytes(pending).partition(word)
    status, line_end, stderr = told.partition(b"\n")
    if not (found and line_end and status.isdigit() and len(status) <= _LONGEST_STATUS):
        return
    if stderr:
        yield STDERR, stderr
    yield EXIT, bytes([int(status) & 0xFF])


def _plain_lines(wire: Wire) -> Iterator[bytes]:
    """The stream with a terminal's line ends (CR LF) as LF; a last empty piece says that it has ended."""
    held = b""
    while data := wire.receive(_BLOCK):
        data = held + data
        held = b"\r" if data.endswith(b"\r") else b""
        yield data[: len(data) - len(held)].replace(b"\r\n", b"\n")
    yield held


def _start_of(word: bytes, data: bytearray) -> int:
    """How many of the last bytes of `data` may be the start of `word`."""
    for length in range(min(len(word) - 1, len(data)), 0, -1):
        if data.endswith(word[:length]):
            return length
    return 0
