"""Carrying out a plan so that at every moment the device either has a whole deployment with its manifest, or none."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath

from etcli.common.errors import DeployError
from etcli.deploy.folder import batches
from etcli.deploy.plan import Plan, mode_of
from etcli.deploy.transfer import Transfer, transfer
from etcli.deploy.wanted import WantedFile
from etcli.device.base import Device
from etcli.device.deployed import MANIFEST, PENDING
from etcli.device.listing import Listing, list_folder
from etcli.device.lock import still_held
from etcli.device.shelltext import script
from etcli.manifests.deployment import DeployedFile, DeploymentManifest
from etcli.output.console import Console

TOOLS = ("sha256sum", "find", "stat", "mv", "rm", "rmdir", "chmod")
"""Programs of the device that deployments call."""

_LACKING = 'for tool; do command -v "$tool" > /dev/null || echo "$tool"; done'


def apply(
    device: Device,
    folder: str,
    plan: Plan,
    wanted: Collection[WantedFile],
    listing: Listing,
    manifest: DeploymentManifest,
    owned: Collection[DeployedFile],
    console: Console,
) -> None:
    """Make the device as planned.

    The order is what keeps an interruption harmless: a pending document that lists every file that is or will be ours, the old
    manifest away, stale files away, files sent, each renamed when its hash on the device is right, the new manifest, the pending document away.

    Raises:
        DeployError: the device refused something, or a file arrived damaged; it then has no manifest, and the next deploy goes on.
        DeviceError: the device is gone, or another etcli took it while the connection was broken.
    """
    if plan.changes:
        _check_tools(device)
        now = {file.path for file in manifest.files}
        union = (*manifest.files, *(file for file in owned if file.path not in now))
        _write(device, folder, PENDING, manifest.model_copy(update={"files": union}))
        remove(device, [f"{folder}/{MANIFEST}", *(f"{folder}/{path}" for path in plan.remove)])
        remove_empty_folders(device, folder, plan.remove)
        _send(device, folder, plan, wanted, console)
        _set_modes(device, folder, plan)
    whole = _stamped(device, folder, plan, listing, manifest)
    still_held(device)  # or else another may have changed what it lists
    _write(device, folder, MANIFEST, whole)
    remove(device, [f"{folder}/{PENDING}"])


def _check_tools(device: Device) -> None:
    """Refuse a device whose shell lacks what checks and places a file, before one is sent for nothing.

    Raises:
        DeployError: naming what it lacks.
    """
    lacking = device.shell(script(_LACKING, *TOOLS)).stdout.split()
    if lacking:
        raise DeployError(
            f"{device.serial} has no {', no '.join(lacking)} in its shell, without which no file can be checked and placed there",
            code="deploy.tools",
            hint="Android has all of them since version 6 (toybox); on another device a busybox on PATH brings them.",
        )


def unstamped(manifest: DeploymentManifest) -> DeploymentManifest:
    """`manifest` without what only the device gives it."""
    return manifest.model_copy(
        update={"files": tuple(file.model_copy(update={"stamp": ""}) for file in manifest.files)}
    )


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
    local = {file.path: file for file in wanted}
    sending = [file for file in plan.files if file.action == "send"]
    if not sending:
        return
    for file in sending:
        console.detail(f"    {file.path} ({file.size:,} bytes, {file.why})")
    title = f"sending {len(sending)} file{'s' if len(sending) > 1 else ''}"
    with console.progress(title, sum(file.size for file in sending), bytes_=True) as advance:
        transfer(
            device,
            [
                Transfer(
                    name=file.path,
                    local=local[file.path].local,
                    remote=f"{folder}/{file.path}",
                    size=file.size,
                    sha256=file.sha256,
                    executable=file.executable,
                    renew=local[file.path].renew,
                )
                for file in sending
            ],
            progress=advance,
            console=console,
        )


def _set_modes(device: Device, folder: str, plan: Plan) -> None:
    executable = {file.path: file.executable for file in plan.files}
    for kind in (True, False):
        for batch in batches([f"{folder}/{path}" for path in plan.modes if executable[path] is kind]):
            _require(device, ["chmod", f"{mode_of(kind):o}", *batch], "set permissions")


def _stamped(
    device: Device, folder: str, plan: Plan, listing: Listing, manifest: DeploymentManifest
) -> DeploymentManifest:
    """`manifest` with the stamps of its files. Those of files that stay are from `listing`, that is, from before they were hashed."""
    now = list_folder(device, folder) if plan.changes else {}
    staying = {file.path for file in plan.files if file.action == "keep"} - set(plan.modes)
    files = []
    for file in manifest.files:
        entry = (listing if file.path in staying else now).get(file.path)
        files.append(file.model_copy(update={"stamp": entry.stamp}) if entry and entry.size == file.size else file)
    return manifest.model_copy(update={"files": tuple(files)})


def _require(device: Device, argv: list[str], what: str) -> None:
    result = device.shell(argv)
    if result.code != 0:
        reason = result.stderr.strip() or result.stdout.strip() or f"exit status {result.code}"
        raise DeployError(
            f"{device.serial} could not {what}: {reason}",
            code="deploy.shell",
            hint="Files of another user cannot be changed; look with: adb shell ls -lR, or choose another deploy.dir.",
        )
