"""The run stage: prompt encoded here, the runner started on the device, its tokens streamed as text, the record kept."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
import shlex
from collections.abc import Callable, Iterator

from etcli.common.errors import DeviceError, EtcliError, InterruptedByUser
from etcli.common.workspace import Workspace
from etcli.device.base import Device
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.run_record import DeviceFacts, RunRecord
from etcli.output.console import Console
from etcli.output.units import counted, seconds_text
from etcli.recipe.loaded import LoadedRecipe
from etcli.run.capture import RECORD, Capture
from etcli.run.events import AnyEvent, Loaded, Note, Start
from etcli.run.failure import explain, never_answered
from etcli.run.options import RunOptions
from etcli.run.outcome import Answer, make_record
from etcli.run.preparing import (
    environment,
    files_there,
    holding,
    launch_of,
    make_job,
    open_bundle,
    place_program,
    runner_sha256,
    started,
)
from etcli.run.prompt import prompt_ids
from etcli.run.session import Session, run_program

__all__ = ["RunOptions", "run"]


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
    carried = open_bundle(loaded, workspace, options, console)
    bundle, tokenizer, runner = carried.bundle, carried.tokenizer, carried.runner
    text = options.prompt if options.prompt is not None else recipe.run.prompt
    ids = prompt_ids(tokenizer, bundle, text, chat=carried.chat, system=carried.system)
    most = carried.max_new_tokens
    _note_room(len(ids), most, bundle, console)
    job = make_job(loaded, carried, options, prompt=text, prompt_ids=ids)
    launch = launch_of(carried, job, console)

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
        holding(loaded, workspace, device, carried, options, console, what=f"run of {recipe.name}") as build,
        Capture(workspace.runs) as capture,
        console.step(f"run {recipe.name} on {device.serial} ({facts.model}{emulated})")
        if options.stream
        else contextlib.nullcontext(),
        files_there(device, folder, launch.files),
    ):
        program = place_program(loaded, device, runner, build, options)
        argv = [program.path, *launch.arguments]
        console.detail(f"    {shlex.join(argv)}")
        with _until_first_token(runner.activity, facts, len(ids), options, console) as tell:

            def on_event(event: AnyEvent) -> None:
                tell(event)
                answer.take(event)
                if options.on_event is not None:
                    options.on_event(event)

            try:
                session = run_program(
                    device,
                    runner.reader(job),
                    argv,
                    cwd=folder,
                    env=environment(build, folder, program),
                    timeout_s=recipe.run.timeout_s,
                    capture=capture,
                    on_event=on_event,
                )
            except DeviceError as error:
                raise _cut_off(error, len(answer.tokens), capture) from None
            finally:
                answer.finish()  # whatever is said next begins a line of its own
        if session.ended_by is None and (answer.stats is None or answer.failure is not None or session.code != 0):
            raise explain(device, facts, session, capture, started(program, runner, build, options))
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
                "runner_sha256": runner_sha256(options.runner_binary, build, runner),
                "sampling": carried.sampling,
            }
        )
        capture.record(record)
        if session.ended_by == "timeout" and not record.tokens:
            late = f"the run was ended after {recipe.run.timeout_s:g} s (run.timeout_s) before its first token"
            raise never_answered(device, session, capture, started(program, runner, build, options), late)
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
    note = " (emulated: about a minute)" if slow else ""
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
            f"run interrupted after {counted(len(record.tokens), 'token')}; the program on {record.device.serial} has been ended",
            code="interrupted",
            hint=f"What there was is in {capture.folder / RECORD}",
        )
        error.etcli_result = record  # type: ignore[attr-defined]
        raise error
    if record.stop_reason == "timeout":
        console.warn(
            f"the run was ended after {timeout_s:g} s (run.timeout_s) with {counted(len(record.tokens), 'token')}",
            code="run.timeout",
        )
    return record


def _cut_off(error: DeviceError, tokens: int, capture: Capture) -> EtcliError:
    """`error`, which ended a run, with what there is of it."""
    kept = f"What it printed until then is in {capture.folder}"
    return DeviceError.many(
        dataclasses.replace(
            problem,
            message=f"{problem.message} after {counted(tokens, 'token')}",
            hint=f"{problem.hint}\n{kept}" if problem.hint else kept,
        )
        for problem in error.problems
    )


def _note_room(prompt_tokens: int, most: int, bundle: BundleManifest, console: Console) -> None:
    cache = bundle.shapes[0].cache
    if prompt_tokens + most > cache:
        console.note(
            f"the cache of {cache} tokens ends the answer after at most {cache - prompt_tokens + 1} of {most} tokens "
            f"(the prompt has {prompt_tokens})"
        )
