"""What upstream's `mtk_llama_executor_runner` prints, as events: all of them at its end, where it lists the ids.

Its exit status says little, so a run counts only when three things hold: status 0, a final `[Generated Tokens]` line, and no message of level
E or F. Its rates are not taken over: the prompt's counts padding, the answer's one token too many; both are worked out again from the times.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from etcli.run.events import AnyEvent, Failure, Loaded, Note, Prefill, Stats, Token

_LOG = re.compile(
    r"(?P<level>[DIEF]) (?P<h>\d{1,4}):(?P<m>\d\d):(?P<s>\d\d\.\d{1,9}) executorch:[^\]]{0,200}\] ?(?P<message>.*)"
)
_IDS = re.compile(r"\{\d{1,18}(?:, \d{1,18})*\}")
_PROMPT_IDS, _ANSWER_IDS = "[Input Prompt Tokens]", "[Generated Tokens]"
_ANALYSED = re.compile(r"Done analyzing prompt in (\d+\.\d+) sec")
_SPEED = re.compile(r"Token generation speed: (\d+\.\d+) tok/s")
_BEGUN, _LOADED = "Begin model loading.", "Model initialized."


@dataclass(frozen=True)
class _Message:
    """A line of ET_LOG: level, seconds since the start, text."""

    level: str
    at: float
    text: str


@dataclass
class MtkReader:
    """Implements `Reader` for a run with these numbers; `batch` is T of the prompt call, `eos_id` the one id at which the runner ends."""

    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    stop_ids: tuple[int, ...]
    eos_id: int
    cache: int
    batch: int
    chunks: int
    _lines: list[str] = field(default_factory=list)

    def line(self, line: str) -> AnyEvent:
        """See `Reader.line`. The text between the headings is not escaped, so nothing is taken from it before the end."""
        self._lines.append(line)
        return Note(text=line)

    def end(self, stderr: str, status: int) -> Iterator[AnyEvent]:
        """See `Reader.end`."""
        messages = [message for line in stderr.splitlines() if (message := _message(line)) is not None]
        load_s = _between(messages, _BEGUN, _LOADED)
        if load_s is not None:
            yield Loaded(event="loaded", load_s=load_s, chunks=self.chunks, threads=None, memory_bytes=None)
        failure = self._failure(messages, status)
        if failure is not None:
            yield failure
            return
        if status != 0:
            return
        generated = self._generated()
        if generated is None:
            return
        prefill_s = _number(messages, _ANALYSED)
        if prefill_s is not None:
            calls = math.ceil(len(self.prompt_ids) / self.batch)
            yield Prefill(event="prefill", tokens=len(self.prompt_ids), calls=calls, seconds=prefill_s)
        tokens = self._until_stop(generated)
        for index, token in enumerate(tokens):
            yield Token(event="token", index=index, id=token, t_s=None)
        yield self._stats(tokens, generated, load_s, prefill_s, _number(messages, _SPEED))

    def _failure(self, messages: list[_Message], status: int) -> Failure | None:
        bad = next((message for message in messages if message.level in "EF"), None)
        if bad is not None and status == 0:
            return _failed("error_logged", f"it went on after an error, so its answer means nothing: {bad.text[:500]}")
        given = self._given()
        if given and self.prompt_ids not in given:
            other = given[0]
            place = next(
                (at for at, pair in enumerate(zip(other, self.prompt_ids, strict=False)) if pair[0] != pair[1]), None
            )
            where = (
                "at the end"
                if place is None
                else f"at place {place}: {other[place]} instead of {self.prompt_ids[place]}"
            )
            return _failed(
                "prompt_ids",
                f"its tokenizer made {len(other)} ids of the prompt where the model's makes {len(self.prompt_ids)}; they differ {where}",
            )
        generated = self._generated()
        if generated is None or status != 0:
            return None
        if len(generated) > self.max_new_tokens:
            return _failed(
                "too_many_tokens", f"it gave {len(generated)} tokens where {self.max_new_tokens} were asked for"
            )
        if self._reason(self._until_stop(generated), generated) is None:
            return _failed(
                "ended_early", f"it ended after {len(generated)} tokens, at no end id, with room in the cache"
            )
        return None

    def _given(self) -> list[tuple[int, ...]]:
        """The ids that the runner says it made of the prompt, and whatever else looks so: texts are not escaped. None of old runners, which say nothing."""
        pairs = zip(self._lines, self._lines[1:], strict=False)
        return [ids for line, after in pairs if line == _PROMPT_IDS and (ids := _ids(after)) is not None]

    def _generated(self) -> tuple[int, ...] | None:
        """The ids after the last heading, which end the output: a text can hold the heading, but nothing comes after the ids."""
        lines = list(self._lines)
        while lines and not lines[-1].strip():
            lines.pop()
        return _ids(lines[-1]) if len(lines) > 1 and lines[-2] == _ANSWER_IDS else None

    def _until_stop(self, generated: tuple[int, ...]) -> tuple[int, ...]:
        first = next((at for at, token in enumerate(generated) if token in self.stop_ids), None)
        return generated if first is None else generated[: first + 1]

    def _reason(self, tokens: tuple[int, ...], generated: tuple[int, ...]) -> str | None:
        if tokens[-1] in self.stop_ids:
            return "stop_id"
        if len(generated) == self.max_new_tokens:
            return "max_new_tokens"
        # The first token costs no place: it comes from the prompt's last one.
        return "cache_full" if len(self.prompt_ids) + len(generated) - 1 >= self.cache else None

    def _stats(
        self,
        tokens: tuple[int, ...],
        generated: tuple[int, ...],
        load_s: float | None,
        prefill_s: float | None,
        speed: float | None,
    ) -> Stats:
        # Each token after the first is one timed call. The printed speed divides one more than those by their time, unless the end id ended the loop.
        steps = len(generated) - 1
        counted = steps if steps and generated[-1] == self.eos_id else steps + 1
        decode_s = _finite(counted, speed) if steps else None
        return Stats.model_validate(
            {
                "event": "stats",
                "stop_reason": self._reason(tokens, generated),
                "prompt_tokens": len(self.prompt_ids),
                "new_tokens": len(tokens),
                "load_s": load_s,
                "prefill_s": prefill_s,
                "decode_s": decode_s,
                "decode_steps": steps,
                "prefill_tokens_per_s": _finite(len(self.prompt_ids), prefill_s),
                "decode_tokens_per_s": _finite(steps, decode_s) if steps else None,
                "time_to_first_token_s": prefill_s,
                "peak_memory_bytes": None,
                "chunk_seconds": (),
            }
        )


def _message(line: str) -> _Message | None:
    match = _LOG.match(line)
    if match is None:
        return None
    at = int(match["h"]) * 3600 + int(match["m"]) * 60 + float(match["s"])
    return _Message(match["level"], at, match["message"])


def _between(messages: list[_Message], first: str, last: str) -> float | None:
    times = [next((message.at for message in messages if message.text == text), None) for text in (first, last)]
    return None if times[0] is None or times[1] is None else max(0.0, times[1] - times[0])


def _number(messages: list[_Message], pattern: re.Pattern[str]) -> float | None:
    found = next((match for message in messages if (match := pattern.match(message.text))), None)
    value = None if found is None else float(found[1])
    return value if value and math.isfinite(value) else None


def _finite(count: int, by: float | None) -> float | None:
    """`count` divided by `by`; None without it, and where a printed number is so small that nothing is left of it."""
    found = count / by if by else math.inf
    return found if math.isfinite(found) else None


def _ids(line: str) -> tuple[int, ...] | None:
    return tuple(int(text) for text in line[1:-1].split(", ")) if _IDS.fullmatch(line) else None


def _failed(what: str, message: str) -> Failure:
    return Failure(event="error", code=f"runner.{what}", message=message)
