"""The Device interface: all that the stages know of the place where programs run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from etcli.manifests.run_record import DeviceFacts


@dataclass(frozen=True)
class ShellResult:
    """A finished program on the device: its exit status and its two outputs, decoded as UTF-8 with replacement."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class RemoteStat:
    """A file on the device: `st_mode` bits and size in bytes (64 bits wide)."""

    mode: int
    size: int


@dataclass(frozen=True)
class Storage:
    """A file system of the device: bytes that it has in all, and bytes free for us."""

    total: int
    free: int


class Stream(Protocol):
    """A program running on the device."""

    def lines(self) -> Iterator[str]:
        """Lines of its stdout as they arrive, without their ends; ends when the program does."""

    @property
    def stderr(self) -> str:
        """What it has written to stderr so far."""

    @property
    def code(self) -> int:
        """Its exit status, as a shell gives it (128 + signal). Valid once `lines` is exhausted."""

    def write(self, data: bytes) -> None:
        """Give it `data` on its standard input. Only where it was opened for that.

        Raises:
            DeviceError: the device is gone.
        """

    def close(self) -> None:
        """End the program on the device, if it still runs, and the connection."""


class Sender(Protocol):
    """A connection over which files go to the device one after the other."""

    def send(
        self, local: Path, remote: str, *, executable: bool = False, progress: Callable[[int], None] | None = None
    ) -> None:
        """Write `local` straight to the exact path `remote`, parents made as needed; `progress` gets the bytes of each piece.

        Raises:
            DeployError: the device refused the file; the message carries its own reason, and with a full disk the numbers.
            DeviceError: the connection broke; what had arrived stays there.
            OSError: `local` cannot be read.
        """


class Device(Protocol):
    """A device reached through adb. Every method raises `DeviceError` when the device is gone or refuses the connection.

    Programs are given as argument lists; the one place that turns them into shell text is `device/shelltext.py`.
    """

    @property
    def serial(self) -> str:
        """adb's serial, as in `adb -s SERIAL`."""

    def facts(self) -> DeviceFacts:
        """The device as it describes itself, from its properties."""

    def properties(self) -> Mapping[str, str]:
        """All properties, as `getprop` lists them."""

    def shell(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> ShellResult:
        """Run a program to its end. A non-zero status is returned, not raised."""

    def open(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        feed: bool = False,
    ) -> contextlib.AbstractContextManager[Stream]:
        """Start a program and read it as it runs. Leaving the block ends it on the device.

        Its standard input is empty, or with `feed` what `Stream.write` gives it; a program that is fed has to end by itself once its
        input does, since old devices tell it in no other way that nobody listens.
        """

    def push(
        self, local: Path, remote: str, *, executable: bool = False, progress: Callable[[int], None] | None = None
    ) -> None:
        """Copy a file to the exact path `remote`, parents made as needed; `progress` gets the bytes of each block.

        Raises:
            DeployError: the device refused the file; the message carries the device's own reason.
        """

    def sender(self) -> contextlib.AbstractContextManager[Sender]:
        """A connection for several files, written without another name first: whoever sends gives names and renames."""

    def pause(self, seconds: float) -> None:
        """Leave the device alone for so long; where all work on it is ended from here, a `DeviceError` ends the pause."""

    def recover(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until a device whose connection broke is usable again; whether it is."""

    def pull(self, remote: str, local: Path) -> None:
        """Copy a file from the device, atomically on this side.

        Raises:
            DeviceError: there is no such file.
        """

    def stat(self, remote: str) -> RemoteStat | None:
        """The file at `remote` without following a link, or None."""

    def free_bytes(self, remote: str) -> int:
        """Bytes free for us on the file system that holds `remote` or its nearest existing parent."""

    def storage(self, remote: str) -> Storage:
        """The file system that holds `remote` or its nearest existing parent."""
