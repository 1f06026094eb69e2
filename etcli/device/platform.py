"""Whether a bundle made for one NPU platform is for this device."""

from __future__ import annotations

from etcli.common.errors import DeployError
from etcli.device.base import Device
from etcli.output.console import Console
from etcli.tables.socs import find_soc


def check_platform(platform: str | None, device: Device, *, force: bool, console: Console) -> None:
    """Refuse a device whose system on chip is not `platform`; with `force` only warn. A bundle for CPUs has None and fits all.

    `ro.soc.model` of a MediaTek phone is the id in capitals, at times with a letter for the bin: `MT6991Z` is an mt6991.

    Raises:
        DeployError: another platform, or one that the device does not tell (code `deploy.platform`).
    """
    if platform is None:
        return
    soc = device.facts().soc
    wanted = find_soc(platform)
    if soc.lower().startswith(platform.lower()) or (wanted is not None and wanted.answers_to(soc)):
        return
    message = f"the bundle is for platform {platform}, {device.serial} is {soc or 'of an unknown platform'}"
    if not force:
        raise DeployError(
            message,
            code="deploy.platform",
            hint="Export for the device's platform (neuron.platform), choose another device with --serial, or add --force.",
        )
    console.warn(message, code="deploy.platform")
