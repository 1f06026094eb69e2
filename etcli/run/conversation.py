"""`run --interactive`: a conversation with one runner that stays, so that what was said before stays in its cache."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Literal, Protocol

from etcli.common.errors import EtcliError, InterruptedByUser, UsageError
from etcli.common.workspace import Workspace
from etcli.device.base import Device
from etcli.device.builds import LocalBuild
from etcli.manifests.run_record import ConversationRecord, RunRecord, StopReason
from etcli.output.console import Console
from etcli.output.units import seconds_text
from etcli.recipe.loaded import LoadedRecipe
from etcli.run.capture import RECORD, Capture
from etcli.run.dialogue import Dialogue, Turn
from etcli.run.events import Kept, Loaded, Stats
from etcli.run.options import RunOptions
from etcli.run.outcome import Answer, bad_output, make_record
from etcli.run.preparing import (
    Carried,
    environment,
    holding,
    launch_of,
    make_job,
    open_bundle,
    place_program,
    runner_sha256,
    started,
)
from etcli.run.session import Session
from etcli.run.talk import STOP_SECONDS, Interrupts, Talk

NEW, HELP, QUIT = "/new", "/help", ("/quit", "/exit", "/bye")
"""What is typed to begin a new conversation, to see what can be typed, and to end."""

_COMMANDS = f"{NEW} begins a new conversation, {QUIT[0]} or Ctrl-D ends it; Ctrl-C ends an answer"
_COMMAND = re.compile(r"/[A-Za-z?]*")

_LOOK_SECONDS = 0.2
"""How often a wait for the answer is left to see whether it should end."""


class Asking(Protocol):
    """Where the user's words come from."""

    @property
    def by_hand(self) -> bool:
        """Whether a person types them: what is refused is told then, and asked anew; Ctrl-C ends an answer, not everything."""

    def next(self) -> str | None:
        """The next words, waited for, or None at the end.

        Raises:
            KeyboardInterrupt: Ctrl-C.
        """


def converse(
    loaded: LoadedRecipe, workspace: Workspace, device: Device, options: RunOptions, asking: Asking, console: Console
) -> ConversationRecord:
    """Answer the words of `asking` until there are none. Kept as a run is, see `etcli.run.stage.run`.

    `run.timeout_s` counts for each turn, and for loading.

    Raises:
        UsageError: words that are too many for the cache, where no person could be told.
        EtcliError: as `run`.
    """
    carried = open_bundle(loaded, workspace, options, console)
    dialogue = Dialogue(carried.tokenizer, carried.bundle, carried.chat, carried.system)
    first = None if asking.by_hand else asking.next()
    while first is not None and first.strip() == NEW:  # there is no conversation yet that this could end
        first = asking.next()
    if first is not None and first.strip() in QUIT:
        first = None
    turn = None if first is None else dialogue.ask(first)  # what cannot be asked is refused before anything is loaded
    job = make_job(loaded, carried, options, interactive=True)
    launch = launch_of(carried, job, console)
    what = f"conversation with {loaded.recipe.name}"
    if first is None and not asking.by_hand:
        with holding(loaded, workspace, device, carried, options, console, what=what):
            return ConversationRecord(name=loaded.recipe.name, turns=())
    facts, timeout_s = device.facts(), loaded.recipe.run.timeout_s
    emulated = ", emulated" if facts.emulated else ""
    with (
        holding(loaded, workspace, device, carried, options, console, what=what) as build,
        Capture(workspace.runs) as capture,
        console.step(f"conversation with {loaded.recipe.name} on {device.serial} ({facts.model}{emulated})"),
    ):
        program = place_program(loaded, device, carried.runner, build, options)
        with device.open(
            [program.path, *launch.arguments],
            cwd=loaded.recipe.device_dir,
            env=environment(build, loaded.recipe.device_dir, program),
            feed=True,
        ) as stream:
            talk = Talk(
                device,
                facts,
                stream,
                carried.runner.reader(job),
                capture,
                timeout_s,
                started(program, carried.runner, build, options),
            )
            host = _Host(loaded, build, carried, options, dialogue, talk, console)
            try:
                host.load()
                host.turns(asking, turn)
                talk.quit()
            except KeyboardInterrupt:
                error = InterruptedByUser(
                    f"conversation interrupted; the program on {device.serial} has been ended",
                    code="interrupted",
                    hint=f"What there was is in {capture.folder / RECORD}",
                )
                error.etcli_result = host.record()  # type: ignore[attr-defined]
                raise error from None
            except EtcliError as error:
                error.etcli_result = host.record()  # type: ignore[attr-defined]
                raise
            finally:
                talk.end()
                capture.record(host.record())
        console.detail(f"    kept in {capture.folder}")
    return host.record()


@dataclass
class _Host:
    """Turn after turn of a conversation."""

    loaded: LoadedRecipe
    build: LocalBuild
    carried: Carried
    options: RunOptions
    dialogue: Dialogue
    talk: Talk
    console: Console
    done: list[RunRecord] = field(default_factory=list)

    def record(self) -> ConversationRecord:
        """What there was so far."""
        return ConversationRecord(name=self.loaded.recipe.name, turns=tuple(self.done))

    def load(self) -> None:
        """Wait until the model is loaded."""
        with self.console.waiting(self.carried.runner.activity) as tell:
            try:
                for event in self.talk.events(self.talk.limit()):
                    if isinstance(event, Loaded):
                        self.talk.loaded = event
                        tell(f"loaded in {seconds_text(event.load_s)}")
                        return
            except TimeoutError:
                raise self.talk.late(
                    f"the model was not loaded within {self.talk.timeout_s:g} s (run.timeout_s)"
                ) from None

    def turns(self, asking: Asking, turn: Turn | None) -> None:
        """Answer until there is nothing more to be said."""
        if asking.by_hand:
            self.console.note(f"    {_COMMANDS}")
        while True:
            if turn is None:
                words = asking.next()
                if words is None:
                    return
                command = words.strip()
                if command in QUIT:
                    return
                if command == NEW:
                    self.dialogue.forget()
                    if asking.by_hand:
                        self.console.note("    a new conversation")
                    continue
                if not command:
                    continue
                if asking.by_hand and words.startswith("/") and _COMMAND.fullmatch(command):
                    said = (
                        ""
                        if command in (HELP, "/", "/?")
                        else f"there is no {command}; with a space before it, it is said. "
                    )
                    self.console.note(f"    {said}{_COMMANDS}. A line that ends in \\ goes on in the next")
                    continue
                try:
                    turn = self.dialogue.ask(words)
                except UsageError as error:
                    if not asking.by_hand:
                        raise
                    for problem in error.problems:
                        self.console.note(f"{problem.message}. {problem.hint}")
                    continue
            self._answer(turn, by_hand=asking.by_hand)
            turn = None

    def _answer(self, turn: Turn, *, by_hand: bool) -> None:
        kept = self._keep(turn)
        answer = Answer(
            prompt_tokens=len(turn.ids) - kept,
            max_new_tokens=self.carried.max_new_tokens,
            vocab_size=self.carried.bundle.model.vocab_size,
            stop_ids=self.carried.bundle.model.stop_ids,
            stream=self.carried.tokenizer.stream(),
            write=self.console.write,
            may_be_stopped=True,
            loaded=self.talk.loaded,
        )
        ids = ",".join(map(str, turn.ids[kept:]))
        self.talk.send(f"prompt {self.carried.max_new_tokens} {ids}")
        try:
            ended = self._listen(answer, by_hand=by_hand)
        finally:
            answer.finish()  # whatever is said next begins a line of its own
        tokens = [token.id for token in answer.tokens]
        held = None if answer.stats is None else answer.stats.conversation_tokens
        if held not in (0, len(turn.ids) + len(tokens)):
            raise bad_output(
                f"the runner counts {held} tokens of a conversation that has {len(turn.ids) + len(tokens)}"
            )
        self.dialogue.answered(turn, tokens, answer.text, held or 0)
        self._add(turn, answer, ended, kept)

    def _keep(self, turn: Turn) -> int:
        """Have the model forget what is not the same in `turn`; returns how many tokens it then has."""
        if turn.kept == len(self.dialogue.held):
            return turn.kept
        self.talk.send(f"keep {turn.kept}")
        for event in self.talk.events(time.monotonic() + STOP_SECONDS):
            if isinstance(event, Kept):
                if event.tokens not in (0, turn.kept):
                    raise bad_output(f"the runner kept {event.tokens} tokens where {turn.kept} were to be kept")
                self.dialogue.held = self.dialogue.held[: event.tokens]
                return event.tokens
            self.talk.unexpected(event)
        raise RuntimeError("the events end in an error alone")

    def _listen(self, answer: Answer, *, by_hand: bool) -> Literal["timeout", "interrupted"] | None:
        """Take the events of an answer to its end; what ended it from here."""
        ended: Literal["timeout", "interrupted"] | None = None
        limit = self.talk.limit()
        with Interrupts(kept=by_hand) as interrupts:
            while True:
                look = time.monotonic() + _LOOK_SECONDS
                try:
                    for event in self.talk.events(look if limit is None else min(look, limit)):
                        self.talk.unexpected(event)
                        answer.take(event)
                        if isinstance(event, Stats):
                            return ended if event.stop_reason == "stopped" else None
                except TimeoutError:
                    late = limit is not None and time.monotonic() >= limit
                    if late and ended is not None:
                        raise self.talk.deaf() from None
                    if late or (interrupts.asked and ended is None):
                        ended = "timeout" if late else "interrupted"
                        self.talk.send("stop")
                        limit = time.monotonic() + STOP_SECONDS

    def _add(self, turn: Turn, answer: Answer, ended: Literal["timeout", "interrupted"] | None, kept: int) -> None:
        record = make_record(
            self.loaded.recipe.name,
            runner=self.loaded.recipe.run.runner,
            target=self.build.target,
            prompt=turn.words,
            prompt_ids=turn.ids,
            answer=answer,
            session=Session(ended_by=ended),
            device=self.talk.facts,
        )
        reason: StopReason = ended or record.stop_reason
        bundle = self.carried.bundle
        record = record.model_copy(
            update={
                "stop_reason": reason,
                "cached_tokens": kept,
                "simulated": bundle.simulated,
                "quality": bundle.quality,
                "runner_sha256": runner_sha256(self.options.runner_binary, self.build, self.carried.runner),
                "sampling": self.carried.sampling,
            }
        )
        self.done.append(record)
        used = min(len(self.dialogue.held), self.carried.cache)
        self.console.note(
            f"    {len(record.tokens)} tokens, ended by {reason}; {used} of the cache's {self.carried.cache} places are taken"
        )
        if reason == "timeout":
            self.console.warn(
                f"an answer was ended after {self.talk.timeout_s:g} s (run.timeout_s)", code="run.timeout"
            )
