"""Removing a deployment: the files that our documents on the device list, and the folders they leave empty. Nothing else."""

from __future__ import annotations

from etcli.common.errors import DeployError, EtcliError
from etcli.deploy.apply import remove, remove_empty_folders
from etcli.deploy.folder import check_folder
from etcli.device.base import Device
from etcli.device.deployed import MANIFEST, OF_RUNS, PENDING, RUNNER_LIBRARIES, folder_problem, read_deployment
from etcli.device.listing import list_folder
from etcli.device.lock import device_lock
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe


def clean(loaded: LoadedRecipe, device: Device, console: Console) -> int:
    """Remove what deployments of this recipe left in its folder on `device`; return how many of their files went.

    A file that no document of ours lists stays, and is named in a note.

    Raises:
        DeployError: the folder is another recipe's, holds a document that cannot be trusted, or lies behind a link.
        DeviceError: the device cannot be reached.
    """
    folder = loaded.recipe.device_dir
    problem = folder_problem(folder)
    if problem is not None:
        raise EtcliError.many([problem])
    with device_lock(device, f"clean of {loaded.recipe.name}", console):
        return _clean(loaded, device, folder, console)


def _clean(loaded: LoadedRecipe, device: Device, folder: str, console: Console) -> int:
    check_folder(device, folder)
    listing = list_folder(device, folder)
    found = [
        manifest
        for document in (MANIFEST, PENDING)
        if document in listing and (manifest := read_deployment(device, folder, document)) is not None
    ]
    for manifest in found:
        if manifest.name != loaded.recipe.name:
            raise DeployError(
                f"{folder} on {device.serial} belongs to another recipe, {manifest.name}",
                code="deploy.foreign_folder",
                hint="Clean with that recipe, or give this one its own deploy.dir.",
            )
    if not found:
        return 0
    listed = {file.path for manifest in found for file in manifest.files}
    paths = sorted(path for path in listed if (entry := listing.get(path)) is not None and entry.is_file)
    # The manifest goes first: from then on nobody takes the folder for a whole deployment. The pending document stays to the last.
    if MANIFEST in listing and PENDING not in listing:
        result = device.shell(["mv", f"{folder}/{MANIFEST}", f"{folder}/{PENDING}"])
        if result.code != 0:
            raise DeployError(
                f"{device.serial} could not remove {folder}/{MANIFEST}: {result.stderr.strip()}", code="deploy.shell"
            )
    else:
        remove(device, [f"{folder}/{MANIFEST}"])
    remove(device, [f"{folder}/{path}" for path in paths])
    libraries = [path for path, entry in listing.items() if path.startswith(f"{RUNNER_LIBRARIES}/") and entry.is_file]
    remove(device, [f"{folder}/{path}" for path in (*libraries, *OF_RUNS, PENDING)])
    remove_empty_folders(device, folder, [*paths, *libraries])
    device.shell(["rmdir", folder])
    kept = sorted(path for path, entry in list_folder(device, folder).items() if not entry.is_folder)
    if kept:
        more = f" and {len(kept) - 5} more" if len(kept) > 5 else ""
        console.note(f"left in {folder}, since etcli did not put them there: {', '.join(kept[:5])}{more}")
    return len(paths)
