"""One matrix as two codebooks, codes and scales: first codebooks, codes with error feedback, codebooks and scales fitted to the codes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from etcli.export.aqlm.codebooks import ENTRIES, GROUP, first_codebooks
from etcli.export.aqlm.feedback import Factor, assign
from etcli.export.aqlm.parallel import Workers
from etcli.export.aqlm.settings import Settings

_TINY = 1e-12


@dataclass(frozen=True)
class Quantised:
    """An AQLM linear as it is stored: codes int8 `[out, in/8, 2]` signed-wrapped, codebooks float16 `[2, 256, 1, 8]`, scales float16
    `[out, 1, 1, 1]`."""

    codes: torch.Tensor
    codebooks: torch.Tensor
    scales: torch.Tensor

    def dense(self) -> torch.Tensor:
        """The matrix that it stands for, float32 `[out, in]`."""
        return _sums(self.codes.view(torch.uint8), self.codebooks.float().squeeze(2)) * self.scales.float().view(-1, 1)


def quantise_linear(
    weight: torch.Tensor, moments: torch.Tensor, factor: Factor, settings: Settings, seed: int, workers: Workers
) -> Quantised:
    """`weight` `[out, in]` in codes, so that its products with inputs of these second moments change little.

    Args:
        moments: `[in, in]`, damped; `factor` is theirs.
    """
    scales = weight.square().mean(1, keepdim=True).sqrt_().clamp_min_(_TINY)
    normal = weight / scales
    books = _first_books(normal, factor, settings, seed)
    fit = Fit(weight, moments, settings, workers)
    first = books
    codes = torch.cat(workers.map(lambda rows: assign(normal[rows], first, factor, settings.beam), fit.parts))
    for _ in range(settings.fits):
        books = fit.books(codes, books, scales)
        scales = fit.scales(codes, books)
    books = books.half()
    scales = fit.scales(codes, books.float())
    return Quantised(codes.view(torch.int8), books.unsqueeze(2), scales.half().view(-1, 1, 1, 1))


def _first_books(normal: torch.Tensor, factor: Factor, settings: Settings, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    groups = normal.view(-1, GROUP)
    chosen = torch.randperm(len(groups), generator=generator)[: settings.sample]
    costs = factor.precision.view(-1, GROUP)[chosen % (normal.shape[1] // GROUP)]
    return first_codebooks(groups[chosen], costs, steps=settings.steps, generator=generator)


class Fit:
    """Codebooks and scales for given codes: least squares of `tr((W - Q) H (W - Q)^T)`, with the rows in `parts` that are worked on side by side."""

    def __init__(self, weight: torch.Tensor, moments: torch.Tensor, settings: Settings, workers: Workers) -> None:
        self._weight, self._settings, self._workers = weight, settings, workers
        self._moments = moments / moments.diagonal().mean()
        self.parts = [
            slice(start, min(start + settings.rows, len(weight))) for start in range(0, len(weight), settings.rows)
        ]

    def books(self, codes: torch.Tensor, books: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        """Codebooks `[2, 256, 8]` improved from `books` on, by conjugate gradients with the entries' uses as preconditioner."""
        places = [codes[rows].reshape(-1, 2).long().add_(torch.tensor([0, ENTRIES])) for rows in self.parts]
        squares = (scales / scales.square().mean().sqrt()).square()
        flat = books.reshape(-1, GROUP)

        def pull(values: torch.Tensor, *, of_rest: bool) -> torch.Tensor:
            """Half the gradient `[512, 8]` of the cost of a matrix made of `values`, or of what they leave of the weight."""

            def part(index: int) -> torch.Tensor:
                rows, place = self.parts[index], places[index]
                matrix = (values[place[:, 0]] + values[place[:, 1]]).view(rows.stop - rows.start, -1)
                if of_rest:
                    matrix = self._weight[rows] / scales[rows] - matrix
                force = ((matrix @ self._moments) * squares[rows]).view(-1, GROUP)
                sums = torch.zeros_like(values).index_add_(0, place[:, 0], force)
                return sums.index_add_(0, place[:, 1], force)

            return torch.stack(self._workers.map(part, range(len(self.parts)))).sum(0)

        uses = torch.zeros(len(flat))
        for rows, place in zip(self.parts, places, strict=True):
            mass = squares[rows].expand(-1, self._weight.shape[1] // GROUP).reshape(-1)
            uses.index_add_(0, place[:, 0], mass).index_add_(0, place[:, 1], mass)
        easing = uses.clamp_min_(_TINY).reciprocal_().unsqueeze(1)
        rest = pull(flat, of_rest=True)
        eased = rest * easing
        direction, size = eased, (rest * eased).sum()
        for _ in range(self._settings.gradients):
            force = pull(direction, of_rest=False)
            bend = (direction * force).sum()
            if not (bend > 0 and size > 0):
                break
            step = size / bend
            flat = flat + step * direction
            rest = rest - step * force
            eased = rest * easing
            before, size = size, (rest * eased).sum()
            direction = eased + (size / before) * direction
        return flat.view_as(books)

    def scales(self, codes: torch.Tensor, books: torch.Tensor) -> torch.Tensor:
        """The scale of each row that fits its codes best, `[out, 1]`."""

        def part(rows: slice) -> torch.Tensor:
            matrix = _sums(codes[rows], books)
            seen = matrix @ self._moments
            return (self._weight[rows] * seen).sum(1) / (matrix * seen).sum(1).clamp_min(_TINY)

        return torch.cat(self._workers.map(part, self.parts)).unsqueeze(1)


def _sums(codes: torch.Tensor, books: torch.Tensor) -> torch.Tensor:
    """The matrix of uint8 `codes` `[n, in/8, 2]` in `books` `[2, 256, 8]`, without scales."""
    places = codes.long()
    return (books[0][places[..., 0]] + books[1][places[..., 1]]).flatten(1)
