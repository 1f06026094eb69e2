"""The device's log around a run that failed: what our process said there, and what the system said of it.

Some of Android's runtimes and the NPU's libraries write their errors to the log alone, and only the system knows whom it killed for memory.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from dataclasses import dataclass

from etcli.common.errors import EtcliError
from etcli.device.base import Device
from etcli.tables.known_errors import load

# The later form is for old devices, which refuse a buffer that they have not.
_COMMANDS = (
    ("logcat", "-d", "-v", "threadtime", "-b", "main", "-b", "system", "-b", "crash", "-b", "events", "-t", "3000"),
    ("logcat", "-d", "-v", "threadtime", "-t", "3000"),
)
_LINE = re.compile(
    r"(?P<at>\d\d-\d\d \d\d:\d\d:\d\d)\.\d{3,9} +(?P<pid>\d{1,9}) +\d{1,9} +(?P<level>[VDIWEF]) +(?P<tag>.{0,100}?) *: (?P<message>.*)"
)
_SECONDS = 10.0
_SLACK = datetime.timedelta(seconds=2)


@dataclass(frozen=True)
class DeviceLog:
    """The log since the run began, whole, and the lines of it that tell why it failed, each as `TAG: message`."""

    text: str
    telling: tuple[str, ...]


def device_log(device: Device, *, program: str, pid: int | None, seconds: float) -> DeviceLog | None:
    """The device's log of the last `seconds`; None where there is none to be had.

    Telling are warnings and errors of the process `pid`, whatever names that process or `program`, and the tags of the NPU's services.
    """
    with contextlib.suppress(EtcliError):
        begin = _begin(device, seconds)
        for command in _COMMANDS:
            log = device.shell(command, timeout=_SECONDS)
            if log.code == 0:
                break
        else:
            return None
        lines = [line for line in log.stdout.splitlines() if (match := _LINE.match(line)) and match["at"] >= begin]
        return DeviceLog("".join(f"{line}\n" for line in lines), tuple(_telling(lines, program, pid)))
    return None


def _begin(device: Device, seconds: float) -> str:
    """When the run began by the device's clock, in the log's words; an empty text where it does not tell, which is before everything."""
    now = device.shell(["date", "+%Y-%m-%d %H:%M:%S"], timeout=_SECONDS)
    try:
        at = datetime.datetime.strptime(now.stdout.strip(), "%Y-%m-%d %H:%M:%S")
        begin = at - datetime.timedelta(seconds=seconds) - _SLACK
    except (ValueError, OverflowError):
        return ""
    return begin.strftime("%m-%d %H:%M:%S") if begin.year == at.year else ""


def _telling(lines: list[str], program: str, pid: int | None) -> list[str]:
    # Android keeps 15 letters of a program's name.
    named = rf"\b{re.escape(program[:15])}"
    if pid is not None:
        named += rf"|(?:\bpid[ =:]{{0,3}}|\(|\[){pid}\b"
    service = re.compile("|".join(load().log_tags), re.IGNORECASE)
    found = []
    for match in filter(None, map(_LINE.match, lines)):
        loud = match["level"] in "WEF"
        ours = pid is not None and int(match["pid"]) == pid
        if (loud and (ours or service.search(match["tag"]))) or (not ours and re.search(named, match["message"])):
            found.append(f"{match['tag']}: {match['message']}")
    return found
