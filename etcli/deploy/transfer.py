"""Files onto the device over one connection: under another name first, hashed there, then renamed; again where the connection breaks.

A second thread has the device hash and rename what has arrived while the next file is on its way, so that the check costs little more than the
last file's. A file gets its own name only when its SHA-256 on the device is the promised one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import DeployError, DeviceError, EtcliError, Problems, StaleError
from etcli.common.hashing import file_sha256
from etcli.deploy.listing import batches_of
from etcli.device.base import Device
from etcli.device.shelltext import script
from etcli.output.console import Console

WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before a broken transfer is taken up again; as many attempts without a whole file arriving are the end of it."""

_DISCARD_SECONDS = 10.0
_DAMAGED_AGAIN = 2
"""How often files that arrived damaged are sent again."""

_BROKEN = frozenset(
    ("device.gone", "device.offline", "device.timeout", "device.adb_server", "device.connect", "device.refused")
)
"""Codes of errors that a cable, a hub or an adb server may cause and that pass."""

# $1 is the number of the first file. Then for each: the part, the file, its mode, its SHA-256. A folder of that name would swallow the file.
_SETTLE = """
number=$1; shift
while [ $# -ge 4 ]; do
    sum=$(sha256sum < "$1") && sum=${sum%% *}
    if [ "$sum" != "$4" ]; then rm -f "$1"; echo "$number damaged $sum"
    elif [ -d "$2" ]; then rm -f "$1"; echo "$number refused it is a folder"
    elif why=$( { chmod "$3" "$1" && mv -f "$1" "$2"; } 2>&1 ); then echo "$number placed"
    else rm -f "$1"; echo "$number refused $why"
    fi
    number=$((number + 1)); shift 4
done
"""


@dataclass(frozen=True)
class Transfer:
    """A file on its way: `local` to the absolute path `remote`; `name` is what messages call it, `renew` the command that makes it anew."""

    name: str
    local: Path
    remote: str
    size: int
    sha256: str
    executable: bool
    renew: str


class _Damaged(Exception):
    """Files arrived with other content than was sent; they have been removed."""

    def __init__(self, files: Sequence[tuple[Transfer, str]]) -> None:
        super().__init__()
        self.files = files


def transfer(device: Device, files: Sequence[Transfer], *, progress: Callable[[float], None], console: Console) -> None:
    """Put every file in place. What is whole on the device stays when the connection breaks; the rest is taken up again.

    Raises:
        StaleError: a local file is not what its manifest says.
        DeployError: the device refuses a file, or one arrived damaged time and again.
        DeviceError: the device went away and did not come back.
    """
    left = list(files)
    waits = iter(WAITS)
    again = iter(range(_DAMAGED_AGAIN))
    while left:
        placed: set[str] = set()
        try:
            _attempt(device, left, placed, progress)
            return
        except _Damaged as damaged:
            _explain_local_damage(damaged.files)
            if next(again, None) is None:
                raise _damage(damaged.files) from None
            names = ", ".join(file.name for file, _ in damaged.files)
            console.warn(f"{names} arrived damaged on {device.serial}; sending again", code="deploy.damaged")
            progress(-sum(file.size for file, _ in damaged.files))
        except DeviceError as error:
            if not all(problem.code in _BROKEN for problem in error.problems):
                raise
            if placed:
                waits = iter(WAITS)
            pause = next(waits, None)
            if pause is None:
                raise
            console.warn(f"{error}; trying again in {pause:g} s", code="deploy.connection_broken")
            time.sleep(pause)
            device.recover(pause)  # if it is not there, the next attempt says so
        left = [file for file in left if file.remote not in placed]


def _attempt(device: Device, files: Sequence[Transfer], placed: set[str], progress: Callable[[float], None]) -> None:
    """Send all of them once; `placed` gets the paths of those that are whole and in place.

    What is in place counts as done for `progress`; what was sent and did not get there is taken back.
    """
    waiting: list[Transfer] = []
    settling: list[Future[list[tuple[Transfer, str]]]] = []
    damaged: list[tuple[Transfer, str]] = []
    moved = 0.0

    def advance(size: float) -> None:
        nonlocal moved
        moved += size
        progress(size)

    def settle() -> list[tuple[Transfer, str]]:
        taken, waiting[:] = list(waiting), []
        return _settle(device, taken, placed)

    try:
        with ThreadPoolExecutor(1, "etcli-settle") as helper:
            try:
                with device.sender() as sender:
                    for file in files:
                        sender.send(file.local, part_of(file.remote), executable=file.executable, progress=advance)
                        waiting.append(file)
                        # A thread at a time: files that arrive while it is busy are settled together.
                        if not settling or settling[-1].done():
                            settling.append(helper.submit(settle))
            finally:
                settling.append(helper.submit(settle))
        for outcome in settling:
            damaged += outcome.result()
    except DeviceError:
        progress(-(moved - sum(file.size for file in files if file.remote in placed)))
        raise
    except BaseException:
        _discard(device, [part_of(file.remote) for file in files if file.remote not in placed])
        raise
    if damaged:
        raise _Damaged(damaged)


def _discard(device: Device, parts: Sequence[str]) -> None:
    """Remove incomplete files. The device may be gone; then they stay, under names that nothing reads and the next deployment removes."""
    with contextlib.suppress(EtcliError):
        for batch in batches_of(parts, len):
            device.shell(["rm", "-f", *batch], timeout=_DISCARD_SECONDS)


def part_of(remote: str) -> str:
    """The name under which a file travels. The process's number keeps two apart and says whose it was."""
    return f"{remote}.part-{os.getpid()}"


def _settle(device: Device, files: Sequence[Transfer], placed: set[str]) -> list[tuple[Transfer, str]]:
    """Hash and rename what has arrived; the files that are damaged, with the hash that they have there.

    Raises:
        DeployError: the device could not put a file in place; all of them at once.
        DeviceError: it is gone.
    """
    damaged = []
    problems = Problems()
    for batch in batches_of(files, lambda file: 2 * len(file.remote) + 90):
        words = [
            word
            for file in batch
            for word in (part_of(file.remote), file.remote, "755" if file.executable else "644", file.sha256)
        ]
        result = device.shell(script(_SETTLE, "0", *words))
        verdicts = dict(_verdicts(result.stdout))
        for number, file in enumerate(batch):
            verdict, why = verdicts.get(number, ("refused", result.stderr.strip() or f"exit status {result.code}"))
            if verdict == "placed":
                placed.add(file.remote)
            elif verdict == "damaged":
                damaged.append((file, why))
            else:
                problems.add(
                    DeployError.problem(
                        f"{device.serial} could not put {file.remote} in place: {why}",
                        code="deploy.refused",
                        hint="Choose a folder that adb's user may write to, such as one below /data/local/tmp.",
                    )
                )
    problems.raise_if_any(DeployError)
    return damaged


def _verdicts(text: str) -> Iterator[tuple[int, tuple[str, str]]]:
    for line in text.splitlines():
        number, _, rest = line.partition(" ")
        verdict, _, why = rest.partition(" ")
        if number.isdigit() and verdict in ("placed", "damaged", "refused"):
            yield int(number), (verdict, why)


def _explain_local_damage(files: Sequence[tuple[Transfer, str]]) -> None:
    """Tell damage on this machine from damage on the way.

    Raises:
        StaleError: files here are not what their manifest says; all of them at once.
    """
    problems = Problems()
    for file, _ in files:
        if file_sha256(file.local) != file.sha256:
            problems.add(
                StaleError.problem(
                    f"{file.name} is damaged on this machine: its content is not what the manifest says",
                    code=f"{'build' if file.name.startswith('bin/') else 'bundle'}.damaged",
                    hint=f"Run: {file.renew}",
                    file=file.local,
                )
            )
    problems.raise_if_any(StaleError)


def _damage(files: Sequence[tuple[Transfer, str]]) -> DeployError:
    problems = [
        DeployError.problem(
            f"{file.remote} did not arrive whole: "
            + (f"its SHA-256 is {seen}, not {file.sha256}" if seen else "the device cannot read it back"),
            code="deploy.damaged",
            hint="Run the same command again: it sends what is damaged and keeps the rest. Often a cable or hub is at fault.",
        )
        for file, seen in itertools.islice(files, 20)
    ]
    error = DeployError.many(problems)
    assert isinstance(error, DeployError)  # noqa: S101 - of its own class
    return error
