"""How to run, as far as it is not the recipe's word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from etcli.run.events import AnyEvent


@dataclass(frozen=True)
class RunOptions:
    """How to run; None stands for the recipe's value.

    `runner_binary` replaces the deployed program for this run. `bundle` is the bundle that was deployed, by default the workspace's.
    `greedy` takes the likeliest token whatever the recipe says, for comparisons. `ignore_stop_ids` goes on to `max_new_tokens`, for
    measurements; `stream` says whether the text is shown as it comes; `on_event` gets each event of the runner that passed the checks, as it comes.
    """

    prompt: str | None = None
    max_new_tokens: int | None = None
    chat: bool | None = None
    system: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    greedy: bool = False
    runner_binary: Path | None = None
    target: str | None = None
    stale_ok: bool = False
    force: bool = False
    bundle: Path | None = None
    ignore_stop_ids: bool = False
    stream: bool = True
    on_event: Callable[[AnyEvent], None] | None = None
