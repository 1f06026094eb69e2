"""Our own Llama runner, `native/runner`: JSON lines on stdout, as `docs/runner-protocol.md` lays down."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pydantic

from etcli.common.errors import RunError
from etcli.device.deployed import PROMPT_IDS
from etcli.run.events import AnyEvent, Failure, Kept, Loaded, Note, Prefill, Refused, Start, Stats, Token
from etcli.run.runners.base import Job, Launch, Reader

PROTOCOL = 1

LONGEST_PROMPT_ARGUMENT = 2000
"""Characters. Old adb daemons take at most 4096 bytes of command."""

_EVENTS: dict[str, type[Start | Loaded | Prefill | Token | Stats | Kept | Refused | Failure]] = {
    "start": Start,
    "loaded": Loaded,
    "prefill": Prefill,
    "token": Token,
    "stats": Stats,
    "kept": Kept,
    "refused": Refused,
    "error": Failure,
}


class EtcliRunner:
    """The runner that `etcli build` makes."""

    program = "etcli_llama_runner"
    activity = "loading"
    missing_hint = None
    opens = ()

    def launch(self, job: Job) -> Launch:
        """The configuration in the bundle says the rest. A prompt too long for a command line goes into a file."""
        ids = ",".join(map(str, job.prompt_ids))
        words = ["--config", "bundle/runner.cfg"]
        in_file = len(ids) > LONGEST_PROMPT_ARGUMENT
        if job.interactive:
            words.append("--interactive")
        else:
            words += ["--prompt-ids-file", PROMPT_IDS] if in_file else ["--prompt-ids", ids]
            words += ["--max-new-tokens", str(job.max_new_tokens)]
        if (drawn := job.sampling) is not None:
            # repr gives the shortest text that is read back as the same number
            words += ["--temperature", repr(drawn.temperature), "--top-p", repr(drawn.top_p), "--seed", str(drawn.seed)]
        if job.threads is not None:
            words += ["--threads", str(job.threads)]
        if job.ignore_stop_ids:
            words.append("--ignore-stop-ids")
        stop_ids = () if job.ignore_stop_ids else job.bundle.model.stop_ids
        return Launch(tuple(words), stop_ids, {PROMPT_IDS: f"{ids}\n".encode()} if in_file else {})

    def reader(self, job: Job) -> Reader:
        """Every line is an event of its own."""
        return _Lines()

    def explain(self, status: int) -> str | None:
        """It says itself what goes wrong."""
        return None


class _Lines:
    """Implements `Reader`."""

    def line(self, line: str) -> AnyEvent:
        """A line of stdout as an event; anything that is not one of the protocol's objects is a note.

        Raises:
            RunError: an event with missing or impossible fields, or of another protocol.
        """
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError):
            return Note(text=line)
        kind = value.get("event") if isinstance(value, dict) else None
        model = _EVENTS.get(kind) if isinstance(kind, str) else None
        if model is None:
            return Note(text=line)
        try:
            event = model.model_validate(value)
        except pydantic.ValidationError as error:
            details = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:3])
            raise RunError(
                f"the runner's {kind} event is not valid: {details}",
                code="run.bad_event",
                hint="Runner and etcli are of different versions: run `etcli build` and `etcli deploy` again.",
            ) from None
        if isinstance(event, Start) and event.protocol != PROTOCOL:
            raise RunError(
                f"the runner speaks protocol {event.protocol}, this etcli protocol {PROTOCOL}",
                code="run.protocol",
                hint="Run `etcli build` and `etcli deploy` again.",
            )
        return event

    def end(self, stderr: str, status: int) -> Iterable[AnyEvent]:
        """The last event came before the end."""
        return ()
