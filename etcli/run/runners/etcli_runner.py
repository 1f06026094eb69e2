"""Our own Llama runner, `native/runner`: JSON lines on stdout, as `docs/runner-protocol.md` lays down."""

from __future__ import annotations

import json
from typing import Any

import pydantic

from etcli.common.errors import RunError
from etcli.run.events import AnyEvent, Failure, Loaded, Note, Prefill, Start, Stats, Token
from etcli.run.runners.base import Job

PROTOCOL = 1

_EVENTS: dict[str, type[Start | Loaded | Prefill | Token | Stats | Failure]] = {
    "start": Start,
    "loaded": Loaded,
    "prefill": Prefill,
    "token": Token,
    "stats": Stats,
    "error": Failure,
}


class EtcliRunner:
    """The runner that `etcli build` makes."""

    program = "etcli_llama_runner"

    def argv(self, job: Job) -> list[str]:
        """The program and its arguments."""
        words = [job.program, "--config", "bundle/runner.cfg"]
        if job.ids_file is not None:
            words += ["--prompt-ids-file", job.ids_file]
        else:
            words += ["--prompt-ids", ",".join(map(str, job.prompt_ids))]
        words += ["--max-new-tokens", str(job.max_new_tokens)]
        if job.threads is not None:
            words += ["--threads", str(job.threads)]
        if job.ignore_stop_ids:
            words.append("--ignore-stop-ids")
        return words

    def parse(self, line: str) -> AnyEvent:
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
