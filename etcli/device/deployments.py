"""The deployments of etcli that a device holds in their usual place, found by their documents. Names that no recipe can have are left out."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass

from etcli.common.errors import DeviceError
from etcli.device.base import Device
from etcli.device.deployed import MANIFEST, PENDING, ROOT
from etcli.manifests.base import NAME_PATTERN

USUAL = f"{ROOT}/etcli"
"""Where deployments are unless a recipe has a `deploy.dir`."""
_NAME = NAME_PATTERN.removeprefix("^").removesuffix("$")
_DOCUMENT = re.compile(rf"{re.escape(USUAL)}/({_NAME})/(?:{re.escape(MANIFEST)}|{re.escape(PENDING)})")
_MOST = 32
"""Folders that are measured: the device reads through each."""
_DU = re.compile(r"([0-9]{1,15})\s+(\S+)")
_DU_SECONDS = 30.0


@dataclass(frozen=True)
class HeldDeployment:
    """A recipe's name, its folder on the device, and the bytes that it takes there; None where the device does not tell."""

    name: str
    folder: str
    bytes: int | None


def held_deployments(device: Device) -> tuple[HeldDeployment, ...]:
    """The deployments, whole or begun, in `/data/local/tmp/etcli/NAME`, the largest first; those elsewhere are not known.

    Raises:
        DeviceError: the device is gone.
    """
    listed = device.shell(["find", USUAL, "-maxdepth", "2", "-name", ".etcli-*.json"]).stdout
    names = {match[1] for line in listed.splitlines() if (match := _DOCUMENT.fullmatch(line)) is not None}
    folders = [(name, f"{USUAL}/{name}") for name in sorted(names)[:_MOST]]
    found = [HeldDeployment(name, folder, _bytes(device, folder)) for name, folder in folders]
    return tuple(sorted(found, key=lambda item: (-(item.bytes or 0), item.name)))


def _bytes(device: Device, folder: str) -> int | None:
    told = None
    with contextlib.suppress(DeviceError):  # slow storage: a size that is not told must not cost all the rest
        told = _DU.match(device.shell(["du", "-sk", folder], timeout=_DU_SECONDS).stdout)
    return int(told[1]) * 1024 if told is not None and told[2] == folder else None
