"""Files onto the device over one connection: under another name first, hashed there, then renamed; again where the connection breaks.

A second thread has the device hash and rename what has arrived while the next file is on its way, so that the check costs little more than the
last file's. A file gets its own name only when its SHA-256 on the device is the promised one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import DeployError, DeviceError, EtcliError, Problems, StaleError
from etcli.common.hashing import file_sha256
from etcli.deploy.folder import batches_of
from etcli.device.base import Device
from etcli.device.lock import still_held
from etcli.device.shelltext import script
from etcli.output.console import Console

WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before a broken transfer is taken up again; as many attempts without a whole file arriving are the end of it."""

RECOVERY = 5.0
"""Seconds that a device has to come back, each time."""

_DISCARD_SECONDS = 10.0
_SETTLE_SECONDS = 60.0
_SLOWEST_HASH = 5e6
"""Bytes a second that every device hashes; with less, the connection is taken for dead."""

_DAMAGED_AGAIN = 2
"""How often files that arrived damaged are sent again."""

_BROKEN = frozenset(
    ("device.gone", "device.offline", "device.timeout", "device.adb_server", "device.connect", "device.refused")
)
"""Codes of errors that a cable, a hub or an adb server may cause and that pass."""

# $1 is the number of the first file. Then for each: the part, the file, its mode, its SHA-256. A folder of that name would swallow the file.
# Where the part is gone or goes, this may be the repeat of a command that is carried out all the same, and whose answer was lost.
_SETTLE = """
number=$1; shift
while [ $# -ge 4 ]; do
    from=$1; [ -e "$1" ] || from=$2
    sum=$(sha256sum < "$from") && sum=${sum%% *}
    if [ "$sum" != "$4" ] && [ "$from" = "$1" ] && [ -f "$2" ]; then
        there=$(sha256sum < "$2") && there=${there%% *}
        [ "$there" = "$4" ] && from=$2 && sum=$there
    fi
    if [ "$sum" != "$4" ]; then rm -f "$1"; echo "$number damaged $sum"
    elif [ "$from" = "$2" ]; then rm -f "$1"; chmod "$3" "$2"; echo "$number placed"
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
    waits = iter(WAITS)
    again = iter(range(_DAMAGED_AGAIN))
    work = _Work(device, list(files), progress)
    while work.left:
        before = len(work.left)
        try:
            work.attempt()
        except _Damaged as damaged:
            _explain_local_damage(damaged.files)
            if next(again, None) is None:
                raise _damage(damaged.files) from None
            names = ", ".join(file.name for file, _ in damaged.files)
            console.warn(f"{names} arrived damaged on {device.serial}; sending again", code="deploy.damaged")
        except DeviceError as error:
            if not all(problem.code in _BROKEN for problem in error.problems):
                raise
            if len(work.left) < before:
                waits = iter(WAITS)
            pause = next(waits, None)
            if pause is None:
                raise
            count = len(work.left)
            console.warn(
                f"{error}; attempt {work.attempts + 1} for the {count} file{'s' if count > 1 else ''} left in {pause:g} s",
                code="deploy.connection_broken",
            )
            device.pause(pause)
            if device.recover(RECOVERY):  # if it is not there, the next attempt says so
                still_held(device)


class _Work:
    """What is still to be done: `left` are the files that are not in place, `arrived` those of them that were sent whole and not yet looked at."""

    def __init__(self, device: Device, files: list[Transfer], progress: Callable[[float], None]) -> None:
        self.left = files
        self._device, self._progress = device, progress
        self._arrived: deque[tuple[Transfer, str]] = deque()
        self._parts: list[str] = []
        self._placed: set[str] = set()
        self._counted = 0.0
        self.attempts = 0

    def attempt(self) -> None:
        """Send and settle everything once. What is in place counts as done for the progress; what was sent and is not there is taken back.

        Raises:
            _Damaged, DeployError, DeviceError: see `transfer`.
        """
        self.attempts += 1
        damaged: list[tuple[Transfer, str]] = []
        settling: list[Future[list[tuple[Transfer, str]]]] = []
        broken = False
        try:
            # What was sent whole when a connection broke need not go again.
            damaged += self._settle()
            self._update()
            with ThreadPoolExecutor(1, "etcli-settle") as helper:
                try:
                    with self._device.sender() as sender:
                        for file in self.left:
                            part = part_of(file.remote, self.attempts)
                            self._parts.append(part)
                            sender.send(file.local, part, executable=file.executable, progress=self._count)
                            self._arrived.append((file, part))
                            # Files that arrive while the thread is busy are settled together by the next of these.
                            settling.append(helper.submit(self._settle))
                except DeviceError:
                    broken = True
                    raise
                finally:
                    if not broken:
                        settling.append(helper.submit(self._settle))
                    wait(settling)
            for outcome in settling:
                damaged += outcome.result()
        except DeviceError:
            raise
        except BaseException:
            _discard(self._device, self._parts)
            raise
        finally:
            self._update()
        if damaged:
            raise _Damaged(damaged)
        if self.attempts > 1:
            _discard(self._device, self._parts)

    def _count(self, size: float) -> None:
        self._counted += size
        self._progress(size)

    def _update(self) -> None:
        """Take what is in place from what is left, and let the progress say no more than that."""
        done = sum(file.size for file in self.left if file.remote in self._placed)
        self._progress(done - self._counted)
        self._counted = 0.0
        self.left = [file for file in self.left if file.remote not in self._placed]

    def _settle(self) -> list[tuple[Transfer, str]]:
        taken = []
        while self._arrived:
            taken.append(self._arrived.popleft())
        try:
            return _settle(self._device, taken, self._placed)
        except DeviceError:
            self._arrived.extendleft(one for one in reversed(taken) if one[0].remote not in self._placed)
            raise


def _discard(device: Device, parts: Sequence[str]) -> None:
    """Remove incomplete files. The device may be gone; then they stay, under names that nothing reads and the next deployment removes."""
    with contextlib.suppress(EtcliError):
        for batch in batches_of(parts, len):
            device.shell(["rm", "-f", *batch], timeout=_DISCARD_SECONDS)


def part_of(remote: str, attempt: int) -> str:
    """The name under which a file travels. The process's number keeps two apart and says whose it was.

    Each attempt has names of its own: the device may still be removing what it got of the last one.
    """
    return f"{remote}.part-{os.getpid()}-{attempt}"


def _settle(device: Device, files: Sequence[tuple[Transfer, str]], placed: set[str]) -> list[tuple[Transfer, str]]:
    """Hash and rename what has arrived under the names beside the files; the files that are damaged, with the hash that they have there.

    Raises:
        DeployError: the device could not put a file in place; all of them at once.
        DeviceError: it is gone.
    """
    damaged = []
    problems = Problems()
    for pairs in batches_of(files, lambda pair: len(pair[0].remote) + len(pair[1]) + 90):
        batch = [file for file, _ in pairs]
        words = [
            word
            for file, part in pairs
            for word in (part, file.remote, "755" if file.executable else "644", file.sha256)
        ]
        patience = _SETTLE_SECONDS + sum(file.size for file in batch) / _SLOWEST_HASH
        result = device.shell(script(_SETTLE, "0", *words), timeout=patience)
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
