"""Devices listed, described, started and stopped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from etcli.common.errors import DeviceError, Problems, UsageError
from etcli.device import virtual
from etcli.device.adb import AdbDevice
from etcli.device.deployments import HeldDeployment, held_deployments
from etcli.device.fit import fitting_targets
from etcli.device.platform import npu_libraries
from etcli.device.select import compare_adb_versions, connected_devices, virtual_arch
from etcli.device.sensors import read_sensors
from etcli.device.virtual.spec import Protocol
from etcli.manifests.bench import Sensors
from etcli.manifests.run_record import DeviceFacts
from etcli.output.console import Console
from etcli.tables.socs import load_socs, told_soc

_STORAGE = "/data/local/tmp"
_MEMINFO_LINE = re.compile(r"^(MemTotal|MemAvailable):\s+(\d{1,15}) kB$", re.MULTILINE)


@dataclass(frozen=True)
class ListedDevice:
    """A device and its state in adb's words; a virtual device that does not run is `stopped`, and has no serial.

    `name` is that of a virtual device, empty for others.
    """

    serial: str
    name: str
    state: str
    model: str
    soc: str
    abi: str
    emulated: bool


@dataclass(frozen=True)
class DeviceInfo:
    """One device in detail. Sizes are in bytes; `targets` are those whose builds it runs.

    `platform` is the id of its NPU, None where nothing can be compiled for it or its properties contradict one another; `npu_libraries` are
    paths of the NPU's libraries in its own system. `protocol` is that of its adb daemon: `old` before Android 7. `sensors` is what it tells of
    temperatures and clocks without root, `properties` all that `getprop` lists. `deployments` are those of etcli in their usual place.
    """

    facts: DeviceFacts
    abis: tuple[str, ...]
    memory_total_bytes: int
    memory_available_bytes: int
    free_bytes: int
    storage_bytes: int
    protocol: Protocol
    sensors: Sensors
    properties: dict[str, str]
    targets: tuple[str, ...]
    platform: str | None
    npu_libraries: tuple[str, ...]
    deployments: tuple[HeldDeployment, ...]


@dataclass(frozen=True)
class StartedDevice:
    """A virtual device that runs; `data_limit` is the room of its /data in bytes, None for what this machine has."""

    name: str
    arch: str
    serial: str
    props: dict[str, str]
    protocol: Protocol
    data_limit: int | None


@dataclass(frozen=True)
class DeviceList:
    """What `etcli device list` shows."""

    devices: tuple[ListedDevice, ...]


def list_devices(console: Console) -> DeviceList:
    """Every device of the adb server, then the virtual devices that do not run. Versions of adb that do not agree are a warning.

    Raises:
        ToolError: there is no adb, or its server does not start.
    """
    compare_adb_versions(console)
    found = []
    ours = virtual.list_devices()
    names = {known.serial: known.spec.name for known in ours if known.running is not None}
    for device in connected_devices():
        facts = device.facts
        name = names.get(device.serial, "")
        found.append(
            ListedDevice(device.serial, name, device.state, facts.model, facts.soc, facts.abi, facts.emulated)
            if facts is not None
            else ListedDevice(device.serial, name, device.state, "", "", "", bool(name))
        )
    for known in ours:
        if known.running is None:
            spec = known.spec
            found.append(ListedDevice("", spec.name, "stopped", f"virtual {spec.arch}", "", spec.target.abi, True))
    return DeviceList(tuple(found))


def device_info(device: AdbDevice) -> DeviceInfo:
    """What `device` says of itself.

    Raises:
        DeviceError: it is gone.
    """
    properties = device.properties()
    ids = told_soc(properties).ids & set(load_socs())
    platform = next(iter(ids)) if len(told_soc(properties).ids) == 1 and ids else None
    memory = dict(_MEMINFO_LINE.findall(device.shell(["cat", "/proc/meminfo"]).stdout))
    abis = properties.get("ro.product.cpu.abilist") or properties.get("ro.product.cpu.abi", "")
    storage = device.storage(_STORAGE)
    return DeviceInfo(
        facts=device.facts(),
        abis=tuple(abi for abi in abis.split(",") if abi),
        memory_total_bytes=int(memory.get("MemTotal", 0)) * 1024,
        memory_available_bytes=int(memory.get("MemAvailable", 0)) * 1024,
        free_bytes=storage.free,
        storage_bytes=storage.total,
        protocol="new" if "shell_v2" in device.features else "old",
        sensors=read_sensors(device),
        properties=dict(properties),
        targets=tuple(fitting_targets(device)),
        platform=platform,
        npu_libraries=npu_libraries(device),
        deployments=held_deployments(device),
    )


def start_virtual(
    arch: str,
    props: Sequence[str],
    console: Console,
    *,
    protocol: Protocol = "new",
    data_limit: int | None = None,
) -> StartedDevice:
    """Start the default virtual device of `arch` with the properties `K=V` and the adb protocol, or find it running with them.

    With `data_limit`, in bytes, its /data has that room, and its files last until it stops.

    Raises:
        UsageError: a property is not of that form.
        ToolError, DeviceError: it does not come up.
    """
    wanted: dict[str, str] = {}
    for text in props:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(
                f"--set-prop {text!r} is not of the form K=V",
                code="device.property",
                hint="As in --set-prop ro.soc.model=MT6991",
            )
        wanted[key] = value
    device = virtual.start(arch, wanted, protocol=protocol, data_limit=data_limit, console=console)
    spec = device.spec
    return StartedDevice(spec.name, arch, device.serial, spec.props, spec.protocol, spec.data_limit)


def stop_virtual(wanted: Sequence[str], console: Console) -> tuple[str, ...]:
    """Stop virtual devices, all that run where none is named; return the names of those that ran.

    Args:
        wanted: each a name or a serial as `list_devices` shows them, or `virtual[:ARCH]` for the default one of that processor.

    Raises:
        UsageError: `virtual:ARCH` names no processor of virtual devices.
        DeviceError: some are none of ours, all of them at once; or one does not stop.
    """
    known = virtual.list_devices()
    chosen, problems = set(), Problems()
    for word in wanted:
        names = (
            {virtual.default_name(virtual_arch(word))} if word.partition(":")[0] == "virtual" else _named(word, known)
        )
        if not names:
            there = ", ".join(f"{item.spec.name} ({item.serial})" for item in known) or "none"
            problems.add(
                DeviceError.problem(
                    f"{word} is no virtual device of etcli (there are: {there})",
                    code="virtual_device.unknown",
                    hint="`etcli device list` shows names and serials; phones are not stopped.",
                )
            )
        chosen |= names
    problems.raise_if_any(DeviceError)
    running = [item.spec.name for item in known if item.running is not None]
    stopped = [name for name in running if not wanted or name in chosen]
    for name in stopped:
        virtual.stop(name)
        console.detail(f"stopped {name}")
    return tuple(stopped)


def _named(word: str, known: Sequence[virtual.VirtualDevice]) -> set[str]:
    return {item.spec.name for item in known if word in (item.spec.name, item.serial)}
