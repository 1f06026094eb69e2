"""A device reached through an adb server, by way of adbutils' connections."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from etcli.common.errors import DeployError, DeviceError, EtcliError
from etcli.common.files import atomic_writer
from etcli.device import shell as shell_v2
from etcli.device import shell_v1, sync
from etcli.device.base import RemoteStat, ShellResult, Storage
from etcli.device.facts import device_facts, parse_properties
from etcli.device.program import adb_command
from etcli.device.server import AdbServer
from etcli.device.shell import Frames, ShellStream, run_to_end
from etcli.device.shelltext import command_text, quote, script
from etcli.device.wire import Wire, ended_here, open_wire
from etcli.manifests.run_record import DeviceFacts

_ANSWER_SECONDS = 60.0
"""For requests that a healthy device answers at once."""

_DISCARD_SECONDS = 10.0

_STALL_SECONDS = 120.0
"""In which a transfer must move by something: slow flash memory is written back in gusts."""

# $1 is the file as sent, $2 where it goes, $3 its mode. A folder of that name would swallow the file, so it is refused.
_PLACE = """
if [ -d "$2" ]; then echo "it is a folder" >&2
elif chmod "$3" "$1" && mv -f "$1" "$2"; then exit 0
fi
rm -f "$1"
exit 1
"""

# The file system of $1 or of its nearest parent that exists.
_FREE = """
path=$1
while [ ! -e "$path" ] && [ "$path" != / ]; do path=$(dirname "$path"); done
exec df -kP "$path"
"""

_ADDRESS = re.compile(r"[^\s/]+:[0-9]{1,5}")
"""A serial that is an address: a device over TCP."""

_PART = re.compile(r"\.part-[0-9-]+$")
"""What names of files on their way end in."""

_FOLDER = "it is a folder"
_NO_SPACE = ("No space left on device", "Disk quota exceeded")


class AdbSender:
    """One sync connection, over which any number of files go. See `etcli.device.base.Sender`."""

    def __init__(self, device: AdbDevice, wire: Wire, *, v2: bool) -> None:
        self._device, self._wire, self._v2 = device, wire, v2

    def send(
        self, local: Path, remote: str, *, executable: bool = False, progress: Callable[[int], None] | None = None
    ) -> None:
        """Write `local` straight to `remote`."""
        mode = 0o755 if executable else 0o644
        try:
            with local.open("rb", buffering=0) as source:
                sync.send_file(
                    self._wire, source, remote, mode=mode, mtime=int(time.time()), v2=self._v2, progress=progress
                )
        except sync.Refused as error:
            raise self._device.refusal(remote, str(error), size=local.stat().st_size) from None


class AdbDevice:
    """A device of an adb server. See `etcli.device.base.Device` for what its methods do and raise."""

    def __init__(self, server: AdbServer, serial: str) -> None:
        self._server = server
        self._serial = serial
        self._wires: weakref.WeakSet[Wire] = weakref.WeakSet()
        self._wires_lock = threading.Lock()
        self._closed = threading.Event()

    @property
    def serial(self) -> str:
        """adb's serial."""
        return self._serial

    def facts(self) -> DeviceFacts:
        """The device as it describes itself."""
        return device_facts(self._serial, self.properties())

    def properties(self) -> Mapping[str, str]:
        """All properties, asked for once."""
        return self._properties

    @functools.cached_property
    def _properties(self) -> Mapping[str, str]:
        result = self.shell(["getprop"], timeout=_ANSWER_SECONDS)
        if result.code != 0:
            raise DeviceError(
                f"{self._serial} does not list its properties: {result.stderr.strip() or f'exit status {result.code}'}",
                code="device.properties",
                hint="It must be an Android device, or one that has getprop.",
            )
        return parse_properties(result.stdout)

    @functools.cached_property
    def features(self) -> frozenset[str]:
        """What device and server can do, in adb's words."""
        return self._server.features(self._serial)

    def shell(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> ShellResult:
        """Run a program to its end."""
        wire, frames = self._start(command_text(argv, cwd=cwd, env=env), timeout)
        with wire:
            return run_to_end(wire, frames, self._serial)

    @contextlib.contextmanager
    def open(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        feed: bool = False,
    ) -> Iterator[ShellStream]:
        """Start a program and read it as it runs; leaving the block ends it on the device."""
        wire, frames = self._start(command_text(argv, cwd=cwd, env=env), None, feed=feed)
        framed = shell_v2.input_frame if "shell_v2" in self.features else bytes
        with wire:
            yield ShellStream(wire, frames, framed if feed else None)

    @contextlib.contextmanager
    def sender(self) -> Iterator[AdbSender]:
        """A connection over which files are sent one after the other."""
        with self._open(sync.SERVICE, stall=_STALL_SECONDS) as wire:
            yield AdbSender(self, wire, v2="sendrecv_v2" in self.features)

    def pause(self, seconds: float) -> None:
        """Leave the device alone for so long."""
        if self._closed.wait(seconds):
            raise ended_here(self._serial)

    def recover(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until the device is usable again; whether it is. One over TCP is connected anew."""
        until = time.monotonic() + timeout
        while True:
            with contextlib.suppress(EtcliError):
                self._server.ensure_running()
                left = max(0.0, until - time.monotonic())
                if _ADDRESS.fullmatch(self._serial):
                    self._server.connect(self._serial, timeout=left)
                if any(one.serial == self._serial and one.state == "device" for one in self._server.devices()):
                    return True
            if time.monotonic() >= until:
                return False
            self.pause(min(0.2, timeout))

    def push(
        self, local: Path, remote: str, *, executable: bool = False, progress: Callable[[int], None] | None = None
    ) -> None:
        """Copy a file to the exact path `remote`: under another name first, then renamed over what was there."""
        part = f"{remote}.part-{os.getpid()}"
        mode = 0o755 if executable else 0o644
        try:
            with self.sender() as sender:
                sender.send(local, part, executable=executable, progress=progress)
            placed = self.shell(script(_PLACE, part, remote, f"{mode:o}"), timeout=_ANSWER_SECONDS)
        except BaseException:
            self._discard(part)
            raise
        if placed.code != 0:
            raise self.refusal(remote, placed.stderr.strip() or f"exit status {placed.code}")

    def close(self) -> None:
        """End every connection, from any thread; whoever uses one, or asks for another, gets a `DeviceError`."""
        with self._wires_lock:
            self._closed.set()
            wires = list(self._wires)
        for wire in wires:
            wire.give_up()

    def pull(self, remote: str, local: Path) -> None:
        """Copy a file from the device."""
        try:
            with atomic_writer(local) as sink, self._sync() as wire:
                sync.receive_file(wire, remote, sink)
        except sync.Refused as error:
            raise DeviceError(
                f"{self._serial} does not give {remote}: {error}",
                code="device.pull",
                hint=f"Look at it with: {adb_command()} -s {self._serial} shell ls -la {remote}",
                file=remote,
            ) from None

    def stat(self, remote: str) -> RemoteStat | None:
        """The file at `remote` without following a link, or None. The size is that of 64 bits, on old devices too."""
        with self._sync(_ANSWER_SECONDS) as wire:
            if "stat_v2" in self.features:
                try:
                    return sync.lstat(wire, remote)
                except sync.Refused:
                    return None
            mode = sync.lstat_mode(wire, remote)
        if mode is None or not stat.S_ISREG(mode):
            return None if mode is None else RemoteStat(mode, 0)
        result = self.shell(["stat", "-c", "%f %s", remote], timeout=_ANSWER_SECONDS)
        words = result.stdout.split()
        if result.code != 0 or len(words) != 2:
            return None
        return RemoteStat(int(words[0], 16), int(words[1]))

    def free_bytes(self, remote: str) -> int:
        """Bytes free for us on the file system that holds `remote` or its nearest existing parent."""
        return self.storage(remote).free

    def storage(self, remote: str) -> Storage:
        """The file system that holds `remote` or its nearest existing parent."""
        result = self.shell(script(_FREE, remote), timeout=_ANSWER_SECONDS)
        lines = result.stdout.splitlines()
        with contextlib.suppress(IndexError, ValueError, StopIteration):
            # Device names and mount points may hold blanks; the column before the percentage is what is available, in KiB.
            words = lines[-1].split()
            percentage = next(index for index, word in enumerate(words) if word.endswith("%") and word[:-1].isdigit())
            return Storage(total=int(words[percentage - 3]) * 1024, free=int(words[percentage - 1]) * 1024)
        raise DeviceError(
            f"{self._serial} does not tell the free space at {remote}: {(result.stderr or result.stdout).strip()}",
            code="device.free_space",
            hint=f"Look at it with: {adb_command()} -s {self._serial} shell df -k",
        )

    def _start(self, text: str, timeout: float | None, *, feed: bool = False) -> tuple[Wire, Frames]:
        if "shell_v2" in self.features:
            wire = self._open(shell_v2.SERVICE + text, timeout)
            return wire, shell_v2.frames(wire, close_stdin=not feed)
        marker = shell_v1.new_marker()
        whole = shell_v1.wrapped(text, marker, fed=feed)
        if len(os.fsencode(whole)) > shell_v1.LONGEST:
            self._send_text(shell_v1.self_removing(text, marker), shell_v1.script_file(marker))
            whole = shell_v1.wrapped(shell_v1.sourced(marker), marker, fed=feed)
        wire = self._open((shell_v1.FED_SERVICE if feed else shell_v1.SERVICE) + whole, timeout)
        return wire, shell_v1.frames(wire, marker)

    def _send_text(self, text: str, remote: str) -> None:
        try:
            with self._sync(_ANSWER_SECONDS) as wire:
                sync.send_file(wire, io.BytesIO(os.fsencode(text)), remote, mode=0o600, mtime=int(time.time()))
        except sync.Refused as error:
            raise self.refusal(remote, str(error)) from None

    def _sync(self, timeout: float | None = None) -> Wire:
        return self._open(sync.SERVICE, timeout)

    def _open(self, service: str, timeout: float | None = None, *, stall: float | None = None) -> Wire:
        if self._closed.is_set():
            raise ended_here(self._serial)
        wire = open_wire(self._server.client, self._serial, service, timeout=timeout, stall=stall)
        with self._wires_lock:
            if not self._closed.is_set():
                self._wires.add(wire)
                return wire
        wire.close()
        raise ended_here(self._serial)

    def _discard(self, part: str) -> None:
        """Remove an incomplete file. The device may be gone; then it stays, under a name that nothing reads."""
        with contextlib.suppress(EtcliError):
            self.shell(["rm", "-f", part], timeout=_DISCARD_SECONDS)

    def refusal(self, remote: str, reason: str, *, size: int | None = None) -> DeployError:
        """The error for `reason`, the device's own words about a file of `size` bytes that it does not take."""
        remote = _PART.sub("", remote)
        if any(phrase in reason for phrase in _NO_SPACE):
            folder = remote.rpartition("/")[0]
            free = ""
            with contextlib.suppress(EtcliError):
                of = "" if size is None else f"the file has {size / 1e6:,.1f} MB, "
                free = f" ({of}{self.free_bytes(folder) / 1e6:,.1f} MB are free there now)"
            return DeployError(
                f"{self._serial} has no space left for {remote}: {reason}{free}",
                code="deploy.no_space",
                hint=f"Free some space on the device ({adb_command()} -s {self._serial} shell df -h {folder}), then repeat.",
            )
        hint = "Choose a folder that adb's user may write to, such as one below /data/local/tmp."
        if reason == _FOLDER:
            hint = (
                f"Look what is in it ({adb_command()} -s {self._serial} shell ls -la {quote(remote)}), and remove it."
            )
        return DeployError(f"{self._serial} refuses {remote}: {reason}", code="deploy.refused", hint=hint)
