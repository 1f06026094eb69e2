"""Whether a device's CPU has what a build's programs use of one."""

from __future__ import annotations

from etcli.common.errors import RunError
from etcli.device.base import Device
from etcli.manifests.build import BuildManifest
from etcli.output.console import Console
from etcli.tables.cpu import instructions
from etcli.tables.targets import known_target

_CPUINFO = "/proc/cpuinfo"


def check_cpu(build: BuildManifest, device: Device, *, rebuild: str, force: bool, console: Console) -> None:
    """Refuse a device one of whose cores lacks a CPU feature of the build's floor; with `force` only warn.

    A device that does not tell, or tells of the machine that emulates it, is taken.

    Args:
        rebuild: the command that builds again.

    Raises:
        RunError: code `run.cpu_features`, naming what is lacking: the programs would end with an illegal instruction.
    """
    if not build.cpu_features:
        return
    has = instructions(known_target(build.target).abi).listed(device.shell(["cat", _CPUINFO]).stdout)
    lacking = [word for word in build.cpu_features if has is not None and word not in has]
    if not lacking:
        return
    message = (
        f"the build for {build.target} uses {', '.join(lacking)} of the CPU, which {device.serial} lacks ({_CPUINFO})"
    )
    if not force:
        raise RunError(
            message,
            code="run.cpu_features",
            hint=f"It was built for the chip of neuron.platform: name this device's, then run: {rebuild}",
        )
    console.warn(message, code="run.cpu_features")
