"""How close one network's predictions are to another's, over the positions of a text."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from etcli.manifests.export_report import Quality

_BLOCK = 64


def quality(right: torch.Tensor, other: torch.Tensor, following: torch.Tensor) -> Quality:
    """Compare logits `[N, V]` of the float network, `right`, with those of the quantised one at the same positions.

    Args:
        following: int64 `[N]`, the id that the text goes on with at each position.
    """
    sums = torch.stack(list(_sums(right, other, following))).sum(dim=0).tolist()
    count = len(following)
    return Quality(
        positions=count,
        perplexity_float=_perplexity(sums[0] / count),
        perplexity=_perplexity(sums[1] / count),
        top1_agreement=sums[2] / count,
        mean_kl=sums[3] / count,
    )


def _perplexity(nats: float) -> float:
    """At most e to the 700, so that it remains a number: a broken network can be surer of a wrong token than a float holds."""
    return math.exp(min(nats, 700.0))


def relative_error(output: torch.Tensor, right: torch.Tensor) -> float:
    """Root mean square of the difference over that of `right`, 0 where both are nothing but zeros."""
    error = (output - right).norm()
    return float(error / right.norm().clamp_min(torch.finfo(torch.float32).tiny)) if error else 0.0


def _sums(right: torch.Tensor, other: torch.Tensor, following: torch.Tensor) -> Iterator[torch.Tensor]:
    """Of each block of positions: both negative log likelihoods of the text, equal first choices, KL divergence in nats."""
    for start in range(0, len(following), _BLOCK):
        block = slice(start, start + _BLOCK)
        wanted = following[block].unsqueeze(1)
        # float64: the divergence of two nearly equal distributions is a difference of nearly equal numbers
        true, found = (logits[block].double().log_softmax(dim=1) for logits in (right, other))
        yield torch.stack(
            [
                -true.gather(1, wanted).sum(),
                -found.gather(1, wanted).sum(),
                (true.argmax(dim=1) == found.argmax(dim=1)).double().sum(),
                (true.exp() * (true - found)).sum(),
            ]
        )
