"""What stands between a recipe and a program that can be started on the device: bundle, build and deployment, found and held against each other."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import EtcliError, StaleError
from etcli.common.hashing import file_sha256
from etcli.common.workspace import Workspace
from etcli.device.base import Device
from etcli.device.builds import LocalBuild, choose_build
from etcli.device.cpu import check_cpu
from etcli.device.deployed import changes, deployment_difference, folder_problem, read_deployment
from etcli.device.listing import list_folder
from etcli.device.lock import device_lock
from etcli.device.platform import check_platform
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.run_record import Sampling
from etcli.output.console import Console
from etcli.recipe.completing import completed_hints
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import MANIFEST, command_line, require_bundle
from etcli.run.binary import Placed, place_binary
from etcli.run.commands import commands_for
from etcli.run.failure import Started
from etcli.run.options import RunOptions
from etcli.run.prompt import open_bundle_tokenizer
from etcli.run.runners import RUNNERS, Job, Launch, Runner
from etcli.tokenizer.base import Tokenizer
from etcli.toolchain.neuropilot import device_libraries


@dataclass(frozen=True)
class Carried:
    """The bundle that is meant, and how the recipe and the options want it run."""

    bundle: BundleManifest
    folder: Path
    tokenizer: Tokenizer
    runner: Runner
    chat: bool
    system: str | None
    max_new_tokens: int
    sampling: Sampling | None

    @property
    def cache(self) -> int:
        """Tokens that a prompt and its answer have room for."""
        return self.bundle.shapes[0].cache


def open_bundle(loaded: LoadedRecipe, workspace: Workspace, options: RunOptions, console: Console) -> Carried:
    """Everything that is known without the device.

    Raises:
        StaleError: the bundle is missing or outdated.
        UsageError: the recipe's folder on the device may not be used.
        CheckpointError: the bundle's tokenizer cannot be read.
    """
    recipe = loaded.recipe
    problem = folder_problem(recipe.device_dir)
    if problem is not None:
        raise EtcliError.many([problem])
    folder = options.bundle or workspace.bundle
    bundle = require_bundle(loaded, workspace, folder, stale_ok=options.stale_ok, console=console)
    with completed_hints(loaded, workspace, {}):
        tokenizer = open_bundle_tokenizer(bundle, folder)
    temperature = recipe.run.temperature if options.temperature is None else options.temperature
    if temperature == 0 and not options.greedy:
        _remark_on_greedy(loaded, options, console)
    return Carried(
        bundle=bundle,
        folder=folder,
        tokenizer=tokenizer,
        runner=RUNNERS[recipe.run.runner],
        chat=recipe.run.chat if options.chat is None else options.chat,
        system=recipe.run.system if options.system is None else options.system,
        max_new_tokens=options.max_new_tokens or recipe.run.max_new_tokens,
        sampling=None
        if options.greedy or temperature == 0
        else Sampling(
            temperature=temperature,
            top_p=recipe.run.top_p if options.top_p is None else options.top_p,
            seed=recipe.run.seed if options.seed is None else options.seed,
        ),
    )


def _remark_on_greedy(loaded: LoadedRecipe, options: RunOptions, console: Console) -> None:
    """Say that a seed or a nucleus was asked for, and that greedy decoding has no use for it."""
    idle = [flag for flag, value in (("--top-p", options.top_p), ("--seed", options.seed)) if value is not None]
    if options.temperature is None:
        run = loaded.recipe.run
        idle += [key for key, asked in (("run.top_p", run.top_p != 1), ("run.seed", run.seed != 0)) if asked]
    if idle:
        console.warn(
            f"{' and '.join(idle)} {'change' if len(idle) > 1 else 'changes'} nothing: at temperature 0 the likeliest token is taken; "
            "add a temperature, such as --temperature 0.7",
            code="run.greedy",
        )


def make_job(
    loaded: LoadedRecipe,
    carried: Carried,
    options: RunOptions,
    *,
    prompt: str = "",
    prompt_ids: tuple[int, ...] = (),
    interactive: bool = False,
) -> Job:
    """What the runner is asked."""
    return Job(
        bundle=carried.bundle,
        bundle_folder=carried.folder,
        tokenizer=carried.tokenizer,
        prompt=prompt,
        chat=carried.chat,
        system=carried.system,
        prompt_ids=prompt_ids,
        max_new_tokens=carried.max_new_tokens,
        threads=loaded.recipe.run.threads,
        sampling=carried.sampling,
        ignore_stop_ids=options.ignore_stop_ids,
        interactive=interactive,
        forced=options.force,
    )


def launch_of(carried: Carried, job: Job, console: Console) -> Launch:
    """How the runner is started, after what it has to say about that.

    Raises:
        UsageError: it cannot do this job.
    """
    launch = carried.runner.launch(job)
    for remark in launch.remarks:
        console.warn(remark.message, code=remark.code)
    return launch


@contextlib.contextmanager
def holding(
    loaded: LoadedRecipe,
    workspace: Workspace,
    device: Device,
    carried: Carried,
    options: RunOptions,
    console: Console,
    *,
    what: str,
) -> Iterator[LocalBuild]:
    """`device` to ourselves while the block runs, and the build for it, which it holds with the bundle.

    Two programs at once would slow one another down and may not fit into its memory, and a deployment would change what they read.

    Args:
        what: as `run of NAME`, for others that wait.

    Raises:
        StaleError: the build is missing or outdated, or the device does not hold both.
        DeployError: the bundle's platform is not the device's.
        RunError: the device's CPU lacks what the build uses.
        DeviceError: the device is gone, or in use for too long.
    """
    commands = commands_for(device, options)
    with completed_hints(loaded, workspace, commands):
        build = choose_build(loaded, workspace, device, options, console)
        commands["build"] = ("--target", build.target)
        rebuild = command_line("build", loaded, workspace, *commands["build"])
        check_platform(carried.bundle, build.manifest, device, rebuild=rebuild, force=options.force, console=console)
        check_cpu(build.manifest, device, rebuild=rebuild, force=options.force, console=console)
        with device_lock(device, what, console):
            _check_deployed(loaded, workspace, device, carried, build, options, console)
            yield build


def place_program(
    loaded: LoadedRecipe, device: Device, runner: Runner, build: LocalBuild, options: RunOptions
) -> Placed:
    """The program to start: the deployed one, or the user's own, sent as far as the device lacks it."""
    folder = loaded.recipe.device_dir
    if options.runner_binary is None:
        return Placed(f"{folder}/bin/{runner.program}")
    others = device_libraries(loaded) if runner.opens else ()
    return place_binary(device, folder, options.runner_binary, build.manifest, runner.opens, others)


def started(program: Placed, runner: Runner, build: LocalBuild, options: RunOptions) -> Started:
    """What is known of the program, should it fail."""
    return Started(
        path=program.path,
        own=options.runner_binary is not None,
        speaks=runner is RUNNERS["etcli"],
        told=runner.explain,
        backends=build.manifest.backends,
    )


def runner_sha256(binary: Path | None, build: LocalBuild, runner: Runner) -> str | None:
    """Of the program that was run: the user's, or the one that was deployed from the build."""
    if binary is not None:
        return file_sha256(binary)
    return next((file.sha256 for file in build.manifest.stage if file.path == runner.program), None)


def environment(build: LocalBuild, folder: str, program: Placed) -> dict[str, str]:
    """Libraries that were staged or sent beside the programs are found there, whatever run path they were linked with."""
    staged = any(file.path.endswith(".so") or ".so." in file.path for file in build.manifest.stage)
    folders = [*([program.libraries] if program.libraries else []), *([f"{folder}/bin"] if staged else [])]
    return {"LD_LIBRARY_PATH": ":".join(folders)} if folders else {}


@contextlib.contextmanager
def files_there(device: Device, folder: str, files: Mapping[str, bytes]) -> Iterator[None]:
    """`files` by name in `folder` of the device while the block runs."""
    with tempfile.TemporaryDirectory(prefix="etcli-") as scratch:
        for name, content in files.items():
            local = Path(scratch) / "file"
            local.write_bytes(content)
            device.push(local, f"{folder}/{name}")
    try:
        yield
    finally:
        if files:
            with contextlib.suppress(EtcliError):
                device.shell(["rm", "-f", *(f"{folder}/{name}" for name in files)])


def _check_deployed(
    loaded: LoadedRecipe,
    workspace: Workspace,
    device: Device,
    carried: Carried,
    build: LocalBuild,
    options: RunOptions,
    console: Console,
) -> None:
    folder, runner = loaded.recipe.device_dir, carried.runner
    deployed = read_deployment(device, folder)
    difference = deployment_difference(
        deployed,
        name=loaded.recipe.name,
        bundle_sha256=file_sha256(carried.folder / MANIFEST),
        target=build.target,
        build_sha256=build.sha256,
    )
    words = commands_for(device, options)["deploy"]
    if difference is not None:
        if not options.stale_ok or deployed is None:
            raise StaleError(
                f"{folder} on {device.serial} is not what this recipe deploys: {difference}",
                code="deploy.missing" if deployed is None else "deploy.outdated",
                hint=f"Run: {command_line('deploy', loaded, workspace, *words)}",
            )
        console.warn(f"running an outdated deployment: {difference}", code="deploy.outdated")
    changed = changes(deployed, list_folder(device, folder)) if deployed is not None else []
    if changed:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        what = f"since etcli deployed {folder} on {device.serial}: {', '.join(changed[:5])}{more}"
        if not options.stale_ok:
            raise StaleError(
                what,
                code="deploy.changed",
                hint=f"Run: {command_line('deploy', loaded, workspace, *words)} (it sends again what differs), "
                "or add --stale-ok to run what is there.",
            )
        console.warn(what, code="deploy.changed")
    if (
        options.runner_binary is None
        and deployed is not None
        and f"bin/{runner.program}" not in {file.path for file in deployed.files}
    ):
        raise StaleError(
            f"the deployment in {folder} on {device.serial} has no {runner.program}",
            code="deploy.no_runner",
            hint=runner.missing_hint
            or f"Run: {command_line('build', loaded, workspace, '--target', build.target)}, then deploy again.",
        )
