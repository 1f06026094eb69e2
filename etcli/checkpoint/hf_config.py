"""`ModelConfig` from a Hugging Face folder's `config.json` and `generation_config.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic

from etcli.checkpoint.rope import RopeError, rope_from_hf
from etcli.common.errors import CheckpointError, EtcliError, Problems
from etcli.common.jsonfile import read_object
from etcli.manifests.model import ModelConfig, RopeConfig

CONFIG = "config.json"
GENERATION = "generation_config.json"
CODE = "checkpoint.config"


@dataclass(frozen=True)
class _Defaults:
    """What transformers takes for keys that a `config.json` leaves out. `sliding_window` None: the family has none."""

    kv_heads: int | None
    sliding_window: int | None


ARCHITECTURES = {
    "LlamaForCausalLM": _Defaults(kv_heads=None, sliding_window=None),
    "MistralForCausalLM": _Defaults(kv_heads=8, sliding_window=4096),
}
_BY_TYPE = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM"}


def read_config(folder: Path, problems: Problems) -> ModelConfig | None:
    """The network's numbers, or None with every reason in `problems`."""
    path, generation = folder / CONFIG, folder / GENERATION
    found = Problems()
    config = None
    try:
        values = read_object(path, code=CODE)
        ends = read_object(generation, code=CODE) if generation.is_file() else {}
        config = _config(_Keys(path, values, found), ends)
    except EtcliError as error:
        found.absorb(error)
    problems.found.extend(found.found)
    return config


def _config(keys: _Keys, ends: Mapping[str, Any]) -> ModelConfig | None:
    architecture = keys.architecture()
    if architecture is None:
        return None
    defaults = ARCHITECTURES[architecture]
    heads, hidden = keys.positive("num_attention_heads"), keys.positive("hidden_size")
    context = keys.positive("max_position_embeddings")
    window = keys.config.get("sliding_window", defaults.sliding_window) if defaults.sliding_window else None
    window = window if isinstance(window, int) and window > 0 else None
    if window is not None:
        # Up to the window's length, sliding attention is full attention. Longer caches are refused where a recipe asks for them.
        context = min(context, window)
    head_dim = keys.positive("head_dim", hidden // heads if heads and hidden % heads == 0 else None)
    vocabulary = keys.positive("vocab_size")
    values = {
        "hidden_size": hidden,
        "intermediate_size": keys.positive("intermediate_size"),
        "num_layers": keys.positive("num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": keys.positive("num_key_value_heads", defaults.kv_heads or heads or None),
        "head_dim": head_dim,
        "vocab_size": vocabulary,
        "context_length": context,
        "sliding_window": window,
        "rms_norm_eps": keys.number("rms_norm_eps", 1e-6),
    }
    flags = {
        "tied_embeddings": keys.flag("tie_word_embeddings"),
        "attention_bias": keys.flag("attention_bias"),
        "attention_output_bias": keys.flag("attention_bias"),
        "mlp_bias": keys.flag("mlp_bias"),
    }
    rope = keys.rope()
    if keys.problems or rope is None:
        return None
    try:
        return ModelConfig(
            architecture=architecture,
            rope=rope,
            stop_ids=_end_ids(keys.config, ends, vocabulary),
            **flags,
            **values,
        )
    except pydantic.ValidationError as error:
        for item in error.errors():
            keys.wrong(f"{'.'.join(map(str, item['loc'])) or 'the configuration'}: {item['msg']}")
        return None


def _end_ids(config: Mapping[str, Any], generation: Mapping[str, Any], vocab_size: int) -> tuple[int, ...]:
    """End ids of both files united: publishers correct the one and forget the other."""
    found: set[int] = set()
    for place in (config, generation):
        value = place.get("eos_token_id")
        for index in value if isinstance(value, list) else [value]:
            if isinstance(index, int) and not isinstance(index, bool) and 0 <= index < vocab_size:
                found.add(index)
    return tuple(sorted(found))


class _Keys:
    """The configuration's keys; collects what is wrong with them."""

    def __init__(self, path: Path, config: Mapping[str, Any], problems: Problems) -> None:
        self.path, self.config, self.problems = path, config, problems

    def architecture(self) -> str | None:
        """One of `ARCHITECTURES`; None, with the problem noted, for anything that computes otherwise."""
        named = self.config.get("architectures")
        name = str(named[0]) if isinstance(named, list) and named else _BY_TYPE.get(str(self.config.get("model_type")))
        if name not in ARCHITECTURES:
            kind = name or self.config.get("model_type")
            self.refuse(f"the architecture {kind}" if kind else "no architecture")
            return None
        quantised = self.config.get("quantization_config")
        if quantised:
            method = quantised.get("quant_method") if isinstance(quantised, dict) else quantised
            self.refuse(f"weights quantised by {method}")
        if self.config.get("hidden_act", "silu") != "silu":
            self.refuse(f"the activation {self.config['hidden_act']} (hidden_act)")
        return name

    def positive(self, key: str, default: int | None = None) -> int:
        """A positive whole number; 0, with the problem noted, where there is none."""
        value = self.config.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        if (
            key != "head_dim"
            or value is not None
            or (self.config.get("hidden_size") and self.config.get("num_attention_heads"))
        ):
            self.wrong(f"{key} is {'missing' if value is None else repr(value)}, not a positive whole number")
        return 0

    def number(self, key: str, default: float) -> float:
        value = self.config.get(key, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
            return float(value)
        self.wrong(f"{key} is {value!r}, not a positive number")
        return default

    def flag(self, key: str) -> bool:
        value = self.config.get(key)
        if value is not None and not isinstance(value, bool):
            self.wrong(f"{key} is {value!r}, neither true nor false")
        return value is True

    def rope(self) -> RopeConfig | None:
        try:
            return rope_from_hf(self.config)
        except RopeError as error:
            (self.refuse if error.unsupported else self.wrong)(str(error))
            return None

    def refuse(self, what: str) -> None:
        self.problems.add(
            CheckpointError.problem(
                f"{self.path.parent.name} has {what}, which is not supported",
                code="checkpoint.unsupported",
                hint=f"Supported: {', '.join(ARCHITECTURES)}, not quantised, silu, with default, linear or llama3 rope scaling.",
                file=self.path,
            )
        )

    def wrong(self, what: str) -> None:
        self.problems.add(
            CheckpointError.problem(
                f"{CONFIG} is wrong: {what}",
                code=CODE,
                hint="Use the config.json that came with these weights.",
                file=self.path,
            )
        )
