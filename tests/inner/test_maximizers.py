"""How the maximisers behave: monotone, stopped sample by sample, honest about what they spent and reached."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import certus
from certus import Box
from certus.inner import BarzilaiBorwein, Maximizer, Objective, PaperAscent, Status
from tests.problems import ORIGINS, PLANE_LOSSES, PlaneLoss

LOSS = PLANE_LOSSES[1].torch_form


class Counted:
    """A loss that counts the samples it was evaluated at."""

    def __init__(self) -> None:
        self.samples = 0

    def __call__(self, z: Tensor) -> Tensor:
        self.samples += len(z)
        return LOSS(z)


@given(seed=st.integers(0, 1000), gamma=st.floats(0.05, 5.0), which=st.integers(0, 2), boxed=st.booleans())
def test_the_default_is_monotone(seed: int, gamma: float, which: int, boxed: bool) -> None:
    """Also far below the threshold, where f is not concave."""
    domain = Box(-1.0, 1.0) if boxed else certus.domains.Unbounded()
    generator = torch.Generator().manual_seed(seed)
    start = domain.project(torch.randn(8, 2, dtype=torch.float64, generator=generator))
    loss = PLANE_LOSSES[which].torch_form
    values = [loss(start)]
    wrm = certus.WRM(gamma, domain=domain, maximizer=BarzilaiBorwein(1e-8, 40))
    found = wrm.solve(loss, start, callback=lambda step, point, value: values.append(value))
    for before, after in pairwise(values):
        assert (after >= before).all()
    torch.testing.assert_close(values[-1], found.value)
    assert domain.contains(found.inputs).all()
    assert (found.gradients <= 40).all()
    assert (found.gap[found.converged] <= 1e-8).all()


@pytest.mark.parametrize("maximizer", [BarzilaiBorwein(1e-3, 30), PaperAscent(6)], ids=["default", "paper"])
def test_every_gradient_is_counted(maximizer: Maximizer) -> None:
    counted = Counted()
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(50, 2, dtype=torch.float64, generator=generator)
    found = certus.WRM(1.0, maximizer=maximizer).solve(counted, start)
    # Finished samples that ride along, at most a sixteenth of the batch per step, are nobody's gradients.
    extra = counted.samples - int(found.gradients.sum())
    assert 0 <= extra <= 50 // 16 * int(found.gradients.max())
    if isinstance(maximizer, BarzilaiBorwein):
        assert len(found.gradients.unique()) > 1  # some stopped before others
    else:
        assert found.gradients.unique().tolist() == [7]


def test_samples_do_not_influence_each_other() -> None:
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(12, 2, dtype=torch.float64, generator=generator)
    wrm = certus.WRM(1.0, maximizer=BarzilaiBorwein(1e-9, 50))
    together = wrm.solve(LOSS, start)
    for i in range(len(start)):
        alone = wrm.solve(LOSS, start[i : i + 1])
        torch.testing.assert_close(alone.inputs[0], together.inputs[i])
        assert alone.gradients[0] == together.gradients[i]
        assert alone.status[0] == together.status[i]


def test_a_looser_tolerance_costs_fewer_gradients() -> None:
    start = torch.randn(64, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    spent = []
    for tolerance in (1e-1, 1e-3, 1e-8):
        found = certus.WRM(1.5, maximizer=BarzilaiBorwein(tolerance, 50)).solve(LOSS, start)
        assert found.converged.all()
        assert (found.gap <= tolerance).all()
        spent.append(float(found.gradients.double().mean()))
    assert spent[0] < spent[1] < spent[2]


@pytest.mark.parametrize("loss", PLANE_LOSSES, ids=str)
@pytest.mark.parametrize("gamma", [0.7, 3.0])
def test_the_papers_schedule_step_by_step(loss: PlaneLoss, gamma: float) -> None:
    """x ← x + (1/2γ)/√t · ∇(ℓ − γ‖x − x₀‖²), written out by hand."""
    expected, trace = ORIGINS.clone(), []
    for t in range(1, 16):
        leaf = expected.clone().requires_grad_()
        objective = loss.torch_form(leaf) - gamma * ((leaf - ORIGINS) ** 2).sum(1)
        (slope,) = torch.autograd.grad(objective.sum(), leaf)
        expected = expected + slope / (2 * gamma) / math.sqrt(t)
        trace.append(expected)
    points: list[Tensor] = []
    wrm = certus.WRM(gamma, maximizer=PaperAscent())
    found = wrm.solve(loss.torch_form, ORIGINS, callback=lambda step, point, value: points.append(point))
    torch.testing.assert_close(points, trace)
    torch.testing.assert_close(found.inputs, expected)


@pytest.mark.parametrize("gamma", [0.8, 2.0])
def test_the_unit_step_contracts(gamma: float) -> None:
    """x ↦ z₀ + ∇ℓ(x)/2γ contracts by L/2γ, so that the ascent converges linearly; L = 1 for the waves."""
    generator = torch.Generator().manual_seed(4)
    points = torch.randn(200, 2, dtype=torch.float64, generator=generator)
    origin = torch.zeros_like(points)
    penalties = torch.full((200,), gamma, dtype=torch.float64)
    objective = Objective(
        PLANE_LOSSES[0].torch_form, origin, None, penalties, certus.SquaredL2(), certus.domains.Unbounded()
    )
    target = objective.evaluate(points).target
    closer = (target[:100] - target[100:]).norm(dim=1)
    assert (closer <= (points[:100] - points[100:]).norm(dim=1) / (2 * gamma) + 1e-12).all()


def test_callbacks_see_the_whole_batch_at_every_step() -> None:
    seen: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
    start = torch.randn(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    certus.WRM(1.0, maximizer=BarzilaiBorwein(1e-6, 30)).solve(
        LOSS,
        start,
        callback=lambda step, point, value: seen.append((step, tuple(point.shape), tuple(value.shape))),
    )
    assert [step for step, _, _ in seen] == list(range(1, len(seen) + 1))
    assert {shapes[1:] for shapes in seen} == {((20, 2), (20,))}


def nan_beyond(limit: float, z: Tensor) -> Tensor:
    """Linear, and NaN where the first coordinate exceeds the limit."""
    values = 4 * z.sum(1)
    return torch.where(z[:, 0] > limit, torch.nan, values)


@pytest.mark.parametrize("maximizer", [BarzilaiBorwein(), PaperAscent()], ids=["default", "paper"])
def test_nan_on_the_way(maximizer: Maximizer) -> None:
    """The first step would lead to +1: only the first sample meets NaN, and keeps a finite point."""
    start = torch.tensor([[0.0, 0.0], [-5.0, 0.0]])
    found = certus.WRM(2.0, maximizer=maximizer).solve(lambda z: nan_beyond(0.5, z), start)
    assert torch.isfinite(found.inputs).all()
    assert torch.isfinite(found.value).all()
    assert torch.equal(found.onward[0], found.inputs[0])
    assert (found.value >= nan_beyond(0.5, start)).all()
    assert found.status[0] == Status.NONFINITE
    assert found.status[1] == Status.CONVERGED


@pytest.mark.parametrize("maximizer", [BarzilaiBorwein(), PaperAscent()], ids=["default", "paper"])
def test_nan_at_the_start(maximizer: Maximizer) -> None:
    start = torch.tensor([[1.0, 0.0], [-5.0, 0.0]])
    found = certus.WRM(2.0, maximizer=maximizer).solve(lambda z: nan_beyond(0.5, z), start)
    assert found.status.tolist() == [Status.NONFINITE, Status.CONVERGED]
    assert torch.equal(found.inputs[0], start[0])
    assert torch.equal(found.onward[0], start[0])
    assert torch.isnan(found.value[0])


def test_the_default_finds_its_way_around_nan() -> None:
    """log is NaN for negative arguments; the first step lands there, a shorter one does not."""
    start = torch.tensor([[0.05]], dtype=torch.float64)
    found = certus.WRM(1.0, maximizer=BarzilaiBorwein(1e-10, 100)).solve(
        lambda z: torch.log(z[:, 0]) - 12 * z[:, 0], start
    )
    assert found.status[0] == Status.CONVERGED
    # 1/z − 12 − 2(z − z₀) = 0
    expected = (-(12 - 0.1) + math.sqrt((12 - 0.1) ** 2 + 8)) / 4
    assert float(found.inputs) == pytest.approx(expected, abs=1e-6)


def test_the_step_in_hand_is_exact_for_a_linear_loss() -> None:
    """One gradient at z₀ and one unmeasured step: z₀ + slope/2γ, cut off by the box."""
    slope, origin = torch.tensor([[1.0, -4.0]]), torch.zeros(1, 2)
    wrm = certus.WRM(0.5, maximizer=BarzilaiBorwein(0.0, max_gradients=1), domain=Box(-2.0, 2.0))
    found = wrm.solve(lambda z: z @ slope[0], origin)
    assert torch.equal(found.inputs, origin)
    assert torch.allclose(found.onward, torch.tensor([[1.0, -2.0]]))
    assert torch.equal(wrm(lambda z: z @ slope[0], origin), found.onward)


@pytest.mark.parametrize("loss", PLANE_LOSSES, ids=str)
def test_the_step_in_hand_is_worth_taking(loss: PlaneLoss) -> None:
    """In the strongly concave regime the unmeasured step brings most samples nearer to the maximum."""
    gamma, cost = loss.curvature, certus.SquaredL2()
    found = certus.WRM(gamma, maximizer=BarzilaiBorwein(0.05)).solve(loss.torch_form, ORIGINS)
    onward = loss.torch_form(found.onward) - gamma * cost(found.onward, ORIGINS)
    assert float((onward - found.value).mean()) > 0
    best = certus.inner.robust_surrogate(loss.torch_form, ORIGINS, gamma=gamma)
    assert float((best - onward).mean()) < 0.5 * float((best - found.value).mean())


def test_out_of_budget_and_out_of_precision() -> None:
    start = ORIGINS.float()
    short = certus.WRM(0.5, maximizer=BarzilaiBorwein(1e-9, 2)).solve(LOSS, start)
    assert (short.status == Status.MAX_STEPS).all()
    assert not short.converged.any()
    precise = certus.WRM(2.0, maximizer=BarzilaiBorwein(0.0, 500)).solve(LOSS, start)
    assert set(precise.status.tolist()) <= {Status.STALLED, Status.CONVERGED}
    assert (precise.gradients < 100).all()


def test_a_flat_loss_moves_nothing() -> None:
    start = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    found = certus.WRM(1.0).solve(lambda z: (0 * z).sum(1) + 3, start)
    assert torch.equal(found.inputs, start)
    assert found.gradients.tolist() == [1, 1, 1, 1]
    assert found.converged.all()


@pytest.mark.parametrize("shape", [(5, 7), (5, 3, 4), (5, 2, 4, 4)], ids=str)
def test_inputs_of_any_shape(shape: tuple[int, ...]) -> None:
    start = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = certus.WRM(2.0, maximizer=BarzilaiBorwein(1e-12, 100)).solve(
        lambda z: torch.cos(z).flatten(1).sum(1), start
    )
    flat = certus.WRM(2.0, maximizer=BarzilaiBorwein(1e-12, 100)).solve(
        lambda z: torch.cos(z).sum(1), start.flatten(1)
    )
    assert found.inputs.shape == shape
    torch.testing.assert_close(found.inputs.flatten(1), flat.inputs)
