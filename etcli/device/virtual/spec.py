"""What a virtual device is (`device.json`) and the process that serves it (`running.json`), as kept in its folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pydantic

from etcli.common.errors import UsageError
from etcli.common.workspace import cache_dir
from etcli.manifests.base import Manifest
from etcli.tables.targets import Target, load_targets

Arch = Literal["aarch64", "x86_64"]
Protocol = Literal["new", "old"]
PROTOCOLS: tuple[Protocol, ...] = ("new", "old")
ARCHES: tuple[Arch, ...] = ("aarch64", "x86_64")
_TARGETS: Mapping[Arch, str] = {"aarch64": "linux-aarch64", "x86_64": "host"}
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_PROPERTY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]*")


class VirtualSpec(Manifest):
    """One virtual device as it was asked for.

    `data_limit` is the size of its /data in bytes, None for what this machine has; `cpu` the emulator's model, None for the target's.
    `port` is the loopback port it had last. `etcli` is the version that started it. `protocol` is that of its adb daemon: what phones speak
    since Android 7, or `old`, as earlier ones do.
    """

    name: str = pydantic.Field(pattern=f"^{_NAME.pattern}$")
    arch: Arch
    props: dict[str, str]
    data_limit: int | None
    cpu: str | None
    port: int | None
    etcli: str
    protocol: Protocol = "new"

    @property
    def target(self) -> Target:
        """The target whose programs the device runs."""
        return load_targets()[_TARGETS[self.arch]]

    def same_device(self, other: VirtualSpec) -> bool:
        """Whether the two differ in nothing but the port."""
        return self.model_copy(update={"port": None}) == other.model_copy(update={"port": None})


class Running(Manifest):
    """The daemon that serves a device: its process, when that started (see `processes.start_ticks`), its loopback port."""

    pid: int
    started: int
    port: int


@dataclass(frozen=True)
class DeviceFolder:
    """Where a device's things are: `<cache>/devices/<name>/`. Nothing is created by naming it."""

    path: Path

    @classmethod
    def of(cls, name: str) -> DeviceFolder:
        """The folder of the device `name`.

        Raises:
            UsageError: the name cannot be one.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot name a virtual device",
                code="virtual_device.name",
                hint="Use lower-case letters, digits, dots, dashes and underscores, at most 64.",
            )
        return cls(devices_dir() / name)

    @property
    def spec(self) -> Path:
        """`device.json`."""
        return self.path / "device.json"

    @property
    def running(self) -> Path:
        """`running.json`, there while a daemon serves the device."""
        return self.path / "running.json"

    @property
    def log(self) -> Path:
        """What the daemon wrote."""
        return self.path / "log"

    @property
    def root(self) -> Path:
        """The read-only frame of the device's file tree."""
        return self.path / "root"

    @property
    def data(self) -> Path:
        """The device's /data, which outlives its daemon; not used by a device with a data limit."""
        return self.path / "data"


def devices_dir() -> Path:
    """The folder that holds one folder a virtual device."""
    return cache_dir() / "devices"


def check_props(props: Mapping[str, str]) -> dict[str, str]:
    """`props` as a plain dict.

    Raises:
        UsageError: naming every property whose name or value `getprop` could not print; lines are its format.
    """
    wrong = [
        UsageError.problem(
            f"{name!r}={value!r} cannot be a property",
            code="virtual_device.property",
            hint="Names are letters, digits, dots, dashes and underscores; values are one line of printable text.",
        )
        for name, value in props.items()
        if not _PROPERTY.fullmatch(name) or not value.isprintable()
    ]
    if wrong:
        raise UsageError.many(wrong)
    return dict(props)
