"""Codes for a matrix, one column group after another, each error passed on to the columns that are still to come (GPTQ, with vectors of codes).

GPTQ: Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers", 2022; with vector codes: van Baalen
et al., "GPTVQ: The Blessing of Dimensionality for LLM Quantization", 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from etcli.export.aqlm.codebooks import GROUP

_LAZY_GROUPS = 16
"""Groups whose errors reach the columns far to the right in one product."""


@dataclass(frozen=True)
class Factor:
    """What inputs look like, as the loop needs it.

    Attributes:
        order: int64 `[in]`, columns in the order in which they are quantised: whole groups, those with the largest inputs first.
        upper: float32 `[in, in]`, the upper Cholesky factor of the inverse of the inputs' second moments, in that order.
    """

    order: torch.Tensor
    upper: torch.Tensor

    @property
    def precision(self) -> torch.Tensor:
        """What an error in each column costs after the columns to its right have made up for it, `[in]` in the checkpoint's order, mean 1."""
        found = torch.empty_like(self.order, dtype=self.upper.dtype)
        found[self.order] = self.upper.diagonal().pow(-2)
        return found / found.mean()


def factor_of(moments: torch.Tensor) -> Factor:
    """The factor of damped second moments `[in, in]`.

    Raises:
        torch.linalg.LinAlgError: they are not positive definite.
    """
    groups = moments.diagonal().view(-1, GROUP).sum(1).argsort(descending=True, stable=True)
    order = (groups.unsqueeze(1) * GROUP + torch.arange(GROUP)).flatten()
    arranged = moments[order][:, order]
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(arranged))
    return Factor(order, torch.linalg.cholesky(inverse, upper=True))


def assign(rows: torch.Tensor, books: torch.Tensor, factor: Factor, beam: int) -> torch.Tensor:
    """Codes for `rows` of a matrix: uint8 `[n, in/8, 2]`.

    Args:
        rows: float32 `[n, in]`, divided by the rows' scales.
        books: `[2, 256, 8]`.
        beam: how many entries of the first book are tried with the best of the second.
    """
    rest = rows[:, factor.order]
    columns = rest.shape[1]
    groups = columns // GROUP
    codes = torch.empty((groups, rest.shape[0], 2), dtype=torch.uint8)
    for first in range(0, groups, _LAZY_GROUPS):
        last = min(first + _LAZY_GROUPS, groups)
        end = last * GROUP
        scaled = torch.empty((rest.shape[0], end - first * GROUP))
        for group in range(first, last):
            here = slice(group * GROUP, (group + 1) * GROUP)
            corner = torch.linalg.inv(factor.upper[here, here])
            wanted = rest[:, here]
            one, two = _best_pairs(wanted, books, corner @ corner.T, beam)
            codes[group, :, 0], codes[group, :, 1] = one, two
            error = (wanted - books[0][one] - books[1][two]) @ corner
            scaled[:, here.start - first * GROUP : here.stop - first * GROUP] = error
            rest[:, here.stop : end].addmm_(error, factor.upper[here, here.stop : end], alpha=-1)
        rest[:, end:].addmm_(scaled, factor.upper[first * GROUP : end, end:], alpha=-1)
    arranged = torch.empty_like(codes)
    arranged[factor.order[::GROUP] // GROUP] = codes
    return arranged.transpose(0, 1)


def _best_pairs(
    wanted: torch.Tensor, books: torch.Tensor, metric: torch.Tensor, beam: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """For each row of `wanted` `[n, 8]` the entries of both books whose sum is nearest under `metric` `[8, 8]`, among those tried."""
    first, second = books
    one_cost = _costs(wanted, first, metric)
    two_cost = _costs(wanted, second, metric)
    both = first @ metric @ second.T
    values, tried = one_cost.topk(beam, dim=1, largest=False)
    # the least value alone is found faster than the least with its place: the place is looked for once, at the best candidate
    best = torch.stack([(two_cost + both[tried[:, k]]).amin(1) for k in range(beam)], dim=1).add_(values).argmin(1)
    one = tried.gather(1, best.unsqueeze(1)).squeeze(1)
    return one, (two_cost + both[one]).argmin(1)


def _costs(wanted: torch.Tensor, book: torch.Tensor, metric: torch.Tensor) -> torch.Tensor:
    """Half the squared distance of each row to each entry, less what is the same for all entries: `[n, 256]`."""
    turned = book @ metric
    return torch.addmm((turned * book).sum(1).mul_(0.5), wanted, turned.T, alpha=-1)
