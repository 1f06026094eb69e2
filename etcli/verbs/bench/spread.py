"""How sure a ratio of two sets of runs is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_TAIL = 0.025
"""Of either side: intervals hold the true ratio in 95 of 100 cases."""
_EXACT_RUNS = 30
_MOST_RUNS = 200


@dataclass(frozen=True)
class Interval:
    """Where the ratio lies by the spread of the runs; `sure` is whether there were runs enough for 95 %, else it holds all that was seen."""

    low: float
    high: float
    sure: bool


def ratio_interval(a: Sequence[float], b: Sequence[float]) -> Interval | None:
    """Where `b / a` lies, from single runs of both; None where either has fewer than two that are not 0.

    The interval of Hodges and Lehmann, which belongs to the Mann-Whitney test (Hollander and Wolfe, Nonparametric Statistical Methods, 4.3): of the
    ratios of every run of one to every run of the other, the ends are the k-th lowest and highest. It assumes no distribution, and a
    few runs that something disturbed do not move it.
    """
    first, second = (_thinned([value for value in values if value > 0]) for values in (a, b))
    if len(first) < 2 or len(second) < 2:
        return None
    ratios = sorted(y / x for x in first for y in second)
    left_out = _left_out(len(first), len(second))
    place = max(left_out - 1, 0)
    return Interval(ratios[place], ratios[-1 - place], left_out > 0)


def _left_out(m: int, n: int) -> int:
    """k: the end of the interval is the k-th ratio from the end; 0 where even the outermost ones are not 95 % sure."""
    if max(m, n) > _EXACT_RUNS:
        return max(0, math.floor(m * n / 2 - 1.96 * math.sqrt(m * n * (m + n + 1) / 12)))
    total = math.comb(m + n, n)
    below, k = 0, 0
    for ways in _ways(m, n):
        below += ways
        if below / total > _TAIL:
            break
        k += 1
    return k


def _ways(m: int, n: int) -> list[int]:
    """In how many orders of m and n runs the statistic U is 0, 1, 2, ...: the coefficients of a Gaussian binomial."""
    counts = [1] + [0] * (m * n)
    for part in range(1, m + 1):
        # times (1 - q^(n + part)), divided by (1 - q^part)
        for at in range(m * n, n + part - 1, -1):
            counts[at] -= counts[at - n - part]
        for at in range(part, m * n + 1):
            counts[at] += counts[at - part]
    return counts


def _thinned(values: list[float]) -> list[float]:
    step = -(-len(values) // _MOST_RUNS) or 1
    return values[::step]
