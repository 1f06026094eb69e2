"""What reference decoding returns. Without torch, so that the parent of the reference process can name the same types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

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


def judgements(tokens: Sequence[int], logits: torch.Tensor) -> tuple[Judgement, ...]:
    """What logits `[N, V]` say of the N tokens that were given at their places."""
    best = logits.argmax(dim=-1).tolist()
    return tuple(
        Judgement(token, float(row[token]), int(winner), float(row[winner]))
        for token, winner, row in zip(tokens, best, logits, strict=True)
    )
