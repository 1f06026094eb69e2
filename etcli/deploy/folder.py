"""The deployment's folder on the device: hashes of what is in it, and whether it is a folder to write to and to run programs from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from etcli.common.errors import DeployError, Problems
from etcli.device.base import Device
from etcli.device.deployed import MANIFEST, ROOT
from etcli.device.listing import Entry
from etcli.device.program import adb_command

# Old adb daemons take at most 4096 bytes of command.
_LONGEST_COMMAND = 3500

_HASHERS = 8
_FILE_COST = 4 << 20
"""Bytes that could be hashed while a connection and a program for it are set up: small files stay together."""

T = TypeVar("T")


def hashes(device: Device, folder: str, sizes: Mapping[str, int]) -> dict[str, str]:
    """SHA-256 of files on the device, given with their sizes by path below `folder`; one that cannot be read is missing from the answer.

    Several programs hash at once, each with its share of the bytes: one alone keeps one of the device's processors busy.
    """
    found: dict[str, str] = {}
    with ThreadPoolExecutor(_HASHERS, "etcli-device-hash") as pool:
        for part in pool.map(lambda share: _hashes(device, folder, share), _shares(sizes)):
            found |= part
    return found


def _shares(sizes: Mapping[str, int]) -> list[list[str]]:
    """The paths in at most `_HASHERS` shares of about equal bytes."""
    shares: list[list[str]] = [[] for _ in range(_HASHERS)]
    loads = [0] * _HASHERS
    for path in sorted(sizes, key=lambda path: -sizes[path]):
        lightest = loads.index(min(loads))
        shares[lightest].append(path)
        loads[lightest] += sizes[path] + _FILE_COST
    return [share for share in shares if share]


def _hashes(device: Device, folder: str, paths: Sequence[str]) -> dict[str, str]:
    found = {}
    for batch in batches([f"{folder}/{path}" for path in paths]):
        for line in device.shell(["sha256sum", *batch]).stdout.splitlines():
            digest, _, name = line.partition(" ")
            name = name.lstrip(" *")
            if name.startswith(folder + "/") and len(digest) == 64:
                found[name[len(folder) + 1 :]] = digest.lower()
    return found


def batches(words: Iterable[str]) -> Iterator[list[str]]:
    """`words` in runs that fit one command line of any adb."""
    return batches_of(words, len)


def batches_of(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """`items` in runs whose words, `size` characters each, fit one command line of any adb."""
    batch: list[T] = []
    length = 0
    for item in items:
        if batch and length + size(item) > _LONGEST_COMMAND:
            yield batch
            batch, length = [], 0
        batch.append(item)
        length += size(item) + 3
    if batch:
        yield batch


def check_folder(device: Device, folder: str) -> None:
    """Refuse a folder that is or lies behind a link, belongs to an outer deployment, or is mounted without the right to run programs.

    Raises:
        DeployError: with every reason at once.
    """
    problems = Problems()
    parts = folder[len(ROOT) + 1 :].split("/")
    for depth in range(1, len(parts) + 1):
        path = "/".join((ROOT, *parts[:depth]))
        status = device.stat(path)
        if status is None:
            break
        entry = Entry(status.mode, status.size)
        if not entry.is_folder:
            problems.add(
                DeployError.problem(
                    f"{path} on {device.serial} is {entry.kind}, not a folder",
                    code="deploy.link",
                    hint=f"Remove it ({adb_command()} -s {device.serial} shell rm {path}), or choose another deploy.dir.",
                )
            )
            break
        if depth < len(parts) and device.stat(f"{path}/{MANIFEST}") is not None:
            problems.add(
                DeployError.problem(
                    f"{folder} lies inside another deployment, {path}",
                    code="deploy.nested",
                    hint="Choose a deploy.dir of its own.",
                )
            )
    if _noexec(device, folder):
        problems.add(
            DeployError.problem(
                f"{folder} is on a file system of {device.serial} that is mounted noexec: no program can run there",
                code="deploy.noexec",
                hint=f"Leave deploy.dir out for a folder below {ROOT}/etcli.",
            )
        )
    problems.raise_if_any(DeployError)


def _noexec(device: Device, folder: str) -> bool:
    best, options = "", ""
    for line in device.shell(["cat", "/proc/mounts"]).stdout.splitlines():
        fields = line.split(" ")
        if len(fields) >= 4:
            point = fields[1].rstrip("/")
            if (folder == point or folder.startswith(point + "/")) and len(point) >= len(best):
                best, options = point, fields[3]
    return "noexec" in options.split(",")
