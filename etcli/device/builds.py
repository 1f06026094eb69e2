"""Which build of a workspace a device can run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from etcli.common.errors import DeployError, DeviceError, Problem, StaleError
from etcli.common.hashing import file_sha256
from etcli.common.workspace import Workspace
from etcli.device.base import Device
from etcli.device.fit import fitting_targets
from etcli.manifests.build import BuildManifest
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import MANIFEST, build_outdated, command_line, stale_problem
from etcli.tables.targets import known_target


@dataclass(frozen=True)
class LocalBuild:
    """A build in the workspace; `sha256` is that of its manifest file, by which a device's deployment is told to be of this build."""

    folder: Path
    manifest: BuildManifest
    sha256: str

    @property
    def target(self) -> str:
        """The target's name, as `linux-aarch64`."""
        return self.manifest.target

    @property
    def stage(self) -> Path:
        """The folder of everything to be pushed."""
        return self.folder / "stage"


class BuildChoice(Protocol):
    """The options of a verb that say which build it takes.

    `target` is one of etcli's, `auto` or None; with `stale_ok` an outdated build is only a warning, with `force` a target that does not fit the
    device or a build for a later Android is.
    """

    @property
    def target(self) -> str | None: ...

    @property
    def stale_ok(self) -> bool: ...

    @property
    def force(self) -> bool: ...


def choose_build(
    loaded: LoadedRecipe,
    workspace: Workspace,
    device: Device,
    options: BuildChoice,
    console: Console,
) -> LocalBuild:
    """The build for `device`: that of `options.target`, or else the newest one that fits the device.

    Raises:
        UsageError: there is no such target as `options.target`.
        StaleError: there is no such build, or it is outdated; the hint is the `etcli build` line.
        DeployError: the target does not fit the device, or the build is for a later Android than the device's.
        DeviceError: no target of etcli fits the device.
    """
    target = None if options.target is None or options.target == "auto" else known_target(options.target).name
    fitting = fitting_targets(device)
    if target is not None:
        if target not in fitting:
            problem = unfit_problem(target, fitting, device)
            if not options.force:
                raise DeployError.many([problem])
            console.warn(problem.message, code=problem.code)
        wanted = [target]
    else:
        if not fitting:
            facts = device.facts()
            raise DeviceError(
                f"etcli has no target for {device.serial} ({facts.model}, {facts.abi})",
                code="device.no_target",
                hint="Targets are listed in toolchains/targets.yaml; the device must have the ABI and the loader of one.",
            )
        wanted = fitting
    found = [build for name in wanted if (build := _read(workspace.build(name))) is not None]
    if not found:
        command = command_line("build", loaded, workspace, "--target", wanted[0])
        raise StaleError(
            f"there is no build for {device.serial} (target {' or '.join(wanted)}) in {workspace.builds}",
            code="build.missing",
            hint=f"Run: {command}",
        )
    found.sort(key=lambda build: (build.folder / MANIFEST).stat().st_mtime_ns, reverse=True)
    build = found[0]
    if len(found) > 1:
        others = ", ".join(other.target for other in found[1:])
        console.note(f"several builds fit the device: taking the newest, {build.target} (also there: {others})")
    why = build_outdated(loaded, build.manifest)
    if why is not None:
        if not options.stale_ok:
            command = command_line("build", loaded, workspace, "--target", build.target)
            raise StaleError.many([stale_problem(f"build for {build.target}", why, command)])
        console.warn(f"using an outdated build for {build.target}: {why}", code="build.outdated")
    if (later := api_level_problem(build.manifest, device)) is not None:
        if not options.force:
            raise DeployError.many([later])
        console.warn(later.message, code=later.code)
    return build


def _read(folder: Path) -> LocalBuild | None:
    path = folder / MANIFEST
    try:
        manifest = BuildManifest.read(path, error=StaleError)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return LocalBuild(folder, manifest, file_sha256(path))


def api_level_problem(manifest: BuildManifest, device: Device) -> Problem | None:
    """The problem of a build for a later Android than the device's, whose loader would miss functions; None where the device has them all."""
    said = device.properties().get("ro.build.version.sdk", "")
    if manifest.api_level is None or not said.isdecimal() or int(said) >= manifest.api_level:
        return None
    lowest = known_target(manifest.target).api_level or 0
    hint = (
        f"Build for it: --target {manifest.target} --set build.api_level={said}, without operators that need more."
        if int(said) >= lowest
        else f"Runners are built for API level {lowest} and above: choose another device with --serial."
    )
    return DeployError.problem(
        f"the build is for Android API level {manifest.api_level}, {device.serial} has {said}",
        code="deploy.api_level",
        hint=hint,
    )


def unfit_problem(target: str, fitting: list[str], device: Device) -> Problem:
    """The problem of a `target` whose programs the device cannot start; `fitting` are those it can."""
    fits = f"it runs {' and '.join(fitting)}" if fitting else "no target of etcli fits it"
    return DeployError.problem(
        f"target {target} does not fit {device.serial} ({device.facts().abi}): {fits}",
        code="deploy.target_unfit",
        hint="Leave --target out to use the build that fits, choose another device with --serial, or add --force.",
    )
