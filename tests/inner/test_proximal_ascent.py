"""Proximal ascent (alg:prox): against a grid, exact for linear losses, monotone, honest about its end."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import certus
from certus import Box, SquaredL2
from certus.costs import Cost, Masked, SquaredLp, SquaredSup
from certus.domains import Ball, Domain, Unbounded
from certus.errors import ArgumentError, UnsupportedError
from certus.inner import BarzilaiBorwein, ProximalAscent, Status, default_maximizer
from tests.inner.test_brute_force import BOX, brute_force
from tests.problems import CONCAVE_LOSS, ORIGINS, PLANE_LOSSES, SHARP_COSTS, PlaneCost, PlaneLoss

PRECISE = ProximalAscent(tolerance=1e-12, max_gradients=500)
SHARP: list[Cost] = [SquaredSup(), SquaredLp(1.0)]
FIRST = torch.tensor([True, False, True])


@pytest.mark.parametrize("domain", [Unbounded(), BOX], ids=["unbounded", "box"])
@pytest.mark.parametrize("cost", SHARP_COSTS, ids=str)
@pytest.mark.parametrize("loss", [*PLANE_LOSSES, CONCAVE_LOSS], ids=str)
def test_the_maximum_in_the_plane(loss: PlaneLoss, cost: PlaneCost, domain: Domain) -> None:
    """With γ so large that the penalty outweighs the curvature, as far as it can without its own."""
    gamma = 1.5 * max(loss.curvature, 0.5)
    origins = domain.project(ORIGINS)
    found = certus.WRM(gamma, cost=cost.cost, domain=domain, maximizer=PRECISE).solve(
        loss.torch_form, origins
    )
    assert found.converged.all() or loss is not CONCAVE_LOSS
    for i, origin in enumerate(origins.numpy()):
        _, value = brute_force(loss, cost, domain, gamma, origin)
        # The ridge |δ₁| = |δ₂| of the sup-norm runs between the lines of the grid.
        assert found.value[i] == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("domain", [Unbounded(), Box(-0.4, 0.7)], ids=["free", "boxed"])
@pytest.mark.parametrize(
    "cost", [*SHARP, *(Masked(cost, FIRST) for cost in SHARP)], ids=lambda c: str(c)[:22]
)
def test_a_linear_loss_takes_one_step(cost: Cost, domain: Domain, dtype: torch.dtype) -> None:
    """One gradient at z₀, and the unmeasured step attains sup_δ ⟨g, δ⟩ − γ‖δ‖²."""
    rng = torch.Generator().manual_seed(0)
    slope = torch.randn(3, generator=rng, dtype=torch.float64).to(dtype)
    origin, gamma = 0.3 * torch.rand(5, 3, generator=rng, dtype=torch.float64).to(dtype), 0.8
    wrm = certus.WRM(gamma, cost=cost, domain=domain, maximizer=ProximalAscent(0.0, 1))
    found = wrm.solve(lambda z: z @ slope, origin)
    assert found.gradients.tolist() == [1] * 5
    assert torch.equal(found.inputs, origin)
    free = slope * FIRST if isinstance(cost, Masked) else slope
    attained = found.onward @ slope - gamma * cost(found.onward, origin)
    sizes = cost.respond(free.expand(5, 3), origin, origin, torch.full((5,), gamma, dtype=dtype), domain)
    best = sizes.target @ slope - gamma * cost(sizes.target, origin)
    torch.testing.assert_close(attained, best, rtol=2e-6, atol=2e-6)
    if isinstance(cost, SquaredSup) and isinstance(domain, Unbounded):
        expected = origin + slope.sign() * slope.abs().sum() / (2 * gamma)
        torch.testing.assert_close(found.onward, expected, rtol=3e-6, atol=3e-6)
    if cost == SquaredLp(1.0) and isinstance(domain, Unbounded):
        torch.testing.assert_close(
            attained - origin @ slope, (slope.abs().max() ** 2 / (4 * gamma)).expand(5)
        )


@given(seed=st.integers(0, 1000), gamma=st.floats(0.05, 5.0), which=st.integers(0, 2), sup=st.booleans())
def test_monotone_and_inside(seed: int, gamma: float, which: int, sup: bool) -> None:
    """Also far below the threshold, where f is not concave."""
    domain = Box(-1.0, 1.0) if seed % 2 else Unbounded()
    rng = torch.Generator().manual_seed(seed)
    start = domain.project(torch.randn(8, 2, dtype=torch.float64, generator=rng))
    loss, values = PLANE_LOSSES[which].torch_form, []
    wrm = certus.WRM(gamma, cost=SHARP[0 if sup else 1], domain=domain, maximizer=ProximalAscent(1e-8, 40))
    found = wrm.solve(loss, start, callback=lambda step, point, value: values.append(value))
    for before, after in pairwise([loss(start), *values, found.value]):
        assert (after >= before).all()
    assert domain.contains(found.inputs).all()
    assert domain.contains(found.onward).all()
    assert (found.gradients <= 40).all()
    assert (found.gap[found.converged] <= 1e-8).all()
    attained = loss(found.inputs) - gamma * wrm.cost(found.inputs, start)
    torch.testing.assert_close(found.value, attained)


def test_samples_are_apart_and_every_gradient_is_counted() -> None:
    seen = []

    def loss(z: Tensor) -> Tensor:
        seen.append(len(z))
        return PLANE_LOSSES[1].torch_form(z)

    start = torch.randn(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    wrm = certus.WRM(1.0, cost=SquaredSup(), maximizer=ProximalAscent(1e-6, 60))
    together = wrm.solve(loss, start)
    extra = sum(seen) - int(together.gradients.sum())
    assert 0 <= extra <= 50 // 16 * int(together.gradients.max())
    assert len(together.gradients.unique()) > 1
    for i in range(0, 50, 10):
        alone = wrm.solve(loss, start[i : i + 1])
        torch.testing.assert_close(alone.inputs[0], together.inputs[i])
        assert alone.gradients[0] == together.gradients[i]


@pytest.mark.parametrize("cost", SHARP, ids=str)
def test_nan_on_the_way_and_at_the_start(cost: Cost) -> None:
    def loss(z: Tensor) -> Tensor:
        return torch.where(z[:, 0] > 0.5, torch.nan, 4 * z.sum(1) + z[:, 0])

    start = torch.tensor([[0.0, 0.0], [-9.0, 0.0], [1.0, 0.0]])
    found = certus.WRM(2.0, cost=cost, maximizer=ProximalAscent(1e-4)).solve(loss, start)
    assert found.status.tolist() == [Status.NONFINITE, Status.CONVERGED, Status.NONFINITE]
    assert torch.isfinite(found.inputs).all()
    assert float(found.value[0]) > 0
    assert torch.equal(found.onward[::2], found.inputs[::2])
    assert torch.equal(found.inputs[2], start[2])


def test_out_of_budget_and_out_of_precision() -> None:
    start, loss = ORIGINS.float(), PLANE_LOSSES[1].torch_form
    short = certus.WRM(0.5, cost=SquaredSup(), maximizer=ProximalAscent(0.0, 2)).solve(loss, start)
    assert (short.status == Status.MAX_STEPS).all()
    precise = certus.WRM(2.0, cost=SquaredSup(), maximizer=ProximalAscent(0.0, 500)).solve(loss, start)
    assert set(precise.status.tolist()) <= {Status.STALLED, Status.CONVERGED}
    assert (precise.gradients < 200).all()


@pytest.mark.parametrize("scale", [1e-12, 1e6, 1e15])
@pytest.mark.parametrize("cost", SHARP, ids=str)
def test_extreme_slopes_stay_finite(cost: Cost, scale: float) -> None:
    slope = scale * torch.tensor([1.0, 0.0, -1e-3])
    for domain in (Unbounded(), Box(-0.5, 0.5)):
        found = certus.WRM(1.0, cost=cost, domain=domain).solve(lambda z: z @ slope, torch.zeros(2, 3))
        assert torch.isfinite(found.onward).all()
        assert (found.status != Status.NONFINITE).all()


def test_a_flat_loss_moves_nothing() -> None:
    start = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    found = certus.WRM(1.0, cost=SquaredSup()).solve(lambda z: (0 * z).sum(1) + 3, start)
    assert torch.equal(found.inputs, start)
    assert torch.equal(found.onward, start)
    assert found.gradients.tolist() == [1, 1, 1, 1]
    assert found.converged.all()


def test_a_tenth_of_the_conditional_gradients() -> None:
    """ℓ = −‖z − peak‖²: the maximum is a prox, cut off at 4t = Σ(|peak| − t)₊; most lie inside."""
    peak = torch.linspace(-1, 1, 50, dtype=torch.float64)
    start, cut = torch.zeros(1, 50, dtype=torch.float64), 24 / 35
    assert 4 * cut == pytest.approx(float((peak.abs() - cut).clamp_min(0).sum()), abs=1e-9)
    best = -float(((peak.abs() - cut).clamp_min(0) ** 2).sum()) - 4 * cut**2

    def missing(maximizer: certus.inner.Maximizer) -> float:
        wrm = certus.WRM(4.0, cost=SquaredSup(), maximizer=maximizer)
        return best - float(wrm.solve(lambda z: -((z - peak) ** 2).sum(1), start).value)

    assert abs(missing(ProximalAscent(0.0, 20))) < 1e-9
    assert missing(BarzilaiBorwein(0.0, 200)) > 1e-3


@pytest.mark.parametrize(
    ("cost", "domain", "kind"),
    [
        (SquaredSup(), Unbounded(), ProximalAscent),
        (SquaredLp(1.0), Box(0, 1), ProximalAscent),
        (Masked(SquaredSup(), FIRST), Box(0, 1), ProximalAscent),
        (SquaredSup(), Ball(0.0, 1.0), BarzilaiBorwein),
        (SquaredLp(1.5), Unbounded(), BarzilaiBorwein),
        (Masked(SquaredL2(), FIRST), Unbounded(), BarzilaiBorwein),
    ],
    ids=["sup", "l1", "masked sup", "ball", "l1.5", "masked l2"],
)
def test_the_default_choice(cost: Cost, domain: Domain, kind: type) -> None:
    chosen = default_maximizer(cost, domain, tolerance=1e-3)
    assert type(chosen) is kind
    assert chosen.tolerance == 1e-3
    assert type(certus.WRM(1.0, cost=cost, domain=domain).maximizer) is kind


def test_the_surrogate_uses_it() -> None:
    """φ and T of a quadratic, by default: the prox itself, here at a = 2 and v = (3, 1)."""
    peak, start = torch.tensor([3.0, -1.0]), torch.zeros(1, 2)
    phi = certus.inner.robust_surrogate(
        lambda z: -((z - peak) ** 2).sum(1) / 2, start, gamma=1.0, cost=SquaredSup()
    )
    moved = certus.inner.transport_map(
        lambda z: -((z - peak) ** 2).sum(1) / 2, start, gamma=1.0, cost=SquaredSup()
    )
    np.testing.assert_allclose(moved, [[1.0, -1.0]], atol=1e-3)
    np.testing.assert_allclose(phi, [-2.0 - 1.0], atol=1e-5)


def test_refusals() -> None:
    wrm = certus.WRM(1.0, cost=SquaredSup(), domain=Ball(0.0, 1.0), maximizer=ProximalAscent())
    with pytest.raises(UnsupportedError, match=r"SquaredSup\(\) has no proximal step on Ball"):
        wrm(lambda z: z.sum(1), torch.zeros(1, 2))
    with pytest.raises(UnsupportedError, match=r"SquaredL2\(\) has no proximal step on Unbounded"):
        certus.WRM(1.0, maximizer=ProximalAscent())(lambda z: z.sum(1), torch.zeros(1, 2))
    with pytest.raises(ArgumentError, match="`tolerance` must not be negative"):
        ProximalAscent(tolerance=-1.0)
    with pytest.raises(ArgumentError, match="`max_gradients` must be a whole number, at least 1; got 0"):
        ProximalAscent(max_gradients=0)
