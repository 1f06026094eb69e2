"""The commands that the hints of a failed run name, as they are to be typed for it."""

from __future__ import annotations

from etcli.device.base import Device
from etcli.run.options import RunOptions


def commands_for(device: Device, options: RunOptions) -> dict[str, tuple[str, ...]]:
    """What each verb needs besides the recipe to mean the same device, target and bundle; see `completed_hints`."""
    serial = ("--serial", device.serial)
    target = ("--target", options.target) if options.target else ()
    bundle = ("--bundle", str(options.bundle)) if options.bundle else ()
    return {
        "build": target,
        "deploy": (*target, *bundle, *serial),
        "run": (*target, *bundle, *serial),
        "smoke": (*target, *serial),
        "clean": serial,
    }
