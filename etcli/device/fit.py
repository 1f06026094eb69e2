"""Which targets' programs a device can run."""

from __future__ import annotations

from etcli.device.base import Device
from etcli.tables.targets import load_targets


def fitting_targets(device: Device) -> list[str]:
    """Targets whose ABI the device lists and whose program interpreter it has, in the order of the targets' table.

    Raises:
        DeviceError: the device is gone.
        ToolError: the targets' table is broken.
    """
    properties = device.properties()
    abis = properties.get("ro.product.cpu.abilist") or properties.get("ro.product.cpu.abi", "")
    listed = {abi.strip() for abi in abis.split(",")}
    return [
        name
        for name, target in load_targets().items()
        if target.abi in listed and device.stat(target.interpreter) is not None
    ]
