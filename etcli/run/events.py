"""What a runner tells while it runs, in one form for every kind of runner. Untrusted: each field is checked where a line is read."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

Seconds = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]
Rate = Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, pydantic.Field(ge=0, lt=1 << 63)]
Text = Annotated[str, pydantic.Field(max_length=1 << 16)]


class Event(pydantic.BaseModel):
    """Base of the events. Fields that this version does not know are ignored, so a newer runner can say more."""

    model_config = pydantic.ConfigDict(frozen=True, extra="ignore", strict=True)


class Start(Event):
    """The first event: who speaks; `pid` of its process on the device, None from a runner that does not tell."""

    event: Literal["start"]
    protocol: int
    runner: Text
    version: Text
    executorch: Text
    pid: Count | None = None


class Loaded(Event):
    """All programs are loaded and checked. `memory_bytes` is resident memory at that moment.

    None, here and below, is what a runner that is not etcli's does not tell.
    """

    event: Literal["loaded"]
    load_s: Seconds
    chunks: Count
    threads: Count | None
    memory_bytes: Count | None


class Prefill(Event):
    """The prompt is done: its tokens without padding, calls of the first chunk, seconds of all chunks and of each one."""

    event: Literal["prefill"]
    tokens: Count
    calls: Count
    seconds: Seconds
    chunk_seconds: tuple[Seconds, ...] = pydantic.Field(default=(), strict=False)


class Token(Event):
    """A generated id; `t_s` since the prompt's first call."""

    event: Literal["token"]
    index: Count
    id: Count
    t_s: Seconds | None


class Stats(Event):
    """The run, or a turn of a conversation of so many tokens then, ended by itself; `stopped`: it was asked to.

    Rates are tokens per second, None where no step was timed.
    """

    event: Literal["stats"]
    stop_reason: Literal["stop_id", "max_new_tokens", "cache_full", "stopped"]
    prompt_tokens: Count
    new_tokens: Count
    load_s: Seconds | None
    prefill_s: Seconds | None
    decode_s: Seconds | None
    decode_steps: Count
    prefill_tokens_per_s: Rate | None
    decode_tokens_per_s: Rate | None
    time_to_first_token_s: Seconds | None
    peak_memory_bytes: Count | None
    chunk_seconds: tuple[Seconds, ...] = pydantic.Field(strict=False)
    conversation_tokens: Count | None = None


class Kept(Event):
    """A conversation has been cut to so many tokens."""

    event: Literal["kept"]
    tokens: Count


class Refused(Event):
    """The next words of a conversation were not taken; it goes on as it was."""

    event: Literal["refused"]
    code: Text
    message: Text


class Failure(Event):
    """The runner gave up, and says why."""

    event: Literal["error"]
    code: Text
    message: Text


class Note(Event):
    """A line that is no event: something else printed to the runner's stdout."""

    event: Literal["note"] = "note"
    text: str


AnyEvent = Start | Loaded | Prefill | Token | Stats | Kept | Refused | Failure | Note
