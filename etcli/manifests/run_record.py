"""The record of one run on a device: tokens, timings, memory, and the device it was."""

from __future__ import annotations

from typing import Literal

import pydantic

from etcli.manifests.base import Manifest, Part, RecipeName
from etcli.manifests.quantised import Quality

StopReason = Literal["stop_id", "max_new_tokens", "cache_full", "timeout", "interrupted"]


class DeviceFacts(Part):
    """The device as it describes itself. Rates from a device with `emulated` set say nothing of a phone.

    `soc_properties` are all properties that may tell the SoC, by name; `soc` is the one that people know best.
    """

    serial: str
    model: str
    soc: str
    abi: str
    os: str
    emulated: bool
    soc_properties: dict[str, str] = pydantic.Field(default_factory=dict)


class Sampling(Part):
    """How tokens were drawn: with equal settings and equal logits they come out the same everywhere (docs/runner-protocol.md)."""

    temperature: float
    top_p: float
    seed: int


class RunRecord(Manifest):
    """One run. Ids are of the model's vocabulary; rates are tokens per second, None where no step was timed.

    Load time and peak memory are None where the run was ended before the runner told them.
    """

    name: RecipeName
    runner: str
    runner_sha256: str | None = pydantic.Field(default=None, description="of the program that ran")
    target: str
    prompt: str
    prompt_ids: tuple[int, ...]
    cached_tokens: int = pydantic.Field(
        default=0, description="of prompt_ids, those that the cache held from earlier turns"
    )
    tokens: tuple[int, ...] = pydantic.Field(description="generated ids, a stop id included")
    text: str
    stop_reason: StopReason
    prefill_tokens_per_s: float | None
    decode_tokens_per_s: float | None
    time_to_first_token_s: float | None
    load_s: float | None
    peak_memory_bytes: int | None
    threads: int | None
    device: DeviceFacts
    simulated: bool = pydantic.Field(default=False, description="whether the NPU was the simulated one")
    sampling: Sampling | None = pydantic.Field(default=None, description="None: greedy decoding")
    quality: Quality | None = pydantic.Field(
        default=None, description="the bundle's: with `demonstration` an answer may well be wrong"
    )


class ConversationRecord(Manifest):
    """A conversation: a record a turn, in order, whose `prompt_ids` are all ids of the conversation up to its answer.

    Load time and peak memory of each are those of the one process.
    """

    name: RecipeName
    turns: tuple[RunRecord, ...]
