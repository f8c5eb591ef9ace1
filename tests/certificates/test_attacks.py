"""No attack of this library, with restarts and knowing the certificate, gets past a proven bound; mutants
of the bounds are caught."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import certus
from certus import WRM, BarzilaiBorwein, CrossEntropy, ModelLoss, certify
from certus.attacks import fgm, nearest_error, pgm
from certus.certificates import Certificate, Rule, worst_error
from certus.certificates import levels as levels_module
from tests.certificates.problems import ACTIVATIONS, around, network, samples

PROBLEMS, SAMPLES, RHOS = 1000, 4, (0.02, 0.2)
PER_NETWORK = 50  # problems that share a network: subsets of one batch of samples


def part(certificate: Certificate, index: Tensor) -> tuple[dict[float, float], dict[float, float]]:
    """Loss and error bounds of some samples only: every per-sample bound stands by itself."""
    loss = {
        rho: min(level.gamma * rho + float(level.bound[index].mean()) for level in certificate.levels)
        for rho in RHOS
    }
    assert certificate.error_floor is not None
    errors = dict(zip(RHOS, worst_error(certificate.error_floor[index], RHOS), strict=True))
    return loss, errors


def attained(
    loss: ModelLoss, origin: Tensor, targets: Tensor, certificate: Certificate
) -> list[tuple[Tensor, Tensor]]:
    """(cost, loss) of every sample under each attack: PGM and FGM at many radii, WRM at the certificate's
    own γ and
    around it, from the samples and from random starts."""
    torch.manual_seed(0)
    moved = [origin]
    radii = {math.sqrt(rho) * factor for rho in RHOS for factor in (0.5, 1.0, 2.0)}
    for radius in radii:
        moved.append(fgm(radius, 2.0)(loss, origin, targets))
        moved.append(pgm(radius, 2.0, steps=8, restarts=2)(loss, origin, targets))
    own = {certificate.bracket(rho).gamma * factor for rho in RHOS for factor in (0.5, 1.0, 1.5)}
    for gamma in own:
        for start in (origin, origin + 0.3 * torch.randn_like(origin)):
            objective = WRM(gamma, maximizer=BarzilaiBorwein(1e-6, 15)).solve(loss, start, targets)
            moved.append(objective.inputs)
    with torch.no_grad():
        return [(((point - origin) ** 2).sum(1), loss(point, targets)) for point in moved]


def best_mixture(tries: list[tuple[Tensor, Tensor]], index: Tensor, rho: float) -> float:
    """The largest mean loss at mean cost ≤ ρ that some choice of points per sample attains (greedy on a
    multiplier)."""
    costs = torch.stack([cost[index] for cost, _ in tries])
    losses = torch.stack([height[index] for _, height in tries])
    points = [(0.0, float(losses[0].mean()))]
    for price in torch.logspace(-2, 2, 40).tolist():
        pick = (losses - price * costs).argmax(0)
        columns = torch.arange(len(index))
        points.append((float(costs[pick, columns].mean()), float(losses[pick, columns].mean())))
    best = max(height for cost, height in points if cost <= rho)
    for near in points:
        for far in points:
            if near[0] <= rho < far[0]:
                share = (rho - near[0]) / (far[0] - near[0])
                best = max(best, (1 - share) * near[1] + share * far[1])
    return best


@pytest.mark.slow
def test_a_thousand_certified_problems_withstand_every_attack() -> None:
    kinds, checked, closest = list(ACTIVATIONS), 0, math.inf
    for seed in range(PROBLEMS // PER_NETWORK):
        model = network(kinds[seed % len(kinds)], seed, size=1.0 + seed % 3)
        inputs, targets = samples(seed, 20)
        found = certify(model, (inputs, targets), rho=RHOS, attack_steps=0, balls=2, refine=0)
        loss = ModelLoss(model, CrossEntropy())
        tries = attained(loss, inputs, targets, found)
        near = nearest_error(loss, inputs, targets, steps=8, rounds=6, restarts=2)
        reached = torch.where(near.found, near.distance**2, math.inf)
        generator = torch.Generator().manual_seed(seed)
        for _ in range(PER_NETWORK):
            index = torch.randperm(len(inputs), generator=generator)[:SAMPLES]
            bounds, rates = part(found, index)
            for rho in RHOS:
                best = best_mixture(tries, index, rho)
                assert best <= bounds[rho] + 1e-9, (seed, rho)
                closest = min(closest, (bounds[rho] - best) / bounds[rho])
                assert worst_error(reached[index], [rho])[0] <= rates[rho] + 1e-9, (seed, rho)
            checked += 1
    assert checked == PROBLEMS
    assert closest < 0.01  # some bounds are nearly met: the attacks are no straw men


def test_without_the_gap_term_brute_force_exceeds_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: value alone, after a short ascent."""
    model, data = network("softplus", 0, size=0.8), samples(0, 8)
    known = around(model, data)
    short = BarzilaiBorwein(tolerance=0.0, max_gradients=1)
    precise = certus.robust_surrogate(
        ModelLoss(model), *data, gamma=4.0, maximizer=BarzilaiBorwein(1e-12, 200)
    ).detach()

    def concave() -> Tensor:
        with torch.no_grad():
            climb = levels_module.Climb.of(known.problem, 4.0, short)
            return levels_module.bounds_by_rule(known, climb)[Rule.CONCAVE]

    assert bool((concave() >= precise).all())
    monkeypatch.setattr(levels_module, "_gap", lambda *_: torch.zeros(len(data[0])).double())
    assert bool((concave() < precise - 1e-4).any())


def test_the_papers_pairing_is_no_bracket() -> None:
    """Mutant: E ℓ(T̂_γ), at cost ρ̂(γ), set against the bound at another ρ. It exceeds that bound;
    ``lower`` never does."""
    model, data = network("elu", 2), samples(2, 40)
    found = certify(model, data, rho=(0.01, 0.3))
    pairs = [(level, found.bound(rho), found.lower(rho)) for level in found.reached for rho in (0.01, 0.3)]
    assert any(level.loss > bound for level, bound, _ in pairs)
    assert all(lower <= bound for _, bound, lower in pairs)


def test_an_overconfident_network_gets_an_honest_answer() -> None:
    """A flat stretch around the data fools an ascent: the estimate stays put, the bound does not."""
    model = nn.Sequential(nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 2)).double()
    with torch.no_grad():
        model[0].weight.fill_(8.0), model[0].bias.fill_(-8.0)  # type: ignore[operator]
        model[2].weight.copy_(torch.tensor([[-6.0], [6.0]])), model[2].bias.zero_()  # type: ignore[operator]
    data = (torch.full((3, 1), -1.5).double(), torch.zeros(3, dtype=torch.long))
    found = certify(model, data, rho=10.0, gammas=[1.0, 0.5], refine=0)
    truth = float(CrossEntropy()(model(torch.tensor([[1.4]]).double()), data[1][:1]).detach())
    assert found.estimate(9.0) < truth < found.bound(9.0)
