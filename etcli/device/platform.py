"""Whether a bundle made for an NPU is for this device, and what the device has of the NPU's libraries."""

from __future__ import annotations

from etcli.common.errors import DeployError
from etcli.device.base import Device
from etcli.manifests.build import BuildManifest
from etcli.manifests.bundle import BundleManifest
from etcli.output.console import Console
from etcli.tables.neuropilot import neuropilot
from etcli.tables.socs import Told, load_socs, told_soc


def check_platform(
    bundle: BundleManifest, build: BuildManifest, device: Device, *, rebuild: str, force: bool, console: Console
) -> None:
    """Refuse a device whose system on chip is not the bundle's platform; with `force` only warn. A bundle for CPUs has none and fits all.

    A bundle for the simulated NPU is for no chip: it runs wherever the build brings the simulated libraries, and nowhere else. Neither kind is
    ever taken for the other, forced or not.

    Args:
        rebuild: the command that builds again.

    Raises:
        DeployError: code `deploy.platform`: another platform, properties that contradict one another, or none that tells;
            `deploy.simulated`: one of bundle and build is for the simulated NPU, the other is not.
    """
    if bundle.platform is None:
        return
    if bundle.simulated != build.simulated:
        ours, theirs = (
            ("the simulated NPU", "MediaTek's") if bundle.simulated else ("MediaTek's NPU", "the simulated one")
        )
        raise DeployError(
            f"the bundle is compiled for {ours}, the build for {build.target} is for {theirs}",
            code="deploy.simulated",
            hint=f"Bundle and build are of different neuron.sdk values; run: {rebuild}",
        )
    if bundle.simulated:
        console.warn(
            f"simulated NPU: this bundle is for no phone's NPU, though it was exported for {bundle.platform}",
            code="neuron.simulated",
        )
        return
    told = told_soc(device.properties())
    difference = platform_difference(bundle.platform, told, device.serial)
    if difference is None:
        if told.variant is not None:
            console.warn(
                f"{device.serial} is {told.variant[:60]}, a variant of {bundle.platform}, whose networks are not validated on it",
                code="deploy.platform_variant",
            )
        return
    message = f"the bundle is for platform {_title(bundle.platform)}, {difference}"
    if not force:
        raise DeployError(
            message,
            code="deploy.platform",
            hint="A network compiled for another SoC is not restored there. Export for the device's platform (neuron.platform), "
            "choose another device with --serial, or add --force.",
        )
    console.warn(message, code="deploy.platform")


def platform_difference(platform: str, told: Told, serial: str) -> str | None:
    """How the SoC of the device `serial`, as its properties tell it, is not `platform`; None where it is."""
    if told.ids == {platform}:
        return None
    if len(told.ids) > 1:
        return f"the properties of {serial} contradict one another: {told.text}"
    return f"{serial} is {told.text}"


def _title(platform: str) -> str:
    soc = load_socs().get(platform)
    return soc.title if soc is not None else platform


def npu_libraries(device: Device) -> tuple[str, ...]:
    """Paths of the NPU's libraries that the device's own system has, as the table names libraries and folders.

    Raises:
        DeviceError: it is gone.
    """
    facts = neuropilot()
    paths = [f"{folder}/{name}" for name in facts.device_libraries for folder in facts.device_folders]
    return tuple(path for path in paths if device.stat(path) is not None)
