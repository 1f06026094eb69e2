"""The deploy stage: bundle and binaries onto the device, sending only what differs."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

import etcli
from etcli.common.errors import DeployError, EtcliError, InterruptedByUser
from etcli.common.hashing import file_sha256
from etcli.common.workspace import Workspace, unchanged
from etcli.deploy.apply import apply, unstamped
from etcli.deploy.fit import check_fit
from etcli.deploy.folder import check_folder, hashes
from etcli.deploy.plan import Plan, make_plan, to_hash
from etcli.deploy.result import DeployOptions, DeployResult, PlannedFile
from etcli.deploy.room import room_hint
from etcli.deploy.wanted import Sources, WantedFile, verify_contents, wanted_files
from etcli.device.base import Device
from etcli.device.builds import choose_build
from etcli.device.deployed import (
    MANIFEST,
    OF_RUNS,
    PENDING,
    RUNNER_LIBRARIES,
    folder_problem,
    read_deployment,
    untouched,
)
from etcli.device.listing import Listing, list_folder
from etcli.device.lock import device_lock
from etcli.device.platform import check_platform
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.deployment import DeployedFile, DeploymentManifest
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import MANIFEST as LOCAL_MANIFEST
from etcli.recipe.outdated import command_line, require_bundle
from etcli.recipe.upstream import bundle_problems, rope_remark

__all__ = ["DeployOptions", "DeployResult", "PlannedFile", "deploy"]

_HEADROOM = 0.05
_DOCUMENTS = (MANIFEST, PENDING, *OF_RUNS)
_PART = re.compile(r"(.+)\.part-[0-9]+(-[0-9]+)?")


def deploy(
    loaded: LoadedRecipe, workspace: Workspace, device: Device, options: DeployOptions, console: Console
) -> DeployResult:
    """Make the recipe's folder on the device hold exactly this bundle and build. What is there already is not sent again.

    Raises:
        StaleError: bundle or build is missing, outdated or damaged.
        DeployError: bundle, build and device do not fit; the folder is not ours or not safe; no space; a transfer failed.
        DeviceError: the device cannot be reached.
        InterruptedByUser: Ctrl-C; the device then has no manifest, and the next deploy sends only the rest.
    """
    if options.dry_run:
        return _deploy(loaded, workspace, device, options, console)
    with unchanged(workspace, console.note):
        return _deploy(loaded, workspace, device, options, console)


def _deploy(
    loaded: LoadedRecipe, workspace: Workspace, device: Device, options: DeployOptions, console: Console
) -> DeployResult:
    started = time.monotonic()
    folder = loaded.recipe.device_dir
    problem = folder_problem(folder)
    if problem is not None:
        raise EtcliError.many([problem])
    sources = _sources(loaded, workspace, device, options, console)
    wanted = wanted_files(sources)
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            console.step(f"deploy {loaded.recipe.name} ({sources.build.target}) to {device.serial}:{folder}")
        )
        if not options.dry_run:
            stack.enter_context(device_lock(device, f"deploy of {loaded.recipe.name}", console))
        manifest = DeploymentManifest(
            etcli=etcli.__version__,
            name=loaded.recipe.name,
            target=sources.build.target,
            bundle_sha256=sources.bundle_sha256,
            build_sha256=sources.build.sha256,
            runner=loaded.recipe.run.runner,
            files=tuple(
                DeployedFile(path=file.path, size=file.size, sha256=file.sha256, executable=file.executable)
                for file in wanted
            ),
        )
        listing = _survey(device, folder)
        leftovers = _leftovers(listing, wanted)
        current, owned = _ours(device, folder, listing, wanted, leftovers, loaded.recipe.name, force=options.force)
        known = untouched(current, listing) if current is not None and not options.verify else {}
        unknown = to_hash(wanted, listing, known)
        if unknown:
            known |= hashes(device, folder, unknown)
        plan = make_plan(wanted, listing, known, [*(file.path for file in owned), *leftovers])
        sending = {file.path for file in plan.files if file.action == "send"}
        verify_contents(tuple(file for file in wanted if file.path in sending))
        up_to_date = not plan.changes and current is not None and unstamped(current) == manifest
        # Content that only a hash could tell is written down again with its new stamps, so that the next deployment need not hash it.
        restamp = current is None or any(
            file.path in listing and listing[file.path].stamp != file.stamp for file in current.files
        )
        free = None if up_to_date else _check_space(device, folder, plan)
        if not options.dry_run and (restamp or not up_to_date):
            try:
                apply(device, folder, plan, wanted, listing, manifest, owned, console)
            except KeyboardInterrupt:
                raise InterruptedByUser(
                    f"deploy interrupted; {folder} on {device.serial} is not usable as it is",
                    code="interrupted",
                    hint=f"Run again: {command_line('deploy', loaded, workspace, *_words(options, device))} (it sends only the rest)",
                ) from None
        sent = [file.size for file in plan.files if file.action == "send"]
        if up_to_date:
            how = (
                f", {'every one' if len(unknown) == len(plan.files) else len(unknown)} hashed there" if unknown else ""
            )
            console.note(f"    current: all {len(plan.files)} files are on the device{how}, nothing sent")
    return DeployResult(
        name=loaded.recipe.name,
        serial=device.serial,
        folder=folder,
        target=sources.build.target,
        files=plan.files,
        removed=plan.remove,
        sent_files=len(sent),
        sent_bytes=sum(sent),
        skipped_bytes=sum(file.size for file in plan.files) - sum(sent),
        space_bytes=plan.space_bytes,
        free_bytes=free,
        current=up_to_date,
        dry_run=options.dry_run,
        seconds=time.monotonic() - started,
    )


def _survey(device: Device, folder: str) -> Listing:
    """What is in the folder, which is looked at from outside at the same time.

    Raises:
        DeployError: the folder is none that may be written to, or cannot be listed.
    """
    with ThreadPoolExecutor(2, "etcli-survey") as pool:
        checked = pool.submit(check_folder, device, folder)
        listed = pool.submit(list_folder, device, folder)
        checked.result()  # what it says comes first: a listing fails for reasons that it names
        return listed.result()


def _words(options: DeployOptions, device: Device) -> list[str]:
    """`options`, and the device that is meant, as on a command line."""
    words = ["--target", options.target] if options.target else []
    words += ["--bundle", str(options.bundle)] if options.bundle else []
    words += ["--force"] if options.force else []
    words += ["--verify"] if options.verify else []
    words += ["--stale-ok"] if options.stale_ok else []
    return [*words, "--serial", device.serial]


def _sources(
    loaded: LoadedRecipe, workspace: Workspace, device: Device, options: DeployOptions, console: Console
) -> Sources:
    bundle_folder = options.bundle or workspace.bundle
    bundle = require_bundle(loaded, workspace, bundle_folder, stale_ok=options.stale_ok, console=console)
    build = choose_build(loaded, workspace, device, options, console)
    sources = Sources(
        bundle_folder=bundle_folder,
        bundle=bundle,
        bundle_sha256=file_sha256(bundle_folder / LOCAL_MANIFEST),
        build=build,
        runner=loaded.recipe.run.runner,
        made=workspace.deploy_work,
        export_command=command_line("export", loaded, workspace),
        build_command=command_line("build", loaded, workspace, "--target", build.target),
    )
    if sources.runner == "mtk":
        # What its binary registers is the user's affair, not this build's.
        _check_upstream(bundle, console)
    else:
        check_fit(bundle, build.manifest, rebuild=sources.build_command, export=sources.export_command)
    check_platform(bundle, build.manifest, device, rebuild=sources.build_command, force=options.force, console=console)
    return sources


def _check_upstream(bundle: BundleManifest, console: Console) -> None:
    """Refuse what upstream's runner cannot run before gigabytes are sent for it. What it runs and gets wrong is for `run` to refuse."""
    problems = list(bundle_problems(bundle))
    if problems:
        raise EtcliError.many(problems)
    rope = rope_remark(bundle.model)
    if rope is not None:
        console.warn(rope, code="mtk.rope_scaling")


def _leftovers(listing: Listing, wanted: Collection[WantedFile]) -> list[str]:
    """Parts of files of ours that an interrupted transfer left (files travel under another name)."""
    ours = {*_DOCUMENTS, *(file.path for file in wanted)}
    return [path for path in listing if (match := _PART.fullmatch(path)) is not None and match[1] in ours]


def _ours(
    device: Device,
    folder: str,
    listing: Listing,
    wanted: Collection[WantedFile],
    leftovers: Collection[str],
    name: str,
    *,
    force: bool,
) -> tuple[DeploymentManifest | None, tuple[DeployedFile, ...]]:
    """The deployment that is there, if it is whole, and every file that earlier deployments list.

    Raises:
        DeployError: the folder is not this recipe's, unless forced.
    """
    found: dict[str, DeploymentManifest] = {}
    for document in (MANIFEST, PENDING):
        try:
            if document in listing and (manifest := read_deployment(device, folder, document)) is not None:
                found[document] = manifest
        except DeployError:
            if not force:
                raise
    owners = {manifest.name for manifest in found.values()}
    if not force and owners - {name}:
        raise DeployError(
            f"{folder} on {device.serial} belongs to another recipe, {min(owners - {name})}",
            code="deploy.foreign_folder",
            hint="Give this recipe a deploy.dir of its own, or add --force to replace what is there.",
        )
    files = {
        path for path, entry in listing.items() if not entry.is_folder and not path.startswith(f"{RUNNER_LIBRARIES}/")
    }
    foreign = files - {*_DOCUMENTS, *leftovers}
    if foreign and not force and not found:
        # Without a document, as after somebody removed it, a file with exactly the content that is to be there is no loss to anybody.
        there = hashes(device, folder, to_hash(wanted, listing, {}))
        foreign -= {file.path for file in wanted if there.get(file.path) == file.sha256}
    if foreign and not force and not found:
        raise DeployError(
            f"{folder} on {device.serial} holds files that etcli did not put there: {', '.join(sorted(foreign)[:3])}",
            code="deploy.foreign_folder",
            hint="Choose another deploy.dir, remove them, or add --force to deploy beside them (they stay as they are).",
        )
    owned = {file.path: file for manifest in found.values() for file in manifest.files}
    return found.get(MANIFEST) if PENDING not in listing else None, tuple(owned.values())


def _check_space(device: Device, folder: str, plan: Plan) -> int | None:
    """Bytes free for the plan, None where it needs none.

    Raises:
        DeployError: they do not suffice, with the numbers.
    """
    if plan.space_bytes <= 0:
        return None
    need = int(plan.space_bytes * (1 + _HEADROOM))
    free = device.free_bytes(folder)
    if free < need:
        raise DeployError(
            f"{device.serial} has not enough space for {folder}: {need / 1e6:,.1f} MB needed "
            f"({plan.space_bytes / 1e6:,.1f} MB and 5 % to spare), {free / 1e6:,.1f} MB free",
            code="deploy.no_space",
            hint=room_hint(device, folder),
        )
    return free
