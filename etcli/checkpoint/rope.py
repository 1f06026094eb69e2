"""Rotary scaling as checkpoints spell it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from etcli.manifests.model import RopeConfig

_LLAMA3 = ("low_freq_factor", "high_freq_factor")


class RopeError(ValueError):
    """A rope configuration that is wrong, or of a kind that is not supported (then `unsupported` is true)."""

    def __init__(self, message: str, *, unsupported: bool = False) -> None:
        super().__init__(message)
        self.unsupported = unsupported


def rope_from_hf(config: Mapping[str, Any]) -> RopeConfig:
    """Rotary embedding of a Hugging Face `config.json`.

    Both spellings are read: `rope_theta` and `rope_scaling` (with `type` or `rope_type`), and `rope_parameters`, which transformers 5
    writes. A reader that knows only the first takes the second's theta for 10000 and its scaling for none, without a word.

    Raises:
        RopeError: naming the key.
    """
    old, new = config.get("rope_scaling"), config.get("rope_parameters")
    for key, value in (("rope_scaling", old), ("rope_parameters", new)):
        if value is not None and not isinstance(value, dict):
            raise RopeError(f"{key} is {value!r}, not a mapping")
    scaling: dict[str, Any] = dict(new or old or {})
    if any(isinstance(value, dict) for value in scaling.values()):
        raise RopeError("rope_parameters that differ by kind of layer", unsupported=True)
    for key in ("rope_interleaved", "rope_interleave"):
        if config.get(key):
            raise RopeError(f"interleaved rotary embedding ({key})", unsupported=True)
    for place in (config, scaling):
        if place.get("partial_rotary_factor", 1.0) not in (None, 1, 1.0):
            raise RopeError(
                f"partial rotary embedding (partial_rotary_factor {place['partial_rotary_factor']})", unsupported=True
            )
    theta = _theta(config, scaling)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return RopeConfig(theta=theta)
    if kind == "linear":
        return RopeConfig(theta=theta, kind="linear", factor=_number(scaling, "factor"))
    if kind != "llama3":
        raise RopeError(f"the rope scaling {kind!r}", unsupported=True)
    if "original_max_position_embeddings" not in scaling and "original_max_position_embeddings" in config:
        scaling["original_max_position_embeddings"] = config["original_max_position_embeddings"]
    low, high = (_number(scaling, key) for key in _LLAMA3)
    if low >= high:
        raise RopeError(f"low_freq_factor {low:g} is not below high_freq_factor {high:g}")
    original = _number(scaling, "original_max_position_embeddings")
    return RopeConfig(
        theta=theta,
        kind="llama3",
        factor=_number(scaling, "factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_context=int(original),
    )


def _theta(config: Mapping[str, Any], scaling: Mapping[str, Any]) -> float:
    given = [place for place in (scaling, config) if place.get("rope_theta") is not None]
    values = {_number(place, "rope_theta") for place in given}
    if len(values) > 1:
        raise RopeError(f"rope_theta is {' and '.join(f'{value:g}' for value in sorted(values))} at once")
    return values.pop() if values else 10000.0


def _number(place: Mapping[str, Any], key: str) -> float:
    value = place.get(key)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        return float(value)
    raise RopeError(f"{key} is {'missing' if value is None else repr(value)} in the rope configuration")


def llama3_divisors(rope: RopeConfig, head_dim: int) -> list[float]:
    """What `llama3` scaling divides each of the `head_dim / 2` frequencies by: 1 for short waves, `factor` for long ones, smooth between.

    The formula is Meta's, as in transformers' `_compute_llama3_parameters`, and what llama.cpp's converter stores as `rope_freqs.weight`.
    """
    divisors = []
    for pair in range(head_dim // 2):
        wavelength = 2 * math.pi * rope.theta ** (2 * pair / head_dim)
        turns = rope.original_context / wavelength
        if turns > rope.high_freq_factor:
            divisors.append(1.0)
        elif turns < rope.low_freq_factor:
            divisors.append(rope.factor)
        else:
            smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
            divisors.append(1.0 / ((1.0 - smooth) / rope.factor + smooth))
    return divisors
