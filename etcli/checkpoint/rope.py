"""Rotary embedding as checkpoints have it: how they spell its scaling, and the order of rows that it asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from etcli.checkpoint.numbers import positive, told
from etcli.manifests.model import ModelConfig, RopeConfig

_LLAMA3 = ("low_freq_factor", "high_freq_factor")
_FULL = "full_attention"
_OTHER_KINDS = ("mrope_section", "short_factor", "long_factor", "attention_factor", "mscale")
"""Parameters that change the angles or their effect and belong to no kind that is read."""


class RopeError(ValueError):
    """A rope configuration that is wrong, or of a kind that is not supported (then `unsupported` is true)."""

    def __init__(self, message: str, *, unsupported: bool = False) -> None:
        super().__init__(message)
        self.unsupported = unsupported


def rope_from_hf(config: Mapping[str, Any], *, by_layer_kind: bool = False) -> RopeConfig:
    """Rotary embedding of a Hugging Face `config.json`.

    Both spellings are read: `rope_theta` and `rope_scaling` (with `type` or `rope_type`), and `rope_parameters`, which transformers 5
    writes. A reader that knows only the first takes the second's theta for 10000 and its scaling for none, without a word. Where both are
    there, they must say the same.

    Args:
        by_layer_kind: `rope_parameters` may hold a mapping for each kind of layer (`full_attention`), as for families that have kinds.

    Raises:
        RopeError: naming the key.
    """
    for key in ("rope_interleaved", "rope_interleave"):
        if config.get(key):
            raise RopeError(f"interleaved rotary embedding ({key})", unsupported=True)
    found = [
        (key, _one(config, _flat(key, config[key], by_layer_kind)))
        for key in ("rope_parameters", "rope_scaling")
        if config.get(key)
    ]
    if not found:
        return _one(config, {})
    if any(rope != found[0][1] for _, rope in found):
        told = " and ".join(f"{key} {_told(rope)}" for key, rope in found)
        raise RopeError(f"{told} disagree")
    return found[0][1]


def _flat(key: str, value: Any, by_layer_kind: bool) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RopeError(f"{key} is {told(value)}, not a mapping")
    nested = [kind for kind, inner in value.items() if isinstance(inner, dict)]
    if not nested:
        return dict(value)
    # Layers that slide are refused by their own keys, so the parameters of the others are all that count.
    if not by_layer_kind or _FULL not in nested or len(nested) != len(value):
        raise RopeError(f"{key} that differ by kind of layer", unsupported=True)
    return dict(value[_FULL])


def _one(config: Mapping[str, Any], scaling: dict[str, Any]) -> RopeConfig:
    for place in (config, scaling):
        if place.get("partial_rotary_factor", 1.0) not in (None, 1, 1.0):
            raise RopeError(
                f"partial rotary embedding (partial_rotary_factor {place['partial_rotary_factor']})", unsupported=True
            )
    kinds = {str(scaling[key]) for key in ("rope_type", "type") if scaling.get(key) is not None} or {"default"}
    unknown = sorted(kinds - {"default", "linear", "llama3"})
    if unknown:
        raise RopeError(f"the rope scaling {told(unknown[0])}", unsupported=True)
    if len(kinds) > 1:
        raise RopeError(f"the rope scaling is {' and '.join(sorted(kinds))} at once (rope_type, type)")
    for key in _OTHER_KINDS:
        if scaling.get(key) is not None:
            raise RopeError(f"the rope parameter {key}", unsupported=True)
    theta = _theta(config, scaling)
    kind = kinds.pop()
    scales = [key for key in ("factor", *_LLAMA3) if scaling.get(key) is not None]
    if scales and not any(scaling.get(key) is not None for key in ("rope_type", "type")):
        # transformers 5 takes this for no scaling at all, which no file that names a factor can mean.
        raise RopeError(f"the rope scaling has {', '.join(scales)} but no rope_type to say what for")
    if kind == "default":
        return RopeConfig(theta=theta)
    if kind == "linear":
        return RopeConfig(theta=theta, kind="linear", factor=_number(scaling, "factor"))
    low, high = (_number(scaling, key) for key in _LLAMA3)
    if low >= high:
        raise RopeError(f"low_freq_factor {low:g} is not below high_freq_factor {high:g}")
    return RopeConfig(
        theta=theta,
        kind="llama3",
        factor=_number(scaling, "factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_context=int(_agreed(config, scaling, "original_max_position_embeddings")),
    )


def _theta(config: Mapping[str, Any], scaling: Mapping[str, Any]) -> float:
    # 10000 is the default of transformers' classes of every family that is read.
    stated = any(place.get("rope_theta") is not None for place in (config, scaling))
    return _agreed(config, scaling, "rope_theta") if stated else 10000.0


def _agreed(config: Mapping[str, Any], scaling: Mapping[str, Any], key: str) -> float:
    """A number that either mapping may hold; both must agree."""
    values = {_number(place, key) for place in (scaling, config) if place.get(key) is not None}
    if len(values) > 1:
        raise RopeError(f"{key} is {' and '.join(f'{value:g}' for value in sorted(values))} at once")
    return values.pop() if values else _number(scaling, key)


def _told(rope: RopeConfig) -> str:
    numbers = {"factor": rope.factor} if rope.kind != "default" else {}
    if rope.kind == "llama3":
        numbers |= {"low": rope.low_freq_factor, "high": rope.high_freq_factor, "original": rope.original_context}
    return f"({', '.join([rope.kind, *(f'{name} {value:g}' for name, value in numbers.items())])})"


def _number(place: Mapping[str, Any], key: str) -> float:
    number = positive(place.get(key))
    if number is None:
        raise RopeError(f"{key} is {told(place.get(key))} in the rope configuration")
    return number


def unscaled_remark(config: ModelConfig) -> str | None:
    """What to say of numbers that are Llama 3.1's or 3.2's but for the scaling: files that tools shipped, or converted before they knew it, lack it."""
    if config.rope.kind != "default" or config.rope.theta != 500000 or config.vocab_size != 128256:
        return None
    if config.context_length < 131072:
        return None  # Llama 3 itself has none
    return (
        f"a theta of 500000, {config.vocab_size} tokens and a context of {config.context_length} are Llama 3.1's and 3.2's, which scale their "
        "rotary embedding; this checkpoint does not say so, and without it answers are wrong: take rope_scaling from the published config.json"
    )


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


def rotate_half_rows(values: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """Rows of a query or key projection (or its bias, or their numbers) from Meta's interleaved pairs `(h, i, j)` to rotate-half order `(h, j, i)`.

    Args:
        values: `[heads * head_dim, ...]`.
    """
    rows, *rest = values.shape
    return values.reshape(heads, rows // heads // 2, 2, *rest).swapaxes(1, 2).reshape(values.shape)
