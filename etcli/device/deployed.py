"""What etcli left in a folder of a device, as the device tells it: untrusted until parsed.

A deployment has two documents in its folder. `.etcli-manifest.json` is written last and means that every listed file arrived whole.
`.etcli-pending.json` is written first and lists everything the folder may hold of etcli's until then, so that an interrupted
deployment still knows which files are its own.
"""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

from etcli.common.errors import DeployError, Problem, UsageError
from etcli.common.files import check_relative
from etcli.device.base import Device
from etcli.device.listing import Listing
from etcli.manifests.deployment import DeploymentManifest

ROOT = "/data/local/tmp"
MANIFEST = DeploymentManifest.FILE
PENDING = ".etcli-pending.json"
RUNNER_BINARY = ".etcli-runner"
"""Where `run --runner-binary` puts its program."""
PROMPT_IDS = ".etcli-prompt-ids"
"""Where `run` puts a prompt that is too long for a command line."""
PROMPT_TEXT = ".etcli-prompt.txt"
"""Where `run` puts the prompt of a runner that encodes text itself."""
RUNNER_FLAGS = ".etcli-runner-flags"
"""Where `run` puts flags that are too many for a command line."""
RUNNER_LIBRARIES = ".etcli-runner-libs"
"""The folder of the libraries that `run --runner-binary` puts beside its program."""
OF_RUNS = (RUNNER_BINARY, PROMPT_IDS, PROMPT_TEXT, RUNNER_FLAGS)
"""Files that runs leave in a deployment's folder, or left there when they were cut off."""

_LARGEST_MANIFEST = 4 << 20


def folder_problem(folder: str) -> Problem | None:
    """Why `folder` cannot be a deployment folder, or None. Programs cannot run from shared storage such as /sdcard, which is noexec."""
    try:
        if not folder.startswith(ROOT + "/"):
            raise ValueError
        check_relative(folder[len(ROOT) + 1 :])
    except ValueError:
        return UsageError.problem(
            f"deploy.dir {folder!r} is not a plain absolute path below {ROOT}",
            code="deploy.dir",
            hint=f"Programs of the shell user can run only from below {ROOT}, not from /sdcard; "
            f"leave deploy.dir out for {ROOT}/etcli/NAME.",
        )
    return None


def read_deployment(device: Device, folder: str, name: str = MANIFEST) -> DeploymentManifest | None:
    """The deployment document `name` in `folder` of the device, or None where there is none.

    Raises:
        DeployError: what is there is not such a document (code `deploy.manifest_invalid`).
        DeviceError: the device cannot be reached.
    """
    path = f"{folder}/{name}"
    status = device.stat(path)
    if status is None:
        return None
    if not stat.S_ISREG(status.mode) or status.size > _LARGEST_MANIFEST:
        raise _invalid(path, device, "it is not a regular file of a sensible size")
    with tempfile.TemporaryDirectory(prefix="etcli-") as scratch:
        local = Path(scratch) / "manifest.json"
        device.pull(path, local)
        if local.stat().st_size > _LARGEST_MANIFEST:
            raise _invalid(path, device, "it is too large")
        try:
            return DeploymentManifest.parse(local.read_bytes(), error=DeployError)
        except DeployError as error:
            raise _invalid(path, device, str(error)) from None


def _invalid(path: str, device: Device, why: str) -> DeployError:
    return DeployError(
        f"{path} on {device.serial} was not written by this version of etcli: {why}",
        code="deploy.manifest_invalid",
        hint="Deploy with --force to take the folder over (files that are not etcli's stay), or choose another deploy.dir.",
    )


def untouched(deployed: DeploymentManifest, listing: Listing) -> dict[str, str]:
    """SHA-256 by path of the deployed files that nothing has changed, replaced or renamed since their content was known."""
    return {
        file.path: file.sha256
        for file in deployed.files
        if (entry := listing.get(file.path)) is not None
        and entry.is_file
        and entry.size == file.size
        and file.stamp
        and entry.stamp == file.stamp
    }


def changes(deployed: DeploymentManifest, listing: Listing) -> list[str]:
    """What happened to deployed files since: `PATH is gone`, `PATH was changed`, in the manifest's order."""
    same = untouched(deployed, listing)
    found = []
    for file in deployed.files:
        entry = listing.get(file.path)
        if entry is None or not entry.is_file:
            found.append(f"{file.path} is gone" if entry is None else f"{file.path} is {entry.kind} now")
        elif entry.size != file.size or (file.stamp and file.path not in same):
            found.append(f"{file.path} was changed")
    return found


def deployment_difference(
    deployed: DeploymentManifest | None, *, name: str, bundle_sha256: str, target: str, build_sha256: str
) -> str | None:
    """Why a deployment is not of this bundle and build (hashes of their manifest files), or None."""
    if deployed is None:
        return "nothing is deployed there, or a deployment was interrupted"
    if deployed.name != name:
        return f"the folder holds the deployment of another recipe, {deployed.name}"
    if deployed.bundle_sha256 != bundle_sha256:
        return "the device holds another bundle"
    if deployed.target != target:
        return f"the device holds the build for {deployed.target}, not {target}"
    if deployed.build_sha256 != build_sha256:
        return "the device holds another build"
    return None
