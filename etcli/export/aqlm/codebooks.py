"""Codebooks to start from: weighted k-means on groups of a matrix, the second book on what the first leaves."""

from __future__ import annotations

import torch

ENTRIES = 256
"""Entries of a codebook: an 8-bit code."""

GROUP = 8
"""Weights that one code of each book stands for."""


def first_codebooks(
    groups: torch.Tensor, costs: torch.Tensor, *, steps: int, generator: torch.Generator
) -> torch.Tensor:
    """Two codebooks `[2, 256, 8]` whose sums come close to the rows of `groups`.

    Args:
        groups: float32 `[N, 8]`.
        costs: float32 `[N, 8]`, what an error at each place costs.
        steps: of k-means for each book.
    """
    rest, books = groups, []
    for _ in range(2):
        book = k_means(rest, costs, steps=steps, generator=generator)
        rest = rest - book[nearest(rest, costs, book)]
        books.append(book)
    return torch.stack(books)


def k_means(points: torch.Tensor, costs: torch.Tensor, *, steps: int, generator: torch.Generator) -> torch.Tensor:
    """256 centres `[256, 8]` for `points` under diagonal `costs`, both `[N, 8]`. Centres without points start again at random points."""
    start = torch.randint(len(points), (ENTRIES,), generator=generator)
    if len(points) >= ENTRIES:
        start = torch.randperm(len(points), generator=generator)[:ENTRIES]
    centres = points[start]
    for _ in range(steps):
        owner = nearest(points, costs, centres)
        mass = torch.zeros_like(centres).index_add_(0, owner, costs)
        sums = torch.zeros_like(centres).index_add_(0, owner, points * costs)
        fresh = points[torch.randint(len(points), (ENTRIES,), generator=generator)]
        centres = torch.where(mass > 0, sums / mass.clamp_min(torch.finfo(mass.dtype).tiny), fresh)
    return centres


def nearest(points: torch.Tensor, costs: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """For each of `points` the index of the nearest of `centres` under its costs, int64 `[N]`."""
    distance = costs @ (centres * centres).T
    distance.mul_(0.5).addmm_(points * costs, centres.T, alpha=-1)
    return distance.argmin(1)
