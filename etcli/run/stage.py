"""The run stage: prompt encoded here, the runner started on the device, its tokens streamed as text, the record kept."""

from __future__ import annotations

import contextlib
import platform
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import EtcliError, InterruptedByUser, RunError, StaleError
from etcli.common.hashing import file_sha256
from etcli.common.workspace import Workspace
from etcli.device.base import Device
from etcli.device.builds import LocalBuild, choose_build
from etcli.device.cpu import check_cpu
from etcli.device.deployed import deployment_difference, folder_problem, read_deployment
from etcli.device.platform import check_platform
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.run_record import DeviceFacts, RunRecord
from etcli.output.console import Console, Warn
from etcli.output.units import seconds_text
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.outdated import MANIFEST, command_line, require_bundle
from etcli.run.binary import Placed, place_binary
from etcli.run.capture import RECORD, Capture
from etcli.run.events import AnyEvent, Loaded, Note, Start
from etcli.run.failure import explain
from etcli.run.outcome import Answer, make_record
from etcli.run.prompt import open_bundle_tokenizer, prompt_ids
from etcli.run.runners import RUNNERS, Job, Runner
from etcli.run.session import Session, run_program
from etcli.toolchain.neuropilot import device_libraries

__all__ = ["RunOptions", "run"]


@dataclass(frozen=True)
class RunOptions:
    """How to run; None stands for the recipe's value.

    `runner_binary` replaces the deployed program for this run. `bundle` is the bundle that was deployed, by default the workspace's.
    `ignore_stop_ids` goes on to `max_new_tokens`, for measurements; `stream` says whether the text is shown as it comes; `on_event` gets
    each event of the runner that passed the checks, as it comes.
    """

    prompt: str | None = None
    max_new_tokens: int | None = None
    chat: bool | None = None
    runner_binary: Path | None = None
    target: str | None = None
    stale_ok: bool = False
    force: bool = False
    bundle: Path | None = None
    ignore_stop_ids: bool = False
    stream: bool = True
    on_event: Callable[[AnyEvent], None] | None = None


def run(loaded: LoadedRecipe, workspace: Workspace, device: Device, options: RunOptions, console: Console) -> RunRecord:
    """Run what is deployed. Everything the runner printed is kept in `<workspace>/<name>/runs/<time>/`, with the record.

    A run that reached `run.timeout_s` is ended on the device and returned with stop reason `timeout` and the tokens it gave.

    Raises:
        StaleError: bundle or build is missing or outdated, or the device does not hold them.
        UsageError: the prompt is empty or too long for the cache.
        DeployError: the bundle's platform is not the device's.
        RunError: the device's CPU lacks what the build uses; the runner failed, was killed, or printed what its protocol does not allow.
        DeviceError: the device cannot be reached.
        InterruptedByUser: Ctrl-C; the program on the device has been ended and the record kept.
    """
    recipe = loaded.recipe
    problem = folder_problem(recipe.device_dir)
    if problem is not None:
        raise EtcliError.many([problem])
    bundle_folder = options.bundle or workspace.bundle
    bundle = require_bundle(loaded, workspace, bundle_folder, stale_ok=options.stale_ok, console=console)
    runner = RUNNERS[recipe.run.runner]
    text = options.prompt if options.prompt is not None else recipe.run.prompt
    chat = recipe.run.chat if options.chat is None else options.chat
    tokenizer = open_bundle_tokenizer(bundle, bundle_folder)
    ids = prompt_ids(tokenizer, bundle, text, chat=chat, system=recipe.run.system)
    most = options.max_new_tokens or recipe.run.max_new_tokens
    _note_room(len(ids), most, bundle, console)
    job = Job(
        bundle=bundle,
        bundle_folder=bundle_folder,
        tokenizer=tokenizer,
        prompt=text,
        chat=chat,
        system=recipe.run.system,
        prompt_ids=ids,
        max_new_tokens=most,
        threads=recipe.run.threads,
        ignore_stop_ids=options.ignore_stop_ids,
        forced=options.force,
    )
    launch = runner.launch(job)
    for remark in launch.remarks:
        if Warn(remark.code, remark.message) not in console.warnings:  # a benchmark runs several times
            console.warn(remark.message, code=remark.code)
    build = choose_build(
        loaded,
        workspace,
        device,
        target=options.target,
        stale_ok=options.stale_ok,
        force=options.force,
        console=console,
    )
    rebuild = command_line("build", loaded, workspace, "--target", build.target)
    check_platform(bundle, build.manifest, device, rebuild=rebuild, force=options.force, console=console)
    check_cpu(build.manifest, device, rebuild=rebuild, force=options.force, console=console)
    _check_deployed(loaded, workspace, device, runner, file_sha256(bundle_folder / MANIFEST), build, options, console)

    folder = recipe.device_dir
    answer = Answer(
        prompt_tokens=len(ids),
        max_new_tokens=most,
        vocab_size=bundle.model.vocab_size,
        stop_ids=launch.stop_ids,
        stream=tokenizer.stream(),
        write=console.write if options.stream else lambda _: None,
    )
    facts = device.facts()
    emulated = ", emulated" if facts.emulated else ""
    with (
        Capture(workspace.runs) as capture,
        console.step(f"run {recipe.name} on {device.serial} ({facts.model}{emulated})")
        if options.stream
        else contextlib.nullcontext(),
        _files(device, folder, launch.files),
    ):
        program = Placed(f"{folder}/bin/{runner.program}")
        if options.runner_binary is not None:
            others = device_libraries(loaded) if runner.opens else ()
            program = place_binary(device, folder, options.runner_binary, build.manifest, runner.opens, others)
        argv = [program.path, *launch.arguments]
        console.detail(f"    {shlex.join(argv)}")
        with _until_first_token(runner.activity, facts, len(ids), options, console) as tell:

            def on_event(event: AnyEvent) -> None:
                tell(event)
                answer.take(event)
                if options.on_event is not None:
                    options.on_event(event)

            session = run_program(
                device,
                runner.reader(job),
                argv,
                cwd=folder,
                env=_environment(build, folder, program),
                timeout_s=recipe.run.timeout_s,
                capture=capture,
                on_event=on_event,
            )
        answer.finish()
        if session.ended_by is None and (answer.stats is None or answer.failure is not None or session.code != 0):
            raise explain(device, facts, session, answer, capture, runner.explain)
        record = make_record(
            recipe.name,
            runner=recipe.run.runner,
            target=build.target,
            prompt=text,
            prompt_ids=ids,
            answer=answer,
            session=session,
            device=facts,
        ).model_copy(
            update={
                "simulated": bundle.simulated,
                "quality": bundle.quality,
                "runner_sha256": _runner_sha256(options.runner_binary, build, runner),
            }
        )
        capture.record(record)
        console.detail(f"    kept in {capture.folder}")
    return _ended(record, session, capture, recipe.run.timeout_s, console)


@contextlib.contextmanager
def _until_first_token(
    activity: str, facts: DeviceFacts, prompt_tokens: int, options: RunOptions, console: Console
) -> Iterator[Callable[[AnyEvent], None]]:
    """Says what the runner is at until it gives its first token. Yields what takes its events."""
    if not options.stream:  # whoever does not show the text shows something of their own
        yield lambda _: None
        return
    # A virtual device of this machine's own architecture runs as fast as the machine.
    slow = facts.emulated and facts.abi == "arm64-v8a" and platform.machine() not in ("aarch64", "arm64")
    note = " (instructions are emulated: it may take about a minute)" if slow else ""
    with console.waiting(activity) as tell:

        def take(event: AnyEvent) -> None:
            if isinstance(event, Loaded):
                tell(f"loaded in {seconds_text(event.load_s)}; prefill of {prompt_tokens} tokens{note}")
            elif not isinstance(event, (Start, Note)):
                tell(None)

        yield take


def _ended(
    record: RunRecord, session: Session, capture: Capture, timeout_s: float | None, console: Console
) -> RunRecord:
    """The record, or what an early end means for the command."""
    if session.ended_by == "interrupted":
        error = InterruptedByUser(
            f"run interrupted after {len(record.tokens)} tokens; the program on {record.device.serial} has been ended",
            code="interrupted",
            hint=f"What there was is in {capture.folder / RECORD}",
        )
        error.etcli_result = record  # type: ignore[attr-defined]
        raise error
    if record.stop_reason == "timeout":
        message = f"the run was ended after {timeout_s:g} s (run.timeout_s) with {len(record.tokens)} tokens"
        if not record.tokens:
            raise RunError(
                message,
                code="run.timeout",
                hint="Give it more time with --set run.timeout_s=SECONDS; its messages are in the file.",
                file=capture.folder,
            )
        console.warn(message, code="run.timeout")
    return record


def _note_room(prompt_tokens: int, most: int, bundle: BundleManifest, console: Console) -> None:
    cache = bundle.shapes[0].cache
    if prompt_tokens + most > cache:
        console.note(
            f"the cache of {cache} tokens ends the answer after at most {cache - prompt_tokens + 1} of {most} tokens "
            f"(the prompt has {prompt_tokens})"
        )


def _check_deployed(
    loaded: LoadedRecipe,
    workspace: Workspace,
    device: Device,
    runner: Runner,
    bundle_sha256: str,
    build: LocalBuild,
    options: RunOptions,
    console: Console,
) -> None:
    folder = loaded.recipe.device_dir
    deployed = read_deployment(device, folder)
    difference = deployment_difference(
        deployed,
        name=loaded.recipe.name,
        bundle_sha256=bundle_sha256,
        target=build.target,
        build_sha256=build.sha256,
    )
    words = ["--target", options.target] if options.target else []
    words += ["--bundle", str(options.bundle)] if options.bundle else []
    if difference is not None:
        if not options.stale_ok or deployed is None:
            raise StaleError(
                f"{folder} on {device.serial} is not what this recipe deploys: {difference}",
                code="deploy.missing" if deployed is None else "deploy.outdated",
                hint=f"Run: {command_line('deploy', loaded, workspace, *words)}",
            )
        console.warn(f"running an outdated deployment: {difference}", code="deploy.outdated")
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


def _runner_sha256(binary: Path | None, build: LocalBuild, runner: Runner) -> str | None:
    """Of the program that was run: the user's, or the one that was deployed from the build."""
    if binary is not None:
        return file_sha256(binary)
    return next((file.sha256 for file in build.manifest.stage if file.path == runner.program), None)


def _environment(build: LocalBuild, folder: str, program: Placed) -> dict[str, str]:
    """Libraries that were staged or sent beside the programs are found there, whatever run path they were linked with."""
    staged = any(file.path.endswith(".so") or ".so." in file.path for file in build.manifest.stage)
    folders = [*([program.libraries] if program.libraries else []), *([f"{folder}/bin"] if staged else [])]
    return {"LD_LIBRARY_PATH": ":".join(folders)} if folders else {}


@contextlib.contextmanager
def _files(device: Device, folder: str, files: Mapping[str, bytes]) -> Iterator[None]:
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
