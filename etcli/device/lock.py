"""One etcli at a time on a device: two that change or measure it at once would spoil each other's work.

Two processes of one machine meet at a lock file, those of different machines at a link on the device whose target names a process there: it lives
as long as the connection of the etcli that started it, so a link whose process is gone holds nobody up.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import platform
import re
import time
from collections.abc import Iterator
from pathlib import Path

from etcli.common.errors import DeviceError
from etcli.common.locks import exclusive
from etcli.common.workspace import cache_dir
from etcli.device.base import Device
from etcli.device.deployed import ROOT
from etcli.device.shelltext import script
from etcli.output.console import Console

LOCK = f"{ROOT}/.etcli-lock"

_LOOK_SECONDS = 0.3
_RELEASE_SECONDS = 10.0
_HELD, _BUSY = "held", "busy "

# $1 is the link, $2 says whose it is. A process is told by number and start time (field 22 of its stat), since numbers come again.
_HOLD = """
started() {
    since=
    { read -r line < "/proc/$1/stat"; } 2>/dev/null || return 0
    set -- ${line##*) }
    since=${20}
}
started $$
mine="$$ $since $2"
for attempt in 1 2 3 4 5; do
    if ln -s "$mine" "$1" 2>/dev/null; then echo held; exec sleep 86400; fi
    held=$(readlink "$1") || continue
    told=${held#* }; told=${told%% *}
    started "${held%% *}"
    if [ -n "$since" ] && [ "$since" = "$told" ]; then echo "busy $held"; exit 75; fi
    rm -f "$1"
done
echo "no link can be made"
exit 1
"""

# A connection that broke and was taken up again has lost the lock: by now it may be another's.
_RELEASE = 'case "$(readlink "$1")" in *" $2") rm -f "$1" ;; esac'


@contextlib.contextmanager
def device_lock(device: Device, what: str, console: Console) -> Iterator[None]:
    """Hold `device` for the length of the block. Where another etcli has it, a note says which one, and its end is waited for.

    Args:
        what: what is done meanwhile, as `deploy of NAME`, for the note that the other one shows.

    Raises:
        DeviceError: the device is gone.
    """
    name = hashlib.sha256(device.serial.encode()).hexdigest()[:16]
    path = cache_dir() / "locks" / f"device-{name}.lock"
    whose = _plain(f"etcli {what}, process {os.getpid()} of {_user()} on {platform.node()}")
    with exclusive(path, on_wait=lambda: _say(console, device, _holder(path))):
        with contextlib.suppress(OSError):
            path.write_text(whose, encoding="utf-8")
        with _held_there(device, whose, console):
            yield


@contextlib.contextmanager
def _held_there(device: Device, whose: str, console: Console) -> Iterator[None]:
    said = False
    while True:
        with device.open(script(_HOLD, LOCK, whose)) as stream:
            answer = next(iter(stream.lines()), "")
            if not answer.startswith(_BUSY):
                if answer != _HELD:
                    console.detail(
                        f"    {device.serial} has no lock against other machines: {answer or stream.stderr.strip()}"
                    )
                try:
                    yield
                finally:
                    if answer == _HELD:
                        with contextlib.suppress(DeviceError):  # its process is gone with the connection then
                            device.shell(script(_RELEASE, LOCK, whose), timeout=_RELEASE_SECONDS)
                return
        if not said:
            _say(console, device, answer.removeprefix(_BUSY).partition(" ")[2].partition(" ")[2])
            said = True
        time.sleep(_LOOK_SECONDS)


def _say(console: Console, device: Device, holder: str) -> None:
    console.note(f"waiting for another etcli that uses {device.serial}: {holder or 'it does not say which'}")


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def _plain(text: str) -> str:
    return re.sub(r"[^\w .,@:+-]", "_", text)[:200]
