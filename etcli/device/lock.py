"""One etcli at a time on a device: two that change, use or measure it at once would spoil each other's work.

Two processes of one machine meet at a lock file, those of different machines at a link on the device, see `HeldLink`. Either ends with its holder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from etcli.common.errors import DeviceError, UsageError
from etcli.common.locks import exclusive, holder, this_process
from etcli.common.workspace import cache_dir
from etcli.device.base import Device
from etcli.device.held_link import LINK, HeldLink
from etcli.output.console import Console

WAIT = "ETCLI_DEVICE_WAIT"
"""The variable that says how many seconds a device in use is waited for; without it, until it is free."""

_LOOK_SECONDS = 0.3

_mine = threading.local()
"""The links that this thread holds, by serial: a stage within a stage (`run` within `bench`) has the device already."""


@contextlib.contextmanager
def device_lock(device: Device, what: str, console: Console) -> Iterator[None]:
    """Hold `device` for the length of the block. Where another etcli has it, a note says which one, and its end is waited for.

    Where this thread holds it already, nothing happens.

    Args:
        what: what is done meanwhile, as `deploy of NAME`, for the note that the other one shows.

    Raises:
        DeviceError: the device is gone; or `device.busy`: it was not free within `$ETCLI_DEVICE_WAIT` seconds.
        UsageError: that variable holds no number.
    """
    held = _links()
    if device.serial in held:
        yield
        return
    waiting = _Waiting(device, console)
    with _alone_on_this_machine(device, what, waiting):
        link = HeldLink(device, this_process(what))
        try:
            while (other := link.take()) is not None:
                waiting.for_(other)
                time.sleep(_LOOK_SECONDS)
            if link.complaint:
                console.detail(f"    {device.serial} has no lock against other machines: {link.complaint}")
            held[device.serial] = link
            try:
                yield
            finally:
                del held[device.serial]
        finally:
            link.release()


def still_held(device: Device) -> None:
    """After a connection broke: see to it that this thread has `device` still. Nothing happens where it never had.

    Raises:
        DeviceError: code `device.lock_lost`, another etcli took it meanwhile, and may have changed what is on it.
    """
    link = _links().get(device.serial)
    if link is None or (taken := link.taken_by()) is None:
        return
    who = f": {taken}" if taken else ""
    raise DeviceError(
        f"while the connection to {device.serial} was broken, another etcli took the device{who}",
        code="device.lock_lost",
        hint="Run the same command again: it waits for the other one, and goes on with what is on the device then.",
    )


@contextlib.contextmanager
def _alone_on_this_machine(device: Device, what: str, waiting: _Waiting) -> Iterator[None]:
    name = hashlib.sha256(device.serial.encode()).hexdigest()[:16]
    path = cache_dir() / "locks" / f"device-{name}.lock"
    with contextlib.ExitStack() as stack:
        # Where no cache can be written, the link on the device is lock enough.
        with contextlib.suppress(OSError):
            stack.enter_context(exclusive(path, what=what, while_waiting=lambda: waiting.at_file(path)))
        yield


class _Waiting:
    """For whom is waited, said once for each; and for how long."""

    def __init__(self, device: Device, console: Console) -> None:
        self._device, self._console = device, console
        self._most = _most_seconds()
        self._since = time.monotonic()
        self._told: str | None = None

    def at_file(self, path: Path) -> None:
        """Another process of this machine has the lock file `path`. A device that is gone, or was given up here, is waited for no longer."""
        self._device.stat(LINK)
        self.for_(holder(path))

    def for_(self, other: str) -> None:
        """`other` has the device.

        Raises:
            DeviceError: it has had it for too long.
        """
        if self._most is not None and time.monotonic() - self._since >= self._most:
            raise DeviceError(
                f"{self._device.serial} is in use: {other}",
                code="device.busy",
                hint=f"Try again when it has ended, or end it. {WAIT}={self._most:g} (seconds) is how long a device in use is waited for; "
                "without it, as long as need be.",
            )
        if other != self._told:
            self._told = other
            until = "" if self._most is None else f" for {self._most:g} s at most ({WAIT})"
            self._console.note(
                f"waiting{until} for another etcli that uses {self._device.serial}: {other}; Ctrl-C gives up"
            )


def _most_seconds() -> float | None:
    text = os.environ.get(WAIT)
    if not text:
        return None
    try:
        seconds = float(text)
        if not 0 <= seconds < float("inf"):
            raise ValueError
    except ValueError:
        raise UsageError(
            f"{WAIT}={text!r} is no number of seconds", code="device.wait", hint="Set a number from 0 on, or unset it."
        ) from None
    return seconds


def _links() -> dict[str, HeldLink]:
    if not hasattr(_mine, "links"):
        _mine.links = {}
    links: dict[str, HeldLink] = _mine.links
    return links
