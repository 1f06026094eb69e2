"""`adapter_config.json` of a LoRA adapter as peft writes it: how much of which product is added to which matrix."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etcli.checkpoint.numbers import finite, told
from etcli.common.errors import CheckpointError, EtcliError, Problems
from etcli.common.jsonfile import read_object

CONFIG = "adapter_config.json"
CODE = "adapter.config"

# Keys of peft's LoraConfig under which W + scale * B @ A is not the whole truth. Null, false, empty and 0 are fine in all.
_UNSUPPORTED = {
    "use_dora": "DoRA",
    "lora_bias": "biases of its own (lora_bias)",
    "fan_in_fan_out": "transposed matrices (fan_in_fan_out)",
    "layer_replication": "replicated layers (layer_replication)",
    "trainable_token_indices": "rows of the embedding trained alone (trainable_token_indices)",
    "target_parameters": "single parameters as targets (target_parameters)",
    "alora_invocation_tokens": "activation from a token on (aLoRA)",
    "use_qalora": "QALoRA",
    "use_bdlora": "BD-LoRA",
    "megatron_config": "Megatron's layers (megatron_config)",
    "arrow_config": "a choice among several adapters (arrow_config)",
    "monteclora_config": "MonteCLoRA",
}
# Ways to start that change the base weights: such an adapter does not fit the published ones until peft has converted it.
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")


@dataclass(frozen=True)
class AdapterConfig:
    """`targets` names modules by their last parts; None where it is a pattern or `all-linear`, so that the tensors alone tell."""

    rank: int
    alpha: float
    rank_stabilised: bool
    targets: tuple[str, ...] | None
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]

    def rank_of(self, module: str) -> int:
        """Rank of `module` (`model.layers.0.self_attn.q_proj`)."""
        return self.ranks.get(_key(self.ranks, module), self.rank)

    def scale_of(self, module: str) -> float:
        """What the product of `module` is multiplied by: alpha over rank, or over its square root (rsLoRA)."""
        rank, alpha = self.rank_of(module), self.alphas.get(_key(self.alphas, module), self.alpha)
        return alpha / (math.sqrt(rank) if self.rank_stabilised else rank)


def _key(patterns: Mapping[str, object], module: str) -> str:
    """The first pattern that the end of `module`'s name matches, as peft looks it up; an empty text for none."""
    return next((key for key in patterns if re.match(rf"(.*\.)?({key})$", module)), "")


def read_adapter_config(folder: Path, problems: Problems) -> AdapterConfig | None:
    """The configuration of the adapter in `folder`, or None with every reason in `problems`."""
    try:
        values = read_object(folder / CONFIG, code=CODE)
    except EtcliError as error:
        problems.absorb(error)
        return None
    reader = _Reader(folder, values)
    config = reader.read()
    problems.found.extend(reader.problems.found)
    return None if reader.problems else config


class _Reader:
    def __init__(self, folder: Path, values: Mapping[str, Any]) -> None:
        self.folder, self.values, self.problems = folder, values, Problems()

    def read(self) -> AdapterConfig:
        kind = self.values.get("peft_type")
        if kind != "LORA":
            self.refuse(f"the kind {kind}" if kind else "no kind (peft_type)")
        for key, what in _UNSUPPORTED.items():
            if self.values.get(key):
                self.refuse(what)
        if self.values.get("bias") not in (None, "none"):
            self.refuse(f"trained biases (bias: {self.values['bias']})")
        start = self.values.get("init_lora_weights")
        if isinstance(start, str) and start.lower().startswith(_CHANGES_BASE):
            self.refuse(
                f"a start that changed the base weights (init_lora_weights: {start})",
                hint="Save it with peft's path_initial_model_for_weight_conversion, which makes a plain LoRA of it.",
            )
        targets = self.values.get("target_modules")
        if not (targets is None or isinstance(targets, str) or _are_names(targets)):
            self.wrong(f"target_modules is {str(targets)[:60]}, neither names nor a pattern")
        return AdapterConfig(
            rank=self.count("r", self.values.get("r")),
            alpha=self.number("lora_alpha", self.values.get("lora_alpha")),
            rank_stabilised=self.values.get("use_rslora") is True,
            targets=tuple(sorted(targets)) if isinstance(targets, list) and _are_names(targets) else None,
            ranks={key: self.count(f"rank_pattern.{key}", value) for key, value in self.patterns("rank_pattern")},
            alphas={key: self.number(f"alpha_pattern.{key}", value) for key, value in self.patterns("alpha_pattern")},
        )

    def patterns(self, key: str) -> list[tuple[str, Any]]:
        found = self.values.get(key) or {}
        if not isinstance(found, dict):
            self.wrong(f"{key} is {str(found)[:60]}, not a mapping")
            return []
        for pattern in found:
            if not _harmless(pattern):
                self.refuse(f"the pattern {pattern[:60]!r} in {key}")
                return []
        return list(found.items())

    def count(self, key: str, value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        self.wrong(f"{key} is {told(value)}, not a positive whole number")
        return 1

    def number(self, key: str, value: Any) -> float:
        number = finite(value)
        if number is None:
            self.wrong(f"{key} is {told(value)}, not a number")
        return 1.0 if number is None else number

    def refuse(self, what: str, *, hint: str | None = None) -> None:
        self.problems.add(
            CheckpointError.problem(
                f"the adapter {self.folder.name} has {what}, which is not supported",
                code="adapter.unsupported",
                hint=hint
                or "Merge it into the checkpoint with peft (merge_and_unload), and name the result as model.source.",
                file=self.folder / CONFIG,
            )
        )

    def wrong(self, what: str) -> None:
        self.problems.add(
            CheckpointError.problem(
                f"{CONFIG} is wrong: {what}",
                code=CODE,
                hint="Use the file that came with the adapter's weights.",
                file=self.folder / CONFIG,
            )
        )


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _harmless(pattern: str) -> bool:
    """Whether an untrusted pattern may be tried: few repetitions and none of a group, so that no name makes it run for ever."""
    if len(pattern) > 400 or len(re.findall(r"[*+?{]", pattern)) > 2 or re.search(r"\)[*+?{]", pattern):
        return False
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
