"""Virtual devices started, found again, listed and stopped. Their daemons outlive the command that started them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import etcli
from etcli.common.errors import DeviceError, EtcliError, Problems, ToolError, UsageError
from etcli.common.files import remove_tree
from etcli.device.server import AdbServer
from etcli.device.virtual.daemon import LOOPBACK
from etcli.device.virtual.frame import check_host
from etcli.device.virtual.processes import MODULE, is_daemon, start_ticks
from etcli.device.virtual.sandbox import bubblewrap_command
from etcli.device.virtual.spec import (
    ARCHES,
    PROTOCOLS,
    DeviceFolder,
    Protocol,
    Running,
    VirtualSpec,
    check_props,
    devices_dir,
)
from etcli.output.console import Console

_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_CONNECT_SECONDS = 20.0


@dataclass(frozen=True)
class VirtualDevice:
    """A virtual device: what it is, and its adb serial while it runs."""

    spec: VirtualSpec
    folder: DeviceFolder
    running: Running | None

    @property
    def serial(self) -> str:
        """`127.0.0.1:PORT`, the port that it has or had last."""
        port = self.running.port if self.running else self.spec.port
        return f"{LOOPBACK}:{port}"


def default_name(arch: str) -> str:
    """The name of the device of `arch` when none is given."""
    return f"virtual-{arch}"


def start(
    arch: str,
    props: Mapping[str, str] | None = None,
    *,
    name: str | None = None,
    data_limit: int | None = None,
    cpu: str | None = None,
    protocol: Protocol = "new",
    server: AdbServer | None = None,
    console: Console | None = None,
) -> VirtualDevice:
    """A virtual device with exactly these settings, running and connected to the adb server.

    One of the same name that runs with the same settings is used as it is; with others it is started anew, its files kept. A
    device with a `data_limit` keeps its files in memory, and only until it stops.

    Args:
        arch: `aarch64` or `x86_64`.
        props: properties set on top of the device's own.
        data_limit: size of /data in bytes.
        cpu: model for the emulator, the target's own by default.
        protocol: `new`, or `old`: an adb daemon as of Android 6 and before, without features, exit statuses and sizes of 64 bits.
        server: the adb server to connect it to, the environment's by default.

    Raises:
        UsageError: a setting cannot be.
        ToolError: this machine lacks something; all of it is in the error.
        DeviceError: it does not come up; the error ends with what its log says.
    """
    if arch not in ARCHES:
        raise UsageError(
            f"{arch!r} is no kind of virtual device", code="device.kind", hint=f"Use {' or '.join(ARCHES)}."
        )
    if protocol not in PROTOCOLS:
        raise UsageError(
            f"{protocol!r} is no protocol of virtual devices",
            code="device.protocol_unknown",
            hint=f"Use {' or '.join(PROTOCOLS)}.",
        )
    folder = DeviceFolder.of(name or default_name(arch))
    with _locked(folder):
        known = _known(folder)
        spec = VirtualSpec(
            name=folder.path.name,
            arch=arch,
            props=check_props(props or {}),
            data_limit=data_limit,
            cpu=cpu,
            port=known.port if known else None,
            etcli=etcli.__version__,
            protocol=protocol,
        )
        running = _running(folder)
        if running is not None and known is not None and not known.same_device(spec):
            _end(folder, running)
            running = None
        return _up(spec, folder, running, server, console)


def ensure(arch: str, *, server: AdbServer | None = None, console: Console | None = None) -> VirtualDevice:
    """The default device of `arch`: as it was started last, with its properties; started if it does not run.

    Raises:
        ToolError, DeviceError: see `start`.
    """
    folder = DeviceFolder.of(default_name(arch))
    with _locked(folder):
        known = _known(folder)
    if known is None or known.arch != arch:
        return start(arch, server=server, console=console)
    return start(
        arch,
        known.props,
        data_limit=known.data_limit,
        cpu=known.cpu,
        protocol=known.protocol,
        server=server,
        console=console,
    )


def stop(name: str, *, server: AdbServer | None = None, remove: bool = False) -> bool:
    """Stop a device; with `remove` its files go too. Returns whether it ran.

    Raises:
        DeviceError: there is no such device, or it does not stop.
    """
    folder = DeviceFolder.of(name)
    if not folder.spec.exists():
        names = ", ".join(device.spec.name for device in list_devices()) or "none"
        raise DeviceError(
            f"there is no virtual device {name} (there are: {names})",
            code="virtual_device.unknown",
            hint="See etcli device list.",
        )
    with _locked(folder):
        running = _running(folder)
        if running is not None:
            _end(folder, running)
            with contextlib.suppress(EtcliError):
                (server or AdbServer.from_environment()).forget(f"{LOOPBACK}:{running.port}")
        if remove:
            remove_tree(folder.path)
    return running is not None


def list_devices() -> list[VirtualDevice]:
    """Every virtual device of this cache folder, running or not, by name."""
    found = []
    for path in sorted(devices_dir().glob("*")) if devices_dir().is_dir() else ():
        folder = DeviceFolder(path)
        known = _known(folder)
        if known is not None:
            found.append(VirtualDevice(known, folder, _running(folder)))
    return found


def _up(
    spec: VirtualSpec, folder: DeviceFolder, running: Running | None, server: AdbServer | None, console: Console | None
) -> VirtualDevice:
    server = server or AdbServer.from_environment()
    if not server.local:
        raise DeviceError(
            f"the adb server at {server.host} cannot reach a virtual device, which listens on this machine only",
            code="virtual_device.remote_server",
            hint="Unset ANDROID_ADB_SERVER_HOST to use an adb server on this machine.",
        )
    server.ensure_running()
    if running is None:
        problems = Problems()
        problems.attempt(bubblewrap_command)
        problems.attempt(lambda: check_host(spec))
        problems.raise_if_any(ToolError)
        if console is not None:
            console.note(f"starting the virtual {spec.arch} device {spec.name}")
        running = _launch(spec, folder)
        if spec.port is not None and spec.port != running.port:
            server.forget(f"{LOOPBACK}:{spec.port}")
        spec = spec.model_copy(update={"port": running.port})
        spec.write(folder.spec)
    device = VirtualDevice(spec, folder, running)
    try:
        server.connect(device.serial, timeout=_CONNECT_SECONDS)
    except DeviceError as error:
        raise _explained(str(error), folder) from None
    return device


def _launch(spec: VirtualSpec, folder: DeviceFolder) -> Running:
    folder.path.mkdir(parents=True, exist_ok=True)
    spec.write(folder.spec)
    folder.running.unlink(missing_ok=True)
    with folder.log.open("wb") as log:
        daemon = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(folder.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    until = time.monotonic() + _START_SECONDS
    try:
        while time.monotonic() < until:
            if daemon.poll() is not None:
                raise _explained(f"the virtual device {spec.name} did not start", folder)
            running = _running(folder)
            if running is not None:
                return running
            time.sleep(0.02)
    except BaseException:
        _kill(daemon.pid)
        raise
    _kill(daemon.pid)
    raise _explained(f"the virtual device {spec.name} did not start within {_START_SECONDS:g} s", folder)


def _explained(message: str, folder: DeviceFolder) -> DeviceError:
    """`message` with the end of the device's log."""
    last = ""
    with contextlib.suppress(OSError):
        lines = folder.log.read_text(errors="replace").strip().splitlines()
        last = "".join(f"\n  {line}" for line in lines[-5:])
    return DeviceError(f"{message}{last}", code="virtual_device.failed", hint=f"Its whole log is {folder.log}")


def _known(folder: DeviceFolder) -> VirtualSpec | None:
    """The device's description, or None when there is none that this version reads."""
    with contextlib.suppress(OSError, EtcliError):
        return VirtualSpec.read(folder.spec)
    return None


def _running(folder: DeviceFolder) -> Running | None:
    """The daemon of the device, if it lives. A number that another process has by now does not count."""
    with contextlib.suppress(OSError, EtcliError):
        running = Running.read(folder.running)
        if is_daemon(running.pid, running.started):
            return running
    return None


def _end(folder: DeviceFolder, running: Running) -> None:
    _kill(running.pid, signal.SIGTERM)
    until = time.monotonic() + _STOP_SECONDS
    while start_ticks(running.pid) == running.started:
        if time.monotonic() > until:
            _kill(running.pid)
            break
        time.sleep(0.02)
    folder.running.unlink(missing_ok=True)


def _kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


@contextlib.contextmanager
def _locked(folder: DeviceFolder) -> Iterator[None]:
    """Hold the device against other commands that start or stop it."""
    devices_dir().mkdir(parents=True, exist_ok=True)
    with (devices_dir() / f".{folder.path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
