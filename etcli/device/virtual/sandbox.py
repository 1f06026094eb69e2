"""The namespaces of a virtual device: made by bubblewrap, held by its init, in which the daemon starts commands."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from etcli.common import process
from etcli.common.errors import ToolError
from etcli.device.virtual.frame import ENVIRONMENT, SHELL_USER
from etcli.toolchain import bubblewrap

_log = logging.getLogger(__name__)
_START_SECONDS = 30.0
_MAX_TEXT = 120 * 1024
"""Bytes of a command's text; the kernel takes 128 KiB for one argument."""

_MESSAGE = struct.Struct("=IIi")
_ROOT, _START, _SIGNAL, _FORGET, _STARTED, _FAILED, _EXITED = range(1, 8)
_TERMINAL = 1

_USER = ("--unshare-user", "--uid", str(SHELL_USER), "--gid", str(SHELL_USER))
_ALWAYS = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--as-pid-1")
_NETWORK = ("--unshare-net",)


@functools.lru_cache(maxsize=1)
def bubblewrap_command() -> tuple[str, ...]:
    """bubblewrap with the strictest isolation that this machine allows: a user id of its own and no network where possible.

    Raises:
        ToolError: it is missing, or may not make namespaces here.
    """
    program = str(bubblewrap.find())
    complaint = ""
    for options in ((*_USER, *_NETWORK), _USER, _NETWORK, ()):
        command = (program, *_ALWAYS, *options)
        done = process.run(
            [*command, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"], timeout=_START_SECONDS
        )
        if done.ok:
            return command
        complaint = complaint or done.stderr.strip()
    raise ToolError(
        f"bubblewrap may not make namespaces on this machine: {complaint}",
        code="bubblewrap.refused",
        hint="Allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1; on Ubuntu 24.04 and later "
        "kernel.apparmor_restrict_unprivileged_userns=0), or in a container add --privileged or --cap-add SYS_ADMIN.",
    )


class CommandFailed(Exception):
    """A command could not be started; the text is what a shell would say."""


class Command:
    """A command running on the device."""

    def __init__(self, sandbox: Sandbox, number: int) -> None:
        self._sandbox = sandbox
        self._number = number
        self._started = threading.Event()
        self._ended = threading.Event()
        self._status = 0
        self._errno = 0

    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit status as a shell gives it, or None when it still runs after `timeout` seconds."""
        return self._status if self._ended.wait(timeout) else None

    def signal(self, number: int) -> None:
        """Signal it and every process it started, detached ones (with a session of their own and no living parent) excepted."""
        self._sandbox.send(_SIGNAL, self._number, number)

    def end(self, grace: float) -> None:
        """End its whole tree: SIGHUP as Android's daemon sends, SIGKILL after `grace` seconds. Does not wait."""
        self.signal(signal.SIGHUP)
        timer = threading.Timer(grace, self.signal, (signal.SIGKILL,))
        timer.daemon = True
        timer.start()

    def note(self, kind: int, value: int) -> None:
        """For the sandbox's reader: what init reports."""
        if kind == _FAILED:
            self._errno, self._status = value, 126
        elif kind == _EXITED:
            self._status = value
        self._started.set()
        if kind in (_FAILED, _EXITED):
            self._ended.set()

    def wait_started(self) -> None:
        """Wait until init has started it.

        Raises:
            CommandFailed: it could not.
        """
        self._started.wait(_START_SECONDS)
        if self._errno:
            raise CommandFailed(f"sh: {os.strerror(self._errno)}")


class Sandbox:
    """A running device without its ADB side.

    Args:
        tree: bubblewrap's arguments for the file tree, ending in the command of init.
        log: the file that init and bubblewrap complain to.
        on_end: called once when init has ended by itself.

    Raises:
        RuntimeError: the namespaces could not be made; the text is bubblewrap's complaint.
    """

    def __init__(self, tree: Sequence[str], *, hostname: str, log: Path, on_end: Callable[[], None]) -> None:
        self._numbers = itertools.count(1)
        self._commands: dict[int, Command] = {}
        self._lock = threading.Lock()
        self._on_end = on_end
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # One command's text must fit into one packet.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _MAX_TEXT)
        with theirs, log.open("ab") as output:
            before = log.stat().st_size
            self._process = subprocess.Popen(
                [*bubblewrap_command(), "--hostname", hostname, *tree],
                stdin=theirs.fileno(),
                stdout=output,
                stderr=output,
                env=dict(ENVIRONMENT),
                cwd="/",
                start_new_session=True,
            )
        self.root = self._receive_root(log, before)
        threading.Thread(target=self._read, daemon=True).start()

    def start(self, text: str, descriptors: tuple[int, int, int], *, terminal: bool = False) -> Command:
        """Start `sh -c text` (an interactive shell for an empty text) with these descriptors, which stay the caller's to close.

        Raises:
            CommandFailed: the text is too long, or the device has no room for another process.
        """
        encoded = text.encode("utf-8", errors="surrogateescape")
        if b"\0" in encoded or len(encoded) > _MAX_TEXT:
            raise CommandFailed("sh: Argument list too long")
        number = next(self._numbers) & 0xFFFFFFFF
        command = Command(self, number)
        with self._lock:
            self._commands[number] = command
        flags = _TERMINAL if terminal else 0
        packet = _MESSAGE.pack(_START, number, flags) + b"/\0" + encoded + b"\0"
        socket.send_fds(self._socket, [packet], list(descriptors))
        try:
            command.wait_started()
        except CommandFailed:
            self.forget(command)
            raise
        return command

    def forget(self, command: Command) -> None:
        """Say that nobody will signal or wait for `command` any more; what it left running stays."""
        number = command._number
        with self._lock:
            self._commands.pop(number, None)
        self.send(_FORGET, number, 0)

    def send(self, kind: int, number: int, value: int) -> None:
        """A short message to init; without effect when it is gone."""
        try:
            self._socket.send(_MESSAGE.pack(kind, number, value))
        except OSError as error:
            _log.info("init does not listen: %s", error)

    def stop(self) -> None:
        """End every process of the device."""
        self._on_end = lambda: None
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        process.end(self._process)

    def _receive_root(self, log: Path, before: int) -> int:
        self._socket.settimeout(_START_SECONDS)
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, _MESSAGE.size, 1)
        except TimeoutError:
            data, descriptors = b"", []
        self._socket.settimeout(None)
        if not data or not descriptors:
            self._process.kill()
            self._process.wait()
            with log.open("rb") as file:
                file.seek(before)
                complaint = file.read().decode(errors="replace").strip()
            raise RuntimeError(complaint or "bubblewrap did not start the device's first process")
        return descriptors[0]

    def _read(self) -> None:
        while True:
            try:
                data = self._socket.recv(_MESSAGE.size)
            except OSError:
                data = b""
            if len(data) < _MESSAGE.size:
                break
            kind, number, value = _MESSAGE.unpack(data)
            with self._lock:
                command = self._commands.get(number)
            if command is not None:
                command.note(kind, value)
        # First the news, then the statuses: whoever drops the connections at the news does so before one of these goes out.
        self._on_end()
        with self._lock:
            commands = list(self._commands.values())
        for command in commands:
            command.note(_EXITED, 128 + signal.SIGKILL)
