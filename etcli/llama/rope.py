"""Rotary embedding tables with `default`, `linear` and `llama3` scaling.

The formulas are those of Llama 3.1's release and of Hugging Face's `rope_parameters`. Every step is float32, because at long positions
the angle's rounding shows in the result and the models were trained with float32 angles.
"""

from __future__ import annotations

import math

import torch

from etcli.manifests.model import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """Radians a position of each pair of dimensions, float32 `[head_dim / 2]`, scaling applied."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    plain = 1.0 / (rope.theta**exponents)
    if rope.kind == "default":
        return plain
    stretched = plain / rope.factor
    if rope.kind == "linear":
        return stretched
    # llama3: wavelengths well inside the original context stay, those beyond it are stretched, those between are mixed.
    wavelength = 2 * math.pi / plain
    share = (rope.original_context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    mixed = (1 - share) * plain / rope.factor + share * plain
    scaled = torch.where(wavelength > rope.original_context / rope.low_freq_factor, stretched, mixed)
    return torch.where(wavelength < rope.original_context / rope.high_freq_factor, plain, scaled)


def rope_table(rope: RopeConfig, head_dim: int, positions: int) -> torch.Tensor:
    """Float32 `[positions, 2, head_dim]`: for each position from 0 the cos row, then the sin row, each half written twice."""
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), inverse_frequencies(rope, head_dim))
    both = torch.cat([angles, angles], dim=1)
    return torch.stack([both.cos(), both.sin()], dim=1)


def rotary_input(table: torch.Tensor, position: int, tokens: int, *, left_padding: int = 0) -> torch.Tensor:
    """The rotary input of a call, `[1, 2, tokens, head_dim]`: cos plane, then sin plane.

    `position` is that of the first real token; rows of padding are zero.

    Raises:
        IndexError: the table has no row for one of the tokens.
    """
    real = tokens - left_padding
    if position < 0 or position + real > table.shape[0]:
        raise IndexError(f"positions {position}..{position + real - 1} of a table of {table.shape[0]}")
    planes = torch.zeros(1, 2, tokens, table.shape[2])
    planes[0, :, left_padding:] = table[position : position + real].transpose(0, 1)
    return planes
