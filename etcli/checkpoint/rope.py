"""Rotary scaling as checkpoints spell it."""

from __future__ import annotations

import math

from etcli.manifests.model import RopeConfig


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
