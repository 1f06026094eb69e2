"""How much memory a network's tensors take once they are read."""

from __future__ import annotations

import math

CODES = ".codes"
"""How the name of a tensor ends that holds AQLM's codes: the only ones that are not read as float32."""

_FLOAT32 = 4


def loaded_bytes(name: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor as `Checkpoint.read` gives it: one for a code, four for anything else."""
    return math.prod(shape) * (1 if name.endswith(CODES) else _FLOAT32)
