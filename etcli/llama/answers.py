"""What reference decoding returns. Without torch, so that the parent of the reference process can name the same types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StopReason = Literal["stop_id", "max_new_tokens", "cache_full"]


@dataclass(frozen=True)
class ReferenceResult:
    """The reference's greedy answer: generated ids, a stop id included, and why it ended."""

    tokens: tuple[int, ...]
    stop_reason: StopReason


@dataclass(frozen=True)
class Judgement:
    """What the reference thinks of one given token: its own best id and logit at that place, and the given token's logit."""

    token: int
    token_logit: float
    best: int
    best_logit: float

    @property
    def gap(self) -> float:
        """How far the token's logit lies below the best one; 0 where the reference would have chosen it."""
        return self.best_logit - self.token_logit
