"""What can be removed from a device that has not enough space."""

from __future__ import annotations

from etcli.common.errors import EtcliError
from etcli.device.base import Device
from etcli.device.deployments import held_deployments
from etcli.device.program import adb_command
from etcli.output.units import bytes_text

_MOST = 5


def room_hint(device: Device, folder: str) -> str:
    """How to make room for a deployment in `folder`: other deployments by name and size, where there are any."""
    free = "Free space on the device, or export a smaller bundle (another precision, a smaller model)"
    try:
        others = [held for held in held_deployments(device) if held.folder != folder]
    except EtcliError:
        return f"{free}."
    if not others:
        return f"{free}; no other deployment of etcli was found there."
    told = ", ".join(
        held.name if held.bytes is None else f"{held.name} ({bytes_text(held.bytes)})" for held in others[:_MOST]
    )
    more = f" and {len(others) - _MOST} more" if len(others) > _MOST else ""
    return (
        f"Other deployments of etcli are there: {told}{more}. Remove one with its recipe: etcli clean RECIPE --on-device --serial {device.serial}\n"
        f"or without it: {adb_command()} -s {device.serial} shell rm -r {others[0].folder}"
    )
