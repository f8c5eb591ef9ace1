"""No attack of this library, with restarts and knowing the certificate, gets past a proven bound; mutants
of the bounds are caught."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import certus
from certus import WRM, Box, CrossEntropy, ModelLoss, SquaredL2, certify
from certus.attacks import BIM, FGSM, PGD, minimum_norm_attack
from certus.certificates import Certificate, Rule, worst_error
from certus.certificates.dual_values import climb
from certus.certificates.engine import make_grid
from certus.certificates.problem import Problem
from certus.costs import Cost, SquaredSup, WeightedL2
from certus.domains import Domain, Unbounded
from certus.inner import BarzilaiBorwein
from certus.kernel import costs
from certus.kernel.rules import Proposal, bounds_by_rule
from tests.certificates.problems import (
    ACTIVATIONS,
    CROSS_ENTROPY,
    EVERYWHERE,
    L2,
    bounded,
    network,
    samples,
)

SETS, SAMPLES = 8, 3  # of each network: every set is a problem of its own
BOX = Box(-1.0, 1.0)
GEOMETRIES: list[tuple[Cost, Domain, Callable[[Tensor], Tensor]]] = [
    (SquaredL2(), Unbounded(), lambda v: (v**2).sum(1)),
    (SquaredL2(), BOX, lambda v: (v**2).sum(1)),
    (SquaredSup(), Unbounded(), lambda v: v.abs().amax(1) ** 2),
    (WeightedL2(torch.tensor([0.5, 3.0]).double()), BOX, lambda v: 0.5 * v[:, 0] ** 2 + 3 * v[:, 1] ** 2),
]


@dataclass
class Attacked:
    """Points that were tried, (tries, samples): their costs and losses, and whether they are errors."""

    costs: Tensor
    losses: Tensor
    wrong: Tensor

    def worst(self, index: Tensor, rho: float) -> tuple[float, float]:
        """The largest mean loss and error rate at mean cost ≤ ρ that any choice of points per sample attains.

        A linear program with one constraint: a sweep over its multiplier, and mixtures of two neighbours.
        """
        costs, losses = self.costs[:, index], self.losses[:, index]
        prices = torch.logspace(-2.5, 2.5, 60).double()
        pick = (losses - prices[:, None, None] * costs).argmax(1)
        points = [(0.0, float(losses[0].mean()))]
        for chosen in pick.unique(dim=0):
            at = chosen, torch.arange(len(index))
            points.append((float(costs[at].mean()), float(losses[at].mean())))
        best = max(height for cost, height in points if cost <= rho)
        for near, far in itertools.product(points, points):
            if near[0] <= rho < far[0]:
                share = (rho - near[0]) / (far[0] - near[0])
                best = max(best, (1 - share) * near[1] + share * far[1])
        least = torch.where(self.wrong[:, index], costs, math.inf).amin(0).sort().values
        left, errors = rho * len(index), 0.0
        for price in least.tolist():  # the cheapest errors first
            errors += 1.0 if price <= left else left / price
            left = max(left - price, 0.0)
        return best, errors / len(index)


def attack(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    geometry: tuple[Cost, Domain, Callable[[Tensor], Tensor]],
    found: Certificate,
    rhos: list[float],
) -> Attacked:
    """Every attack of the library, with restarts: FGSM, BIM and PGD around the radius √ρ, the nearest error,
    and WRM at the very γ that prove the bounds, and below them."""
    cost, domain, measure = geometry
    (origin, targets), loss = data, ModelLoss(model, CrossEntropy())
    torch.manual_seed(0)
    moved = [origin]
    for radius in {math.sqrt(rho) * factor for rho in rhos for factor in (0.8, 1.6)}:
        norm = math.inf if isinstance(cost, SquaredSup) else 2.0
        moved.append(FGSM(radius, norm, domain=domain)(loss, origin, targets))
        moved.append(PGD(radius, norm, steps=4, restarts=2, domain=domain)(loss, origin, targets))
        moved.append(BIM(radius, norm, steps=4, domain=domain)(loss, origin, targets))
    for gamma in {found.bracket(rho).gamma * factor for rho in rhos for factor in (0.7, 1.0)}:
        wrm = WRM(gamma, cost=cost, domain=domain, maximizer=BarzilaiBorwein(1e-5, 6))
        moved.append(wrm.solve(loss, origin, targets).inputs)
    moved.append(
        minimum_norm_attack(loss, origin, targets, domain=domain, steps=3, rounds=4, restarts=2).inputs
    )
    with torch.no_grad():
        return Attacked(
            torch.stack([measure(points - origin) for points in moved]),
            torch.stack([loss(points, targets) for points in moved]),
            torch.stack([model(points).argmax(1) != targets for points in moved]),
        )


@pytest.mark.parametrize("networks", [15, pytest.param(125, marks=pytest.mark.soak)])
def test_certified_problems_withstand_every_attack(networks: int) -> None:
    kinds, checked, closest, wrong = list(ACTIVATIONS), 0, math.inf, 0
    rng = np.random.default_rng(0)
    for seed in range(networks):
        geometry = GEOMETRIES[seed % len(GEOMETRIES)]
        model = network(kinds[seed % len(kinds)], seed, size=float(rng.uniform(0.5, 3)))
        inputs, targets = samples(seed, SETS * SAMPLES)
        rhos = sorted(float(rho) for rho in 10 ** rng.uniform(-2.5, -0.3, 2))
        slope = certus.input_smoothness(model, cost=geometry[0]).lipschitz
        gammas = [slope / (2 * math.sqrt(rho)) / 4 for rho in rhos]
        found = certify(
            *(model, (inputs, targets)),
            rho=rhos,
            cost=geometry[0],
            domain=geometry[1],
            gammas=gammas,
            attack_steps=0,
            local_radii=1,
            gamma_rounds=0,
        )
        attacked = attack(model, (inputs, targets), geometry, found, rhos)
        assert found.proven_error_cost is not None
        for number, index in enumerate(torch.arange(SETS * SAMPLES).split(SAMPLES)):
            # What is proven is proven sample by sample, so that these three have a certificate of their own.
            rho = rhos[number % 2]
            bound = min(level.gamma * rho + float(level.bound[index].mean()) for level in found.dual_values)
            rate = worst_error(found.proven_error_cost[index], [rho])[0]
            loss, errors = attacked.worst(index, rho)
            assert loss <= bound + 1e-9, (seed, rho)
            assert errors <= rate + 1e-9, (seed, rho)
            closest, checked = min(closest, 1 - loss / bound), checked + 1
            wrong += errors > 0.9 * rate
    assert checked == networks * SETS
    assert closest < 0.01  # some bounds are nearly met: the attacks are no straw men
    assert wrong > checked / 10


def test_without_the_gap_term_brute_force_exceeds_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: value alone, after a short ascent."""
    model, data = network("softplus", 0, size=0.8), samples(0, 8)
    problem = Problem.of(model, data, CROSS_ENTROPY, L2, EVERYWHERE)
    known = bounded(problem, make_grid(problem, [0.01, 1.0], (0.05, 20.0), 4))
    short = BarzilaiBorwein(tolerance=0.0, max_gradients=1)
    precise = certus.inner.robust_surrogate(
        ModelLoss(model), *data, gamma=4.0, maximizer=BarzilaiBorwein(1e-12, 200)
    ).detach()

    def concave() -> Tensor:
        with torch.no_grad():
            points = climb(problem, 4.0, short)
            return bounds_by_rule(known, Proposal.at(problem.kernel, 4.0, points))[Rule.CONCAVE]

    assert bool((concave() >= precise).all())
    monkeypatch.setattr(costs.Cost, "gap", lambda cost, gradient, *_: torch.zeros(len(gradient)).double())
    assert bool((concave() < precise - 1e-4).any())


def test_the_papers_pairing_is_no_bracket() -> None:
    """Mutant: E ℓ(T̂_γ), at cost ρ̂(γ), set against the bound at another ρ. It exceeds that bound;
    ``lower`` never does."""
    model, data = network("elu", 2), samples(2, 40)
    found = certify(model, data, rho=(0.01, 0.3))
    pairs = [
        (level, found.bound(rho), found.lower(rho)) for level in found.attained_budgets for rho in (0.01, 0.3)
    ]
    assert any(level.loss > bound for level, bound, _ in pairs)
    assert all(lower <= bound for _, bound, lower in pairs)


def test_an_overconfident_network_gets_an_honest_answer() -> None:
    """A flat stretch around the data fools an ascent: the estimate stays put, the bound does not."""
    model = nn.Sequential(nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 2)).double()
    with torch.no_grad():
        model[0].weight.fill_(8.0), model[0].bias.fill_(-8.0)  # type: ignore[operator]
        model[2].weight.copy_(torch.tensor([[-6.0], [6.0]])), model[2].bias.zero_()  # type: ignore[operator]
    data = (torch.full((3, 1), -1.5).double(), torch.zeros(3, dtype=torch.long))
    found = certify(model, data, rho=10.0, gammas=[1.0, 0.5], gamma_rounds=0)
    truth = float(CrossEntropy()(model(torch.tensor([[1.4]]).double()), data[1][:1]).detach())
    assert found.estimate(9.0) < truth < found.bound(9.0)
