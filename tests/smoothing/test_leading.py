"""One bet that carries the others: shares of δ, slopes, and what they come to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from certus.certificates.confidence import betting
from certus.errors import ArgumentError
from certus.kernel.passes import Refused
from certus.kernel.smoothing import GammaDesign
from certus.smoothing.design import make_design, spend_alpha, upper_means
from certus.smoothing.voting import ONE_DRAW

DRAWS = 10
LINE = np.arange(DRAWS + 1) / DRAWS
ORDER = torch.arange(400)


def counted(seed: int = 0, count: int = 400) -> torch.Tensor:
    random = np.random.default_rng(seed)
    return torch.from_numpy(random.binomial(DRAWS, random.beta(0.4, 2.0, count)))


def test_a_follower_is_bounded_through_its_leader() -> None:
    """c = ½c⁰ + ¼: nothing is left to bet on, so that the bound is ½ of the leader's and ¼."""
    seen = counted()
    designs = [GammaDesign(2.0, LINE, share=0.9), GammaDesign(1.0, 0.25 + LINE / 2, share=0.1, slope=0.5)]
    found = upper_means(designs, seen, ORDER, 0.05)
    alone = betting((seen / DRAWS).double(), 1.0, 0.045)
    assert found[2.0] == pytest.approx(alone, abs=1e-7)
    assert found[1.0] == pytest.approx(0.25 + alone / 2, abs=1e-7)


def test_without_slopes_every_stake_bets_by_itself() -> None:
    seen = counted()
    designs = [GammaDesign(2.0, LINE, share=0.5), GammaDesign(1.0, 0.2 + 0.8 * LINE**2, share=0.5)]
    found = upper_means(designs, seen, ORDER, 0.05)
    for design in designs:
        values = torch.from_numpy(design.coefficients)[seen]
        low, high = float(design.coefficients.min()), float(design.coefficients.max())
        alone = low + betting((values - low).clamp(0, high - low), high - low, 0.025)
        assert found[design.gamma] == pytest.approx(alone, abs=1e-7)


@pytest.mark.parametrize(
    "designs",
    [
        [GammaDesign(2.0, LINE, 0.6), GammaDesign(1.0, LINE, 0.5)],
        [GammaDesign(2.0, LINE, 0.5), GammaDesign(1.0, LINE, 0.5, slope=-1.0)],
        [GammaDesign(2.0, LINE, 0.5, slope=1.0), GammaDesign(1.0, LINE, 0.5)],
        [GammaDesign(2.0, LINE, 0.5), GammaDesign(1.0, LINE, 0.5, slope=float("nan"))],
    ],
)
def test_claims_that_are_too_strong_are_refused(designs: list[GammaDesign]) -> None:
    with pytest.raises((Refused, ArgumentError)):
        upper_means(designs, counted(), ORDER, 0.05)


def test_shares_add_up_and_the_order_of_gammas_does_not_matter() -> None:
    errors = counted(1, 200)
    rhos = [0.001, 0.01, 0.1]
    designs = make_design(
        ONE_DRAW, errors.double().numpy(), DRAWS, rhos, 0.25, None, samples=300, failure=0.05
    )
    assert sum(design.share for design in designs) == pytest.approx(1)
    assert designs[0].slope == 0
    assert designs[0].share == max(design.share for design in designs) > 1 / len(designs)
    turned = spend_alpha(designs[::-1], errors.double().numpy(), rhos, 300, 0.05)
    assert {one.gamma: one.share for one in turned}.keys() == {one.gamma for one in designs}
    single = spend_alpha(designs[:1], errors.double().numpy(), rhos, 300, 0.05)
    assert [(one.share, one.slope) for one in single] == [(1.0, 0.0)]


def test_leading_pays() -> None:
    """Against δ/|Γ| for every γ, on samples that the plan has not seen: the mean bound is lower."""
    plan, rhos = counted(1, 200), [0.0005, 0.005, 0.05]
    designs = make_design(ONE_DRAW, plan.double().numpy(), DRAWS, rhos, 0.25, samples=400, failure=0.05)
    equal = [GammaDesign(one.gamma, one.coefficients, 1 / len(designs)) for one in designs]
    lower = []
    for seed in range(2, 7):
        led, alone = (upper_means(one, counted(seed), ORDER, 0.05) for one in (designs, equal))
        for rho in rhos:
            high = [min(gamma * rho + mean for gamma, mean in one.items()) for one in (led, alone)]
            lower.append(high[1] - high[0])
    assert np.mean(lower) > 0.002
