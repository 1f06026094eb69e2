"""One matrix in AQLM codes: closer than plain k-means, rebuilt exactly from what is stored, the same bits with any number of threads."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from aqlm_folders import dense_weight

from etcli.export.aqlm.codebooks import first_codebooks, nearest
from etcli.export.aqlm.feedback import assign, factor_of
from etcli.export.aqlm.linear import Quantised, quantise_linear
from etcli.export.aqlm.parallel import Workers
from etcli.export.aqlm.settings import Settings

SETTINGS = Settings(rows=64)


@dataclass
class Problem:
    """A matrix whose rows have sizes of their own, and moments of inputs that are correlated, a few of them large."""

    weight: torch.Tensor
    moments: torch.Tensor

    def error(self, dense: torch.Tensor) -> float:
        """Mean square of the difference of the products over that of the products, in float64."""
        lost, weight, moments = (values.double() for values in (self.weight - dense, self.weight, self.moments))
        return float(((lost @ moments) * lost).sum() / ((weight @ moments) * weight).sum())

    def quantised(self, settings: Settings = SETTINGS, threads: int = 2, seed: int = 7) -> Quantised:
        with Workers(threads) as workers:
            return quantise_linear(self.weight, self.moments, factor_of(self.moments), settings, seed, workers)


@pytest.fixture(scope="module")
def problem() -> Problem:
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(200, 128, generator=generator) * torch.rand(200, 1, generator=generator).add(0.1)
    mixing = torch.randn(128, 128, generator=generator) * 0.3 + torch.eye(128)
    inputs = torch.randn(1000, 128, generator=generator) @ mixing * torch.rand(128, generator=generator).mul(4).exp()
    moments = inputs.T @ inputs / 1000
    moments.diagonal().add_(0.01 * moments.diagonal().mean())
    return Problem(weight, moments)


def residual_k_means(problem: Problem) -> torch.Tensor:
    """The plain way: two rounds of k-means on all groups, blind to the inputs."""
    scales = problem.weight.square().mean(1, keepdim=True).sqrt()
    groups = (problem.weight / scales).view(-1, 8)
    even = torch.ones_like(groups)
    books = first_codebooks(groups, even, steps=20, generator=torch.Generator().manual_seed(0))
    first = books[0][nearest(groups, even, books[0])]
    both = first + books[1][nearest(groups - first, even, books[1])]
    return both.view_as(problem.weight) * scales


def test_products_with_the_inputs_change_far_less_than_with_plain_k_means(problem: Problem) -> None:
    ours, plain = problem.error(problem.quantised().dense()), problem.error(residual_k_means(problem))
    assert ours < 0.4 * plain
    assert ours > 0


def test_each_step_of_the_method_pays(problem: Problem) -> None:
    whole = problem.error(problem.quantised().dense())
    without_fit = problem.error(problem.quantised(SETTINGS.model_copy(update={"fits": 0})).dense())
    greedy = problem.error(problem.quantised(SETTINGS.model_copy(update={"beam": 1})).dense())
    uncorrelated = Problem(problem.weight, torch.diag(problem.moments.diagonal()))
    without_feedback = problem.error(uncorrelated.quantised().dense())
    assert whole < without_fit
    assert whole < greedy
    assert whole < 0.8 * without_feedback


def test_what_is_stored_gives_the_matrix_that_was_measured(problem: Problem) -> None:
    made = problem.quantised()
    assert (made.codes.dtype, made.codes.shape) == (torch.int8, (200, 16, 2))
    assert (made.codebooks.dtype, made.codebooks.shape) == (torch.float16, (2, 256, 1, 8))
    assert (made.scales.dtype, made.scales.shape) == (torch.float16, (200, 1, 1, 1))
    assert (made.codes < 0).any()
    right = dense_weight(made.codes, made.codebooks, made.scales)
    torch.testing.assert_close(made.dense().double(), right, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_bits_with_any_number_of_threads(problem: Problem, threads: int) -> None:
    first, other = problem.quantised(threads=2), problem.quantised(threads=threads)
    for name in ("codes", "codebooks", "scales"):
        assert torch.equal(getattr(first, name), getattr(other, name))


def test_the_seed_counts(problem: Problem) -> None:
    assert not torch.equal(problem.quantised().codes, problem.quantised(seed=8).codes)


@pytest.mark.parametrize(("rows", "columns"), [(1, 8), (3, 16), (70, 136)])
def test_odd_sizes(rows: int, columns: int) -> None:
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
    small = Problem(weight, torch.eye(columns))
    dense = small.quantised().dense()
    assert dense.shape == weight.shape
    # as many entries as groups, or nearly: next to nothing is lost
    assert small.error(dense) < (1e-5 if rows < 70 else 0.2)


def test_rows_of_zeros_stay_zeros() -> None:
    weight = torch.randn(40, 64, generator=torch.Generator().manual_seed(1))
    weight[[0, 7]] = 0
    dense = Problem(weight, torch.eye(64)).quantised().dense()
    assert torch.isfinite(dense).all()
    assert not dense[[0, 7]].any()


def test_codes_with_feedback_are_those_of_the_definition() -> None:
    """Against a plain loop in float64 that tries every pair and passes each error on to all that follow."""
    generator = torch.Generator().manual_seed(5)
    rows = torch.randn(9, 160, generator=generator)
    inputs = torch.randn(400, 160, generator=generator) @ torch.randn(160, 160, generator=generator)
    moments = inputs.T @ inputs / 400
    books = torch.randn(2, 256, 8, generator=generator)
    factor = factor_of(moments)
    found = assign(rows, books, factor, beam=256)

    order = factor.order
    upper = torch.linalg.cholesky(torch.linalg.inv(moments.double()[order][:, order]), upper=True)
    pairs = (books[0].double().unsqueeze(1) + books[1].double()).view(-1, 8)
    rest = rows.double()[:, order]
    for group in range(20):
        here = slice(8 * group, 8 * group + 8)
        corner = torch.linalg.inv(upper[here, here])
        costs = torch.cdist(rest[:, here] @ corner, pairs @ corner)
        best = costs.argmin(1)
        column = int(order[8 * group]) // 8
        mine = found[:, column, 0].long() * 256 + found[:, column, 1].long()
        # of two pairs as good as equal either may be taken; the loop goes on from ours
        chosen = costs.gather(1, mine.unsqueeze(1)).squeeze(1)
        torch.testing.assert_close(chosen, costs.gather(1, best.unsqueeze(1)).squeeze(1), rtol=1e-3, atol=1e-3)
        error = (rest[:, here] - pairs[mine]) @ corner
        rest[:, here.stop :] -= error @ upper[here, here.stop :]
