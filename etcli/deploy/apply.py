"""Carrying out a plan so that at every moment the device either has a whole deployment with its manifest, or none."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from etcli.common.errors import DeployError, Problems
from etcli.deploy.listing import batches, hashes
from etcli.deploy.plan import Plan, mode_of
from etcli.deploy.result import PlannedFile
from etcli.deploy.wanted import WantedFile
from etcli.device.base import Device
from etcli.device.deployed import MANIFEST, PENDING
from etcli.manifests.deployment import DeployedFile, DeploymentManifest
from etcli.output.console import Console

_LARGE = 4 << 20


def apply(
    device: Device,
    folder: str,
    plan: Plan,
    wanted: Collection[WantedFile],
    manifest: DeploymentManifest,
    owned: Collection[DeployedFile],
    console: Console,
) -> None:
    """Make the device as planned.

    The order is what keeps an interruption harmless: a pending document that lists every file that is or will be ours, the old
    manifest away, stale files away, files sent and their hashes compared on the device, the new manifest, the pending document away.

    Raises:
        DeployError: the device refused something, or a file arrived damaged; it then has no manifest, and the next deploy goes on.
    """
    if plan.changes:
        now = {file.path for file in manifest.files}
        union = (*manifest.files, *(file for file in owned if file.path not in now))
        _write(device, folder, PENDING, manifest.model_copy(update={"files": union}))
        remove(device, [f"{folder}/{MANIFEST}", *(f"{folder}/{path}" for path in plan.remove)])
        remove_empty_folders(device, folder, plan.remove)
        _send(device, folder, plan, wanted, console)
        _set_modes(device, folder, plan)
    _write(device, folder, MANIFEST, manifest)
    remove(device, [f"{folder}/{PENDING}"])


def remove(device: Device, paths: Sequence[str]) -> None:
    """Remove files by absolute path; one that is not there is no failure.

    Raises:
        DeployError: with the device's own words.
    """
    for batch in batches(paths):
        _require(device, ["rm", "-f", *batch], "remove files")


def remove_empty_folders(device: Device, folder: str, removed: Collection[str]) -> None:
    """Remove the folders below `folder` that `removed` files stood in, deepest first, where they are empty now."""
    parents = {str(parent) for path in removed for parent in PurePosixPath(path).parents if str(parent) != "."}
    deepest_first = sorted(parents, key=lambda path: (-path.count("/"), path))
    for batch in batches([f"{folder}/{path}" for path in deepest_first]):
        device.shell(["rmdir", *batch])  # fails for folders that are not empty, which is meant


def _write(device: Device, folder: str, name: str, manifest: DeploymentManifest) -> None:
    with tempfile.TemporaryDirectory(prefix="etcli-") as scratch:
        local = Path(scratch) / name
        manifest.write(local)
        device.push(local, f"{folder}/{name}")


def _send(device: Device, folder: str, plan: Plan, wanted: Collection[WantedFile], console: Console) -> None:
    local = {file.path: file.local for file in wanted}
    sending = [file for file in plan.files if file.action == "send"]
    if not sending:
        return
    title = f"sending {len(sending)} file{'s' if len(sending) > 1 else ''}"
    # The device hashes a large file while the next one is on its way; small ones are hashed together at the end.
    with ThreadPoolExecutor(1, "etcli-device-hash") as hashing:
        pending = []
        with console.progress(title, sum(file.size for file in sending), bytes_=True) as advance:
            for file in sending:
                console.detail(f"    {file.path} ({file.size:,} bytes, {file.why})")
                device.push(local[file.path], f"{folder}/{file.path}", executable=file.executable, progress=advance)
                if file.size >= _LARGE:
                    pending.append(hashing.submit(hashes, device, folder, [file.path]))
        arrived = hashes(device, folder, [file.path for file in sending if file.size < _LARGE])
        for answer in pending:
            arrived |= answer.result()
    _check_arrived(folder, sending, arrived)


def _check_arrived(folder: str, sending: Sequence[PlannedFile], arrived: Mapping[str, str]) -> None:
    problems = Problems()
    for file in sending:
        if arrived.get(file.path) != file.sha256:
            seen = arrived.get(file.path)
            problems.add(
                DeployError.problem(
                    f"{folder}/{file.path} did not arrive whole: "
                    + (f"its SHA-256 is {seen}, not {file.sha256}" if seen else "the device cannot read it back"),
                    code="deploy.damaged",
                    hint="Run the same command again: it sends what is damaged and keeps the rest. Often a cable or hub is at fault.",
                )
            )
    problems.raise_if_any(DeployError)


def _set_modes(device: Device, folder: str, plan: Plan) -> None:
    executable = {file.path: file.executable for file in plan.files}
    for kind in (True, False):
        for batch in batches([f"{folder}/{path}" for path in plan.modes if executable[path] is kind]):
            _require(device, ["chmod", f"{mode_of(kind):o}", *batch], "set permissions")


def _require(device: Device, argv: list[str], what: str) -> None:
    result = device.shell(argv)
    if result.code != 0:
        reason = result.stderr.strip() or result.stdout.strip() or f"exit status {result.code}"
        raise DeployError(
            f"{device.serial} could not {what}: {reason}",
            code="deploy.shell",
            hint="Files of another user cannot be changed; look with: adb shell ls -lR, or choose another deploy.dir.",
        )
