"""The ADB daemon of a virtual device: listens on loopback, gives every connection its services, lives until it is told to stop."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import weakref
from collections.abc import Sequence
from types import FrameType

from etcli.device.virtual import frame
from etcli.device.virtual.packets import MAX_PAYLOAD, OLD_MAX_PAYLOAD, VERSION, VERSION_WITH_SUMS
from etcli.device.virtual.processes import start_ticks
from etcli.device.virtual.properties import properties
from etcli.device.virtual.sandbox import Sandbox
from etcli.device.virtual.shell_service import parse_shell, serve_shell
from etcli.device.virtual.spec import DeviceFolder, Running, VirtualSpec
from etcli.device.virtual.sync_service import SyncService
from etcli.device.virtual.transport import Service, Transport
from etcli.device.virtual.tree import Tree

_log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
FEATURES = ("shell_v2", "stat_v2", "ls_v2", "sendrecv_v2", "fixed_push_mkdir", "fixed_push_symlink_timestamp")
"""What the device tells adb that it can do; one of the old protocol tells nothing. Without `delayed_ack`, each message waits for its
acknowledgement."""

_EMULATOR_PORTS = range(5554, 5682)
"""Ports that adb servers search for emulators by themselves; a device there would be listed twice."""

_REFUSALS = {
    "root:": "a virtual device has no root user\n",
    "unroot:": "a virtual device has no root user\n",
    "remount:": "the file system of a virtual device stays read-only\n",
    "disable-verity:": "the file system of a virtual device stays read-only\n",
    "usb:": "a virtual device has no USB\n",
}


class Daemon:
    """Serves one device. `run` returns when SIGTERM has come or the device's namespaces have ended."""

    def __init__(self, folder: DeviceFolder) -> None:
        self._folder = folder
        self._spec = VirtualSpec.read(folder.spec)
        self._old = self._spec.protocol == "old"
        self._banner = _banner(properties(self._spec), () if self._old else FEATURES)
        self._listener: socket.socket | None = None
        self._over = threading.Event()
        self._transports: weakref.WeakSet[Transport] = weakref.WeakSet()
        self._transports_lock = threading.Lock()
        self._exit = 0

    def run(self) -> int:
        """Serve; returns the process's exit status."""
        os.umask(0o022)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._stop)
        tree = frame.assemble(self._spec, self._folder)
        with _listen(self._spec.port) as listener:
            self._listener = listener
            port = listener.getsockname()[1]
            self._sandbox = Sandbox(tree, hostname=self._spec.name, log=self._folder.log, on_end=self._device_ended)
            self._tree = Tree(self._sandbox.root)
            started = start_ticks(os.getpid())
            if started is None:
                raise OSError("/proc does not show this process")
            Running(pid=os.getpid(), started=started, port=port).write(self._folder.running)
            _log.info("%s serves %s on %s:%d", os.getpid(), self._spec.name, LOOPBACK, port)
            try:
                self._accept(listener)
            finally:
                self._folder.running.unlink(missing_ok=True)
                self._drop_connections()
                self._sandbox.stop()
        return self._exit

    def _accept(self, listener: socket.socket) -> None:
        while not self._over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                continue  # the listener was shut, or the peer gave up at once
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport = Transport(
                connection,
                banner=self._banner,
                open_service=self._service,
                version=VERSION_WITH_SUMS if self._old else VERSION,
                max_payload=OLD_MAX_PAYLOAD if self._old else MAX_PAYLOAD,
            )
            with self._transports_lock:
                self._transports.add(transport)
            threading.Thread(target=transport.run, daemon=True).start()

    def _service(self, name: str) -> Service | None:
        request = parse_shell(name, old=self._old)
        if request is not None:
            return lambda stream: serve_shell(stream, self._sandbox, request)
        if name == "sync:":
            return lambda stream: SyncService(stream, self._tree, old=self._old).serve()
        refusal = _REFUSALS.get(name)
        if refusal is not None:
            return lambda stream: stream.write(refusal.encode())
        return None

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._over.set()
        self._wake()

    def _device_ended(self) -> None:
        _log.error("the device's first process ended; the device is gone")
        self._exit = 1
        self._over.set()
        self._drop_connections()
        self._wake()

    def _drop_connections(self) -> None:
        """Before its processes end: a program that the end of the device killed must not be told as one that ended by itself."""
        with self._transports_lock:
            transports = list(self._transports)
        for transport in transports:
            transport.drop()

    def _wake(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)


def _listen(preferred: int | None) -> socket.socket:
    """A listening socket on loopback, at the preferred port if that is free."""
    for port in (preferred, *([0] * 50)):
        if port is None:
            continue
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
            listener.listen(64)
        except OSError as error:
            _log.info("port %d is not free: %s", port, error.strerror)
            listener.close()
            continue
        if listener.getsockname()[1] not in _EMULATOR_PORTS:
            return listener
        listener.close()
    raise OSError("no loopback port is free")


def _banner(props: dict[str, str], features: Sequence[str]) -> bytes:
    told = "".join(f"{name}={props[name]};" for name in ("ro.product.name", "ro.product.model", "ro.product.device"))
    able = f"features={','.join(features)}" if features else ""
    return f"device::{told}{able}".encode()
