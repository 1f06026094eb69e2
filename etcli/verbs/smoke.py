"""`smoke`: export, build, deploy and run in order, then the device's tokens against the eager reference.

Stages whose output is current do nothing and say so. The run and the reference are never taken from an earlier time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import etcli
from etcli.build.stage import BuildOptions, build
from etcli.common.errors import DeployError, DeviceError, MismatchError, RunError, UsageError
from etcli.common.workspace import Workspace
from etcli.deploy.stage import DeployOptions, DeployResult, deploy
from etcli.device.base import Device
from etcli.device.builds import unfit_problem
from etcli.device.fit import fitting_targets
from etcli.device.lock import device_lock
from etcli.device.select import select_device
from etcli.export.result import ExportedFile, exported_files
from etcli.export.stage import ExportOptions, export
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.run_record import RunRecord
from etcli.output.console import Console
from etcli.output.junit import Case, Suite, write_junit
from etcli.recipe.completing import completed_hints
from etcli.recipe.loaded import LoadedRecipe
from etcli.run.binary import check_binary
from etcli.run.commands import commands_for
from etcli.run.prompt import open_bundle_tokenizer
from etcli.run.stage import RunOptions, run
from etcli.tables.targets import known_target
from etcli.verbs.comparison import Comparison, Difference, agreement, compare
from etcli.verbs.smoke_stages import CHECKS, Stage, Stages, binary_cases, program_cases


@dataclass(frozen=True)
class SmokeOptions:
    """How to choose the device and target, and where a JUnit report goes. `runner_binary` as in `RunOptions`, `ndk` and
    `executorch` as in `BuildOptions`."""

    serial: str | None = None
    virtual: str | None = None
    target: str | None = None
    junit: Path | None = None
    require_device: bool = False
    runner_binary: Path | None = None
    ndk: Path | None = None
    executorch: Path | None = None

    def build(self, target: str, *, dry_run: bool = False) -> BuildOptions:
        """The options of its build."""
        return BuildOptions(target=target, dry_run=dry_run, ndk=self.ndk, executorch=self.executorch)


class SmokeResult(RunRecord):
    """The run's record, with what the comparison found (see `Comparison`), the stages, and what was exported and sent."""

    reference_tokens: tuple[int, ...]
    matches: bool
    exact_matches: int
    largest_gap: float | None
    allowed_gap: float
    exact_needed: int
    first_difference: Difference | None
    stages: tuple[Stage, ...]
    bundle: str
    bundle_files: tuple[ExportedFile, ...]
    sent_bytes: int
    skipped_bytes: int


def smoke(loaded: LoadedRecipe, workspace: Workspace, options: SmokeOptions, console: Console) -> SmokeResult:
    """The whole way, and the proof of it.

    Raises:
        MismatchError: the device's tokens are not as the reference wants them; `etcli_result` of the error is the whole result.
        EtcliError: whatever a stage raises; its `etcli_result` has the `stages`, and the fields of the run's record where there is one.
            A JUnit report, where asked for, is written in every case.
    """
    stages = Stages(console, {"recipe": loaded.recipe.name, "etcli": etcli.__version__})
    # Written at once: a place that takes no report is known before the work, and a smoke that is killed leaves no older success.
    unfinished = Case("smoke", outcome="error", message="it did not come to its end", kind="smoke.unfinished")
    _report(options.junit, [Suite("smoke", (unfinished,))], stages.properties)
    try:
        result = _smoke(loaded, workspace, options, console, stages)
    except BaseException as error:
        if not isinstance(getattr(error, "etcli_result", None), SmokeResult):
            error.etcli_result = stages.failure(getattr(error, "etcli_result", None))  # type: ignore[attr-defined]
        try:
            _report(options.junit, stages.suites(), stages.properties, console)
        except UsageError as error:
            console.warn(str(error), code="smoke.junit")
        raise
    _report(options.junit, stages.suites(), stages.properties, console)
    return result


def _report(
    path: Path | None, suites: Sequence[Suite], properties: Mapping[str, str], console: Console | None = None
) -> None:
    if path is None:
        return
    try:
        write_junit(path, suites, properties)
    except OSError as error:
        if console is None and path.is_file():  # an earlier smoke's, which would be taken for this one's
            with contextlib.suppress(OSError):
                path.unlink()
        raise UsageError(
            f"the JUnit report {path} cannot be written: {error.strerror or error}",
            code="smoke.junit",
            hint="Name another file with --junit, or see to the folder's permissions and space.",
        ) from None
    if console is not None:
        console.note(f"JUnit report: {path}")


def choose_device(options: SmokeOptions, console: Console) -> Device:
    """The device given, or else the only one connected, or else the virtual one.

    Raises:
        DeviceError: several are connected; or none is physical although one is required.
    """
    virtual = options.virtual
    if options.require_device and virtual is not None:
        raise _no_physical_device("a virtual device was asked for")
    try:
        device = select_device(serial=options.serial, virtual=virtual, console=console)
    except DeviceError as error:
        nothing = {problem.code for problem in error.problems} == {"device.none"}
        if options.serial is not None or virtual is not None or options.require_device or not nothing:
            raise
        console.note("no device is connected: taking a virtual one")
        device = select_device(serial=None, virtual="virtual", console=console)
    if options.require_device and device.facts().emulated:
        raise _no_physical_device(f"{device.serial} is emulated")
    return device


def _smoke(
    loaded: LoadedRecipe, workspace: Workspace, options: SmokeOptions, console: Console, stages: Stages
) -> SmokeResult:
    device = stages.run("device", lambda: _device(options, console, stages), check=CHECKS["device"][0])
    target = stages.run("device", lambda: _target(loaded, device, options.target))
    with completed_hints(loaded, workspace, commands_for(device, RunOptions(target=target))):
        # An export may take long; what the build and the run after it lack is known before.
        ahead = options.build(target, dry_run=True)
        stages.run("build", lambda: build(loaded, workspace, ahead, console), check=CHECKS["build"][0], ahead=True)
        if (binary := options.runner_binary) is not None:
            check = f"{binary.name} is a program for {target}"
            stages.run("run", lambda: check_binary(binary, known_target(target)), check=check, ahead=True)
        bundle = stages.run("export", lambda: _export(loaded, workspace, console, stages))
        stages.run("build", lambda: _build(loaded, workspace, options.build(target), console, stages))
        with contextlib.ExitStack() as held:  # from the deployment to the end of the run nobody else's comes between
            lock = device_lock(device, f"smoke of {loaded.recipe.name}", console)
            stages.run("deploy", lambda: held.enter_context(lock), check="the device is free", ahead=True)
            deployed = stages.run("deploy", lambda: _deploy(loaded, workspace, device, target, console, stages))
            record = stages.run("run", lambda: _run(loaded, workspace, device, target, binary, console, stages))
        return stages.run("compare", lambda: _compare(loaded, workspace, bundle, deployed, record, console, stages))


def _device(options: SmokeOptions, console: Console, stages: Stages) -> Device:
    device = choose_device(options, console)
    facts = device.facts()
    emulated = ", emulated" if facts.emulated else ""
    console.detail(f"    {facts.serial}: {facts.model}, {facts.soc}, {facts.abi}, {facts.os}{emulated}")
    stages.properties["device"] = f"{facts.serial} ({facts.model}{emulated})"
    return device


def _target(loaded: LoadedRecipe, device: Device, target: str | None) -> str:
    target = None if target is None or target == "auto" else known_target(target).name
    fitting = fitting_targets(device)
    asked = target or (loaded.recipe.build.target if loaded.recipe.build.target != "auto" else None)
    if asked is not None:
        if asked not in fitting:
            raise DeployError.many([unfit_problem(asked, fitting, device)])
        return asked
    if not fitting:
        raise DeviceError(
            f"etcli has no target for {device.serial} ({device.facts().abi})",
            code="device.no_target",
            hint="Targets are listed in toolchains/targets.yaml; the device must have the ABI and the loader of one.",
        )
    return fitting[0]


def _export(loaded: LoadedRecipe, workspace: Workspace, console: Console, stages: Stages) -> BundleManifest:
    result = export(loaded, workspace, ExportOptions(jobs=None, only_chunks=None, force=False, dry_run=False), console)
    stages.current = result.current
    if result.current:
        console.note("export: current")
    if result.manifest is None:  # only a dry run or a part of the chunks gives none
        raise AssertionError("a whole export left no manifest")
    stages.more += program_cases(result)
    return result.manifest


def _build(loaded: LoadedRecipe, workspace: Workspace, options: BuildOptions, console: Console, stages: Stages) -> None:
    result = build(loaded, workspace, options, console)
    stages.current = result.current
    if result.manifest is not None:
        stages.more += binary_cases(result.manifest, current=result.current)


def _deploy(
    loaded: LoadedRecipe, workspace: Workspace, device: Device, target: str, console: Console, stages: Stages
) -> DeployResult:
    result = deploy(loaded, workspace, device, DeployOptions(target=target), console)
    stages.current = result.current
    return result


def _run(
    loaded: LoadedRecipe,
    workspace: Workspace,
    device: Device,
    target: str,
    binary: Path | None,
    console: Console,
    stages: Stages,
) -> RunRecord:
    # Tokens that were drawn prove nothing: a fair draw may give any of them.
    options = RunOptions(target=target, runner_binary=binary, greedy=True)
    if loaded.recipe.run.temperature > 0:
        console.note("smoke decodes greedily whatever run.temperature says: only that can be held to the reference")
    record = stages.record = run(loaded, workspace, device, options, console)
    if record.stop_reason == "timeout":
        raise RunError(
            f"the run was ended by run.timeout_s after {len(record.tokens)} tokens; there is nothing to compare",
            code="run.timeout",
            hint="Give it more time with --set run.timeout_s=SECONDS, or ask for less with --set run.max_new_tokens=N.",
        )
    return record


def _compare(
    loaded: LoadedRecipe,
    workspace: Workspace,
    bundle: BundleManifest,
    deployed: DeployResult,
    record: RunRecord,
    console: Console,
    stages: Stages,
) -> SmokeResult:
    with console.step("compare with the eager reference"):
        found = compare(
            loaded,
            record,
            open_bundle_tokenizer(bundle, workspace.bundle),
            cache_length=bundle.shapes[0].cache,
            stop_ids=bundle.model.stop_ids,
            console=console,
            graphs=[workspace.bundle / entry.path for entry in bundle.reference],
        )
    result = SmokeResult(
        **{name: getattr(record, name) for name in RunRecord.model_fields},
        **{name: getattr(found, name) for name in Comparison.model_fields},
        stages=stages.so_far(found.matches),
        bundle=str(workspace.bundle),
        bundle_files=exported_files(bundle),
        sent_bytes=deployed.sent_bytes,
        skipped_bytes=deployed.skipped_bytes,
    )
    if not found.matches:
        error = _mismatch(found)
        error.etcli_result = result  # type: ignore[attr-defined]
        raise error
    console.note(f"    {agreement(found, len(record.tokens))}")
    return result


def _mismatch(found: Comparison) -> MismatchError:
    gap = (
        ""
        if found.largest_gap is None
        else f", {found.largest_gap:.3g} below the best at most; allowed is {found.allowed_gap:g}"
    )
    if found.largest_gap is not None and found.exact_matches < found.exact_needed:
        gap += f"; {found.exact_matches} of {len(found.reference_tokens)} tokens are its own choice, and {found.exact_needed} must be"
    return MismatchError(
        f"the device's tokens differ from the reference's at {found.first_difference}{gap}",
        code="smoke.mismatch",
        hint="Export and build again (`etcli export --force`, then `etcli build --clean`); if it stays, the backend computes something else: "
        "--set export.backend=portable --set export.precision=fp32 tells whether it is the delegate.",
    )


def _no_physical_device(why: str) -> DeviceError:
    return DeviceError(
        f"no physical device: {why}",
        code="device.none",
        hint="Connect a phone with USB debugging on (`adb devices` must list it), or leave --require-device out.",
    )
