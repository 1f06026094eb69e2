"""What quantising will take, from shapes alone. The factors come to what SmolLM2-135M took (see docs/aqlm.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from etcli.checkpoint.layout import expected_shapes, linear_shapes
from etcli.export.estimates import BASE_BYTES
from etcli.manifests.model import ModelConfig

_FLOAT32 = 4

_SECONDS_PER_WEIGHT = 0.9e-6
"""Of one core, for looking for codes, whatever the matrix's form."""

_PRODUCTS_PER_SECOND = 4.0e10
"""Multiplications with addition that one core does."""

_PRODUCTS_PER_WEIGHT = 16
"""Products of a matrix with the moments of its inputs, for the codebooks, scales, corrections and errors."""


@dataclass(frozen=True)
class Needs:
    """Time with the threads asked for, memory at the most, and space on the disk while it works."""

    seconds: float
    memory_bytes: int
    disk_bytes: int


def needs(config: ModelConfig, tokens: int, threads: int) -> Needs:
    """What it takes to quantise a network on a calibration of so many `tokens`."""
    shapes = linear_shapes(config)
    weights = sum(math.prod(shape) for shape in shapes.values())
    widest = max(shape[1] for shape in shapes.values())
    largest = max(math.prod(shape) for shape in shapes.values())
    # codes; and the calibration through two layers, one float32 and one quantised, and the moments of what comes in
    spread = _SECONDS_PER_WEIGHT * weights
    spread += (
        _PRODUCTS_PER_WEIGHT * sum(math.prod(shape) * shape[1] for shape in shapes.values()) / _PRODUCTS_PER_SECOND
    )
    inputs = {config.hidden_size, config.num_heads * config.head_dim, config.intermediate_size}
    spread += (2 * tokens * weights + 2 * tokens * sum(size * size for size in inputs)) / _PRODUCTS_PER_SECOND
    # factors of the moments are found by one thread
    alone = sum(2 * size**3 for size in inputs) / _PRODUCTS_PER_SECOND
    seconds = config.num_layers * (spread / threads + alone)
    states = 2 * tokens * config.hidden_size
    layer = 2 * weights + 2 * tokens * widest + 6 * widest * widest + 4 * largest
    head = config.vocab_size * config.hidden_size
    memory = BASE_BYTES + _FLOAT32 * (2 * states + max(layer, 2 * head))
    plain = sum(math.prod(shape) for name, shape in expected_shapes(config).items() if name.endswith("weight"))
    folder = 2 * plain + config.num_layers * weights // 4
    return Needs(seconds, memory, 2 * folder + _FLOAT32 * 2 * states)
