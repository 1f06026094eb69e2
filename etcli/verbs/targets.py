"""Which target a build is for."""

from __future__ import annotations

from collections.abc import Callable

from etcli.common.errors import DeviceError
from etcli.device.base import Device
from etcli.device.fit import fitting_targets
from etcli.recipe.loaded import LoadedRecipe


def build_target(loaded: LoadedRecipe, flag: str | None, device: Callable[[], Device] | None) -> str:
    """The target of `etcli build`: the flag, else the recipe's, else the one that fits the chosen device, else `host`.

    Raises:
        DeviceError: the chosen device fits no target.
    """
    wanted = flag or loaded.recipe.build.target
    if wanted != "auto":
        return wanted
    return "host" if device is None else device_target(device())


def device_target(device: Device) -> str:
    """The first target whose ABI and ELF interpreter the device has.

    Raises:
        DeviceError: none fits.
    """
    fitting = fitting_targets(device)
    if not fitting:
        facts = device.facts()
        raise DeviceError(
            f"no target fits device {device.serial} ({facts.model}, {facts.abi}, {facts.os})",
            code="device.no_target",
            hint="etcli builds for arm64-v8a Android, aarch64 Linux and x86_64 Linux; choose another device with --serial.",
        )
    return fitting[0]
