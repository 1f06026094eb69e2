"""A runner of the user's own, put beside the deployment for `run --runner-binary`."""

from __future__ import annotations

from pathlib import Path

from etcli.common.errors import UsageError
from etcli.common.hashing import file_sha256
from etcli.device.base import Device
from etcli.device.deployed import RUNNER_BINARY
from etcli.manifests.build import BuildManifest
from etcli.toolchain.elf import read_elf


def place_binary(device: Device, folder: str, binary: Path, build: BuildManifest) -> str:
    """Send `binary` unless the device has it already, and return its path there.

    Raises:
        UsageError: it is no ELF file, or not for the machine and loader that the build for this device has.
        DeployError: the device refused it.
    """
    elf = read_elf(binary)
    loaders = {
        file.elf.interpreter for file in build.stage if file.elf is not None and file.elf.interpreter is not None
    }
    if elf.machine != build.machine:
        raise UsageError(
            f"{binary} is for {elf.machine}, the device needs {build.machine} (target {build.target})",
            code="run.binary_machine",
            hint="Compile it with the toolchain that `etcli build` renders for this target.",
            file=binary,
        )
    if elf.interpreter is not None and loaders and elf.interpreter not in loaders:
        raise UsageError(
            f"{binary} asks for the loader {elf.interpreter}; programs of target {build.target} use {', '.join(sorted(loaders))}",
            code="run.binary_loader",
            hint="It was linked for another system: Android and Linux programs are not interchangeable.",
            file=binary,
        )
    path = f"{folder}/{RUNNER_BINARY}"
    there = device.shell(["sha256sum", path])
    if there.code != 0 or there.stdout.split(" ")[0] != file_sha256(binary):
        device.push(binary, path, executable=True)
    return path
