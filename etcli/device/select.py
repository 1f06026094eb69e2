"""The device that is meant, out of what the user said and what is connected; everything that stands against it explained."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass

from etcli.common.errors import DeviceError, EtcliError, Problem, Problems, UsageError
from etcli.device.adb import AdbDevice
from etcli.device.program import adb_command, adb_program_version
from etcli.device.server import AdbServer, Listed
from etcli.manifests.run_record import DeviceFacts
from etcli.output.console import Console

_READY = "device"
_NO_DEVICE_HINT = "Connect a phone with USB debugging enabled (it must appear in `{adb} devices`), or use a virtual device: --device virtual"


@dataclass(frozen=True)
class Connected:
    """A device of the adb server; `facts` are None where it cannot be asked."""

    serial: str
    state: str
    facts: DeviceFacts | None


def select_device(*, serial: str | None, virtual: str | None, console: Console) -> AdbDevice:
    """The device to use: `virtual` (`virtual`, `virtual:aarch64`, `virtual:x86_64`), else `serial`, else `ANDROID_SERIAL`, else the only one.

    Raises:
        DeviceError: there is none, there are several, or it cannot be used; the hint says what to do.
        UsageError: `virtual` names no kind of device, or both are given.
        ToolError: the adb server or the virtual device cannot be started.
    """
    if virtual is not None:
        if serial is not None:
            raise UsageError(
                "--serial and --device virtual exclude each other",
                code="device.serial_and_virtual",
                hint="Give one of them.",
            )
        from etcli.device.virtual import ensure

        return AdbDevice(AdbServer.from_environment(), ensure(virtual_arch(virtual), console=console).serial)
    server = AdbServer.from_environment()
    server.ensure_running()
    listed = _without_dead_virtual_ones(server, server.devices())
    wanted = serial or os.environ.get("ANDROID_SERIAL")
    found = _named(wanted, listed, by_flag=serial is not None) if wanted else _only(server, listed)
    return AdbDevice(server, found.serial)


def select_devices(*, serials: Sequence[str], virtual: str | None, every: bool, console: Console) -> list[AdbDevice]:
    """The devices to use: each of `serials`, or with `every` all that adb lists as usable, or else the one of `select_device`.

    With `every`, a device that cannot be used is a warning.

    Raises:
        DeviceError: there is none, or some cannot be used: all of them at once.
        UsageError: contradicting wishes.
        ToolError: the adb server or the virtual device cannot be started.
    """
    wanted = list(dict.fromkeys(serials))
    if every and (wanted or virtual):
        raise UsageError(
            f"--all excludes {'--serial' if wanted else '--device'}",
            code="device.all_and_serial",
            hint="Give --all, or name the devices.",
        )
    if not every and len(wanted) < 2:
        return [select_device(serial=wanted[0] if wanted else None, virtual=virtual, console=console)]
    if virtual is not None:
        return [select_device(serial=wanted[0], virtual=virtual, console=console)]
    server = AdbServer.from_environment()
    server.ensure_running()
    listed = _without_dead_virtual_ones(server, server.devices())
    if not every:
        problems = Problems()
        found = [problems.attempt(functools.partial(_named, serial, listed, by_flag=True)) for serial in wanted]
        problems.raise_if_any(DeviceError)
        return [AdbDevice(server, device.serial) for device in found if device is not None]
    ready = [device for device in listed if device.state == _READY]
    if not ready:
        return [AdbDevice(server, _only(server, listed).serial)]  # which says why there is none
    for device in listed:
        if device.state != _READY:
            problem = _problem(device)
            console.warn(f"left out: {problem.message}. {problem.hint}", code=problem.code)
    return [AdbDevice(server, device.serial) for device in ready]


def _without_dead_virtual_ones(server: AdbServer, listed: list[Listed]) -> list[Listed]:
    """`listed` without virtual devices of ours that were killed: adb lists those as offline for as long as its server lives."""
    if all(device.state == _READY or not device.serial.startswith("127.0.0.1:") for device in listed):
        return listed
    from etcli.device.virtual import list_devices

    dead = {known.serial for known in list_devices() if known.running is None and known.spec.port is not None}
    kept = []
    for device in listed:
        if device.state != _READY and device.serial in dead:
            server.forget(device.serial)
        else:
            kept.append(device)
    return kept


def compare_adb_versions(console: Console) -> None:
    """Warn where the adb server is of another version than the adb program, which would end it, and every connection, when next called."""
    server = AdbServer.from_environment()
    server.ensure_running()
    program, running = adb_program_version(), server.version()
    if program is not None and program != running:
        console.warn(
            f"the adb server is of version {running}, the program {adb_command()} of version {program}: each ends the other's server, "
            "and with it what is being done. Use one adb, or give etcli a server of its own with ANDROID_ADB_SERVER_PORT",
            code="device.adb_versions",
        )


def connected_devices() -> list[Connected]:
    """Every device of the adb server, usable or not, with what it says of itself.

    Raises:
        ToolError, DeviceError: there is no adb server.
    """
    server = AdbServer.from_environment()
    server.ensure_running()
    found = _without_dead_virtual_ones(server, server.devices())
    return [Connected(listed.serial, listed.state, _facts(server, listed)) for listed in found]


def virtual_arch(virtual: str) -> str:
    """The processor that `virtual[:ARCH]` names, by default aarch64.

    Raises:
        UsageError: it is not of that form.
    """
    kind, _, arch = virtual.partition(":")
    arch = arch or "aarch64"
    from etcli.device.virtual import ARCHES

    if kind != "virtual" or arch not in ARCHES or virtual.endswith(":"):
        raise UsageError(
            f"--device {virtual!r} is no kind of device",
            code="device.kind",
            hint=f"Use virtual, {' or '.join(f'virtual:{name}' for name in ARCHES)}; for a phone use --serial.",
        )
    return arch


def _named(wanted: str, listed: list[Listed], *, by_flag: bool) -> Listed:
    for device in listed:
        if device.serial == wanted:
            if device.state != _READY:
                raise DeviceError.many([_problem(device)])
            return device
    known = ", ".join(device.serial for device in listed) or "none"
    unset = "" if by_flag else " It was named by ANDROID_SERIAL; unset that to choose another."
    raise DeviceError(
        f"no device {wanted} is connected (connected: {known})",
        code="device.not_found",
        hint=f"Check `{adb_command()} devices`; a device over TCP needs `adb connect` first, a virtual one `etcli device start`."
        + unset,
    )


def _only(server: AdbServer, listed: list[Listed]) -> Listed:
    ready = [device for device in listed if device.state == _READY]
    if len(ready) == 1:
        return ready[0]
    if ready:
        lines = "".join(f"\n  {_line(server, device)}" for device in ready)
        raise DeviceError(
            f"{len(ready)} devices are connected:{lines}",
            code="device.several",
            hint=f"Choose one: --serial {ready[0].serial}, or set ANDROID_SERIAL. deploy, run and bench also take several --serial, or --all.",
        )
    if listed:
        raise DeviceError.many([_problem(device) for device in listed])
    raise DeviceError("no device is connected", code="device.none", hint=_NO_DEVICE_HINT.format(adb=adb_command()))


def _line(server: AdbServer, device: Listed) -> str:
    facts = _facts(server, device)
    return device.serial if facts is None else f"{device.serial}  {facts.model}  {facts.soc}"


def _facts(server: AdbServer, device: Listed) -> DeviceFacts | None:
    if device.state != _READY:
        return None
    try:
        return AdbDevice(server, device.serial).facts()
    except EtcliError:
        return None  # it went away, or does not answer: it is listed all the same


def _problem(device: Listed) -> Problem:
    serial, state = device.serial, device.state
    if state == "unauthorized":
        code, what = "device.unauthorized", "has not authorised this computer"
        hint = "Unlock the device and accept the question about USB debugging; if none appears, replug the cable."
    elif state.startswith("no permissions"):
        code, what = "device.no_permissions", f"may not be opened by this user: {state}"
        hint = (
            "Install the udev rules (apt-get install android-sdk-platform-tools-common), join the group plugdev, "
            f"replug the device, then: {adb_command()} kill-server"
        )
    elif state in ("offline", "connecting", "authorizing"):
        code, what = "device.offline", f"is not answering ({state})"
        hint = f"Replug it or restart USB debugging, or: {adb_command()} reconnect {serial}"
    elif state in ("recovery", "sideload", "rescue", "bootloader", "fastboot"):
        code, what = "device.wrong_mode", f"is in {state} mode"
        hint = f"Start Android on it: {adb_command()} -s {serial} reboot"
    else:
        code, what, hint = (
            "device.unusable",
            f"is in the state {state!r}",
            f"It must be listed as `device` by `{adb_command()} devices`.",
        )
    return DeviceError.problem(f"{serial} {what}", code=code, hint=hint)
