"""A runner of the user's own, put beside the deployment for `--runner-binary`, with the libraries that stand beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import UsageError
from etcli.common.hashing import file_sha256
from etcli.device.base import Device
from etcli.device.deployed import RUNNER_BINARY, RUNNER_LIBRARIES
from etcli.manifests.build import BuildManifest, ElfFacts
from etcli.tables.targets import Target, known_target
from etcli.toolchain.elf import read_elf


@dataclass(frozen=True)
class Placed:
    """A program on the device, and the folder of libraries that came with it."""

    path: str
    libraries: str | None = None

    @property
    def name(self) -> str:
        """Of the program's file."""
        return self.path.rpartition("/")[2]


def check_binary(binary: Path, target: Target) -> ElfFacts:
    """What `binary` is, which devices of `target` can run.

    Raises:
        UsageError: it is no ELF file (`elf.*`), or not for the target's machine (`run.binary_machine`) or loader (`run.binary_loader`),
            or a library (`run.binary_kind`).
    """
    elf = read_elf(binary)
    if elf.machine != target.machine:
        raise UsageError(
            f"{binary} is for {elf.machine}, the device needs {target.machine} (target {target.name})",
            code="run.binary_machine",
            hint="Compile it with the toolchain file that the build for this target has in its folder.",
            file=binary,
        )
    if elf.interpreter is not None and elf.interpreter != target.interpreter:
        raise UsageError(
            f"{binary} asks for the loader {elf.interpreter}; programs of target {target.name} use {target.interpreter}",
            code="run.binary_loader",
            hint="It was linked for another system: Android and Linux programs are not interchangeable.",
            file=binary,
        )
    if elf.kind != "ET_EXEC" and elf.interpreter is None and elf.soname is not None:
        raise UsageError(
            f"{binary} is a shared library, {elf.soname}, and no program",
            code="run.binary_kind",
            hint="Give the runner itself; libraries that stand beside it are sent along.",
            file=binary,
        )
    return elf


def place_binary(
    device: Device,
    folder: str,
    binary: Path,
    build: BuildManifest,
    opens: Sequence[str] = (),
    others: Sequence[Path] = (),
) -> Placed:
    """Send `binary` and its libraries, as far as the device has them not already, and return where they are.

    Its libraries are those that it is linked with, and theirs, where they stand beside it or where a build of ExecuTorch leaves its MediaTek
    backend; the rest is taken for the device's own.

    Args:
        opens: libraries that it opens by name while it runs, sent where they stand there too.
        others: libraries of `opens` that stand elsewhere, sent where they are for the same machine and none stands beside the program.

    Raises:
        UsageError: as `check_binary`, for the target of the build for this device.
        DeployError: the device refused it.
    """
    elf = check_binary(binary, known_target(build.target))
    path = f"{folder}/{RUNNER_BINARY}"
    _send(device, binary, path, executable=True)
    libraries = list(_libraries(binary, elf.needed, opens))
    names = {library.name for library in libraries}
    libraries += [path for path in others if path.name not in names and read_elf(path).machine == elf.machine]
    for library in libraries:
        _send(device, library, f"{folder}/{RUNNER_LIBRARIES}/{library.name}")
    return Placed(path, f"{folder}/{RUNNER_LIBRARIES}" if libraries else None)


def _libraries(binary: Path, needed: Sequence[str], opens: Sequence[str]) -> Iterator[Path]:
    """Every library to be sent, once."""
    parent = binary.resolve().parent
    # BUILD/examples/mediatek/PROGRAM and BUILD/backends/mediatek/LIBRARY
    places = (parent, parent.parent.parent / "backends" / "mediatek")
    waiting, seen = [*needed, *opens], set()
    while waiting:
        name = waiting.pop(0)
        if name in seen or "/" in name or name in ("", ".", ".."):
            continue
        seen.add(name)
        found = next((path for place in places if (path := place / name).is_file()), None)
        if found is not None:
            yield found
            waiting += read_elf(found).needed


def _send(device: Device, local: Path, path: str, *, executable: bool = False) -> None:
    there = device.shell(["sha256sum", path])
    if there.code != 0 or there.stdout.split(" ")[0] != file_sha256(local):
        device.push(local, path, executable=executable)
