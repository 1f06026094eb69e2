"""`ModelConfig` from a Hugging Face folder's `config.json` and `generation_config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pydantic

from etcli.checkpoint.aqlm_config import quantised, read_aqlm
from etcli.checkpoint.families import Family
from etcli.checkpoint.hf_keys import CODE, CONFIG, Keys
from etcli.common.errors import EtcliError, Problems
from etcli.common.jsonfile import read_object
from etcli.manifests.model import ModelConfig

__all__ = ["CODE", "CONFIG", "GENERATION", "read_config"]

GENERATION = "generation_config.json"


def read_config(folder: Path, problems: Problems) -> ModelConfig | None:
    """The network's numbers, or None with every reason in `problems`."""
    path, generation = folder / CONFIG, folder / GENERATION
    found = Problems()
    config = None
    try:
        values = read_object(path, code=CODE)
        ends = read_object(generation, code=CODE) if generation.is_file() else {}
        config = _config(Keys(path, values, found), ends)
    except EtcliError as error:
        found.absorb(error)
    problems.found.extend(found.found)
    return config


def _config(keys: Keys, ends: Mapping[str, Any]) -> ModelConfig | None:
    family = keys.family()
    if family is None:
        return None
    heads, hidden = keys.positive("num_attention_heads"), keys.positive("hidden_size")
    layers = keys.positive("num_hidden_layers")
    context = keys.positive("max_position_embeddings", family.context)
    window = keys.window(family, layers)
    if window is not None:
        # Up to the window's length, sliding attention is full attention. Longer caches are refused where a recipe asks for them.
        context = min(context, window)
    equal = hidden // heads if heads and hidden % heads == 0 else None
    vocabulary = keys.positive("vocab_size")
    values = {
        "hidden_size": hidden,
        "intermediate_size": keys.positive("intermediate_size"),
        "num_layers": layers,
        "num_heads": heads,
        "num_kv_heads": keys.positive("num_key_value_heads", family.kv_heads or heads or None, null=heads or None),
        "head_dim": keys.positive("head_dim", family.head_dim or equal, null=family.head_dim or equal),
        "vocab_size": vocabulary,
        "context_length": context,
        "sliding_window": window,
        "rms_norm_eps": keys.number("rms_norm_eps", 1e-6),
    }
    flags = {"tied_embeddings": keys.flag("tie_word_embeddings"), **_biases(keys, family)}
    rope, aqlm = keys.rope(family), read_aqlm(keys)
    if keys.problems or rope is None:
        return None
    try:
        config = ModelConfig(
            architecture=family.architecture,
            rope=rope,
            stop_ids=_end_ids(keys.config, ends, vocabulary),
            qk_norm=family.qk_norm,
            **flags,
            **values,
        )
    except pydantic.ValidationError as error:
        for item in error.errors():
            keys.wrong(f"{'.'.join(map(str, item['loc'])) or 'the configuration'}: {item['msg']}")
        return None
    return config if aqlm is None else quantised(config, aqlm, keys)


def _biases(keys: Keys, family: Family) -> dict[str, bool]:
    chosen = keys.flag("attention_bias") if family.qkv_bias is None else None
    return {
        "attention_bias": bool(family.qkv_bias) if chosen is None else chosen,
        "attention_output_bias": bool(chosen),
        "mlp_bias": family.mlp_bias and keys.flag("mlp_bias"),
    }


def _end_ids(config: Mapping[str, Any], generation: Mapping[str, Any], vocab_size: int) -> tuple[int, ...]:
    """End ids of both files united: publishers correct the one and forget the other."""
    found: set[int] = set()
    for place in (config, generation):
        value = place.get("eos_token_id")
        for index in value if isinstance(value, list) else [value]:
            if isinstance(index, int) and not isinstance(index, bool) and 0 <= index < vocab_size:
                found.add(index)
    return tuple(sorted(found))
