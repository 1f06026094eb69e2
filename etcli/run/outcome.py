"""A run's events put together: tokens checked one by one, text as it comes, and at the end the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from etcli.common.errors import RunError
from etcli.manifests.run_record import DeviceFacts, RunRecord
from etcli.run.events import AnyEvent, Failure, Loaded, Prefill, Stats, Token
from etcli.run.session import Session
from etcli.tokenizer.base import TextStream


@dataclass
class Answer:
    """What the runner has told so far. `take` refuses what cannot be: device output is untrusted."""

    prompt_tokens: int
    max_new_tokens: int
    vocab_size: int
    stop_ids: tuple[int, ...]
    stream: TextStream
    write: Callable[[str], None]
    may_be_stopped: bool = False
    tokens: list[Token] = field(default_factory=list)
    text: str = ""
    loaded: Loaded | None = None
    prefill: Prefill | None = None
    stats: Stats | None = None
    failure: Failure | None = None

    def take(self, event: AnyEvent) -> None:
        """One event.

        Raises:
            RunError: an id outside the vocabulary, a gap in the tokens, more of them than asked for, or statistics that
                contradict the tokens.
        """
        if self.stats is not None:
            return
        if isinstance(event, Token):
            self._token(event)
        elif isinstance(event, Loaded):
            self.loaded = event
        elif isinstance(event, Prefill):
            self.prefill = event
        elif isinstance(event, Failure):
            self.failure = event
        elif isinstance(event, Stats):
            self._check(event)
            self.stats = event

    def finish(self) -> None:
        """Give out the rest of the text."""
        self._say(self.stream.finish())
        if self.tokens and not self.text.endswith("\n"):
            self.write("\n")

    def _token(self, token: Token) -> None:
        if token.id >= self.vocab_size:
            raise bad_output(f"the runner gave token id {token.id:,}; the model has {self.vocab_size:,} ids")
        if token.index != len(self.tokens):
            raise bad_output(f"the runner gave token {token.index} where token {len(self.tokens)} was due")
        if len(self.tokens) >= self.max_new_tokens:
            raise bad_output(f"the runner gave more than the {self.max_new_tokens} tokens it was asked for")
        self.tokens.append(token)
        self._say(self.stream.push(token.id))

    def _say(self, text: str) -> None:
        if text:
            self.text += text
            self.write(text)

    def _check(self, stats: Stats) -> None:
        if stats.new_tokens != len(self.tokens):
            raise bad_output(f"the runner counts {stats.new_tokens} new tokens, it gave {len(self.tokens)}")
        if stats.prompt_tokens != self.prompt_tokens:
            raise bad_output(
                f"the runner counts {stats.prompt_tokens} prompt tokens, it was given {self.prompt_tokens}"
            )
        if stats.stop_reason == "stopped" and not self.may_be_stopped:
            raise bad_output("the runner says that it was stopped, which nobody has asked for")
        stopped = bool(self.tokens) and self.tokens[-1].id in self.stop_ids
        if (stats.stop_reason == "stop_id") != stopped:
            raise bad_output(
                f"the runner's stop reason is {stats.stop_reason}, its last token "
                + ("is a stop id" if stopped else "is no stop id")
            )


def make_record(
    name: str,
    *,
    runner: str,
    target: str,
    prompt: str,
    prompt_ids: tuple[int, ...],
    answer: Answer,
    session: Session,
    device: DeviceFacts,
) -> RunRecord:
    """The record of a run that ended by itself, or was ended from here.

    Rates are the runner's own. Of a run that was ended early they are worked out from its events; its peak memory is not known.
    """
    stats, tokens = answer.stats, answer.tokens
    prefill = answer.prefill
    times = [token.t_s for token in tokens if token.t_s is not None]
    span = times[-1] - times[0] if times else 0.0
    record = RunRecord(
        name=name,
        runner=runner,
        target=target,
        prompt=prompt,
        prompt_ids=prompt_ids,
        tokens=tuple(token.id for token in tokens),
        text=answer.text,
        stop_reason=session.ended_by or "interrupted",
        prefill_tokens_per_s=prefill.tokens / prefill.seconds if prefill and prefill.seconds > 0 else None,
        decode_tokens_per_s=(len(tokens) - 1) / span if span > 0 else None,
        time_to_first_token_s=times[0] if times else None,
        load_s=answer.loaded.load_s if answer.loaded else None,
        peak_memory_bytes=None,
        threads=answer.loaded.threads if answer.loaded else None,
        device=device,
    )
    if stats is None:
        return record
    told = (
        "stop_reason",
        "prefill_tokens_per_s",
        "decode_tokens_per_s",
        "time_to_first_token_s",
        "load_s",
        "peak_memory_bytes",
    )
    return record.model_copy(update={field: getattr(stats, field) for field in told})


def bad_output(message: str) -> RunError:
    """The error for output that the runner's protocol does not allow."""
    return RunError(
        message,
        code="run.bad_output",
        hint="The runner on the device is damaged or of another version: run `etcli build`, then `etcli deploy`.",
    )
