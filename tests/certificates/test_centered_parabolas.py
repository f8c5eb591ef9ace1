"""Parabolas centred at the samples: above the margins everywhere; radii hold against attacks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import Tensor, nn

from certus import Box, CrossEntropy, ModelLoss, SquaredL2, certify
from certus.attacks import minimum_norm_attack
from certus.certificates.local_bounds import Grid
from certus.certificates.problem import Problem
from certus.certificates.proposals import with_parabolas
from certus.costs import Cost, Masked, SquaredSup, WeightedL2
from certus.data import Samples
from certus.domains import Unbounded
from certus.kernel.majorants import Parabolas, hidden_layer
from certus.kernel.problem import Values
from certus.models import LogCosh, SmoothAbs, certified_mlp
from tests.certificates.problems import bounded
from tests.oracles import Array


def network(kind: type[nn.Module], seed: int, front: bool = False) -> nn.Sequential:
    """5-16-4, with units of all sharpnesses; behind three directions of the input, if so wished."""
    torch.manual_seed(seed)
    sharpness = 10 ** torch.empty(16).uniform_(-1, 1.5)
    if not front:
        return nn.Sequential(nn.Linear(5, 16), kind(sharpness), nn.Linear(16, 4))
    model = certified_mlp(5, [16], 4, basis=torch.linalg.qr(torch.randn(5, 3)).Q.T.contiguous())
    model.get_buffer("3.sharpness").copy_(sharpness)
    return model


def problem(model: nn.Module, cost: Cost) -> Problem:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (6,), generator=generator)
    data = Samples(2 * torch.randn(6, 5, generator=generator), labels)
    return Problem.of(model, data, CrossEntropy(), cost, Unbounded(), None, None)


def margins(made: Problem, points: Tensor) -> Tensor:
    outputs = made.kernel.outputs(points)
    return outputs - outputs.gather(1, made.targets.unsqueeze(1))


def centered(made: Problem) -> Parabolas | None:
    """The parabolas centred at the samples; None if there are none."""
    bounds = with_parabolas(made.kernel, Values.at(made.kernel), None).parabolas
    return bounds[0] if bounds else None


def parabolas(made: Problem) -> tuple[Parabolas, Tensor, Tensor]:
    """Around all samples, for all classes, and (n, classes) margins with their (n, classes, 5) gradients."""
    leaf = made.inputs.clone().requires_grad_()
    start = margins(made, leaf)
    slopes = torch.stack(
        [torch.autograd.grad(start[:, k].sum(), leaf, retain_graph=True)[0] for k in range(4)], 1
    )
    bounds = centered(made)
    assert bounds is not None
    return bounds, start.detach(), slopes


EVERY_KIND = pytest.mark.parametrize("kind", [LogCosh, SmoothAbs])
WEIGHTED = WeightedL2(torch.tensor([1.0, 4.0, 0.2, 3.0, 1.0]))
EVERY_COST = pytest.mark.parametrize("cost", [SquaredL2(), WEIGHTED], ids=["l2", "weighted"])


@pytest.mark.quick_share(3)
@EVERY_KIND
@EVERY_COST
@pytest.mark.parametrize("front", [False, True])
def test_margins_stay_below_their_quadratics(kind: type[nn.Module], cost: Cost, front: bool) -> None:
    """Random moves of all sizes, in the cost's norm: 6 samples × 3 classes × 1,000 moves."""
    made = problem(network(kind, 0, front), cost)
    found, start, slopes = parabolas(made)
    known = torch.isfinite(found.curvature)
    assert int(known.sum()) == 6 * 3  # all but the own
    tightest = closest = 0.0
    generator = torch.Generator().manual_seed(1)
    for _ in range(1_000):
        u = torch.randn(6, 5, dtype=torch.float64, generator=generator)
        sizes = 10 ** torch.empty(6, 1).double().uniform_(-2, 1, generator=generator)
        u = u / u.norm(dim=1, keepdim=True) * sizes
        move = cost.whiten(u)
        with torch.no_grad():
            rise = margins(made, made.inputs + move) - start
        square = (u**2).sum(1, keepdim=True) / 2
        bent = rise - (slopes * move.unsqueeze(1)).sum(2)
        assert bool((bent <= found.curvature * square + 1e-9)[known].all())
        most = (found.rise + found.coefficient * square.unsqueeze(2)).amin(2)
        assert bool((rise <= most + 1e-9)[known].all())
        tightest = max(tightest, float((bent / (found.curvature * square).clamp_min(1e-12))[known].max()))
        closest = max(closest, float((rise / most)[known].max()))
    assert tightest > 0.3  # the bounds are no bluff
    assert closest > 0.6


@EVERY_KIND
@EVERY_COST
def test_parabolas_are_those_of_the_trust_region(kind: type[nn.Module], cost: Cost) -> None:
    """The best of them is the largest value of the quadratic on a sphere, by its secular equation, to within
    some per cent, and never below it."""
    model = network(kind, 5)
    into, bias, out = (
        model.get_parameter(name).detach().double() for name in ("0.weight", "0.bias", "2.weight")
    )
    made = problem(model, cost)
    found, _, slopes = parabolas(made)
    z = made.inputs @ into.T + bias
    b = model.get_buffer("1.sharpness").double()
    slope = torch.tanh(b * z) if kind is LogCosh else z / (z**2 + b**-2).sqrt()
    gained = 1.0
    for sample in range(6):
        near = [k for k in range(4) if torch.isfinite(found.curvature[sample, k])]
        for k in near[:2]:
            u = (out[k] - out[made.targets[sample]]).clamp_min(0)
            form = into.T @ ((u * slope[sample] / z[sample]).unsqueeze(1) * into)
            scale = cost.whiten(torch.ones(1, 5).double())[0]
            quadratic = (scale[:, None] * form * scale).numpy()
            gradient = (slopes[sample, k] * scale).numpy()
            rises, bends = found.rise[sample, k], found.coefficient[sample, k]
            radius = float((2 * rises[6] / bends[6]).sqrt())  # where it rises by twice its start
            truth = sphere_maximum(gradient, quadratic, radius)
            best = float((rises + bends * radius**2 / 2).min())
            assert truth <= best + 1e-9
            plain = np.linalg.norm(gradient) * radius + np.linalg.eigvalsh(quadratic)[-1] * radius**2 / 2
            assert best <= 1.02 * truth
            gained = max(gained, plain / best)
    assert gained > 1.1


def sphere_maximum(gradient: Array, form: Array, radius: float) -> float:
    """max ⟨g, δ⟩ + ½⟨δ, Qδ⟩ over ‖δ‖ = r, by the roots of the secular equation."""
    values, vectors = np.linalg.eigh(form)
    parts = vectors.T @ gradient

    def length(multiplier: float) -> float:
        return float(np.linalg.norm(parts / (multiplier - values)))

    low, high = values[-1] + 1e-12, values[-1] + np.linalg.norm(gradient) / radius + 1.0
    multiplier = brentq(lambda m: length(m) - radius, low, high)
    move = vectors @ (parts / (multiplier - values))
    return float(gradient @ move + move @ form @ move / 2)


@EVERY_KIND
@pytest.mark.parametrize("inner", [SquaredL2(), WEIGHTED], ids=["l2", "weighted"])
def test_moves_that_a_box_or_a_mask_forbids_do_not_count(kind: type[nn.Module], inner: Cost) -> None:
    """Samples on the faces of a box, one coordinate frozen: bounds hold for every move that is left, and are
    better than without."""
    model = network(kind, 2)
    generator = torch.Generator().manual_seed(4)
    inputs = (2 * torch.rand(20, 5, generator=generator, dtype=torch.float64) - 1).mul(2).clamp(-1, 1)
    data = Samples(inputs, model.double()(inputs).argmax(1))
    cost = Masked(inner, torch.tensor([True, True, False, True, True]))
    grid = Grid(torch.tensor([0.0, 0.5, 1.0, 2.0], dtype=torch.float64), ())
    made = Problem.of(model, data, CrossEntropy(), cost, Box(-1.0, 1.0), None, None)
    free = Problem.of(model, data, CrossEntropy(), inner, Unbounded(), None, None)
    bounds = [bounded(each, grid).balls[-1].parabolas[0] for each in (made, free)]
    with torch.no_grad():
        start = margins(made, inputs)
    known = torch.isfinite(bounds[0].curvature)
    assert int(known.sum()) > 20
    for _ in range(500):
        far = 10 ** torch.empty(20, 1).double().uniform_(-2, 0.5, generator=generator)
        moved = inputs + far * torch.randn(20, 5, dtype=torch.float64, generator=generator)
        moved = torch.where(cost.mask, moved.clamp(-1, 1), inputs)
        square = cost(moved, inputs).reshape(-1, 1, 1)
        most = (bounds[0].rise + bounds[0].coefficient * square / 2).amin(2)
        with torch.no_grad():
            assert bool((margins(made, moved) - start <= most + 1e-9)[known].all())
    both = known & torch.isfinite(bounds[1].curvature)
    at_one = [(bound.rise + bound.coefficient / 2).amin(2)[both] for bound in bounds]
    assert bool((at_one[0] < 0.9 * at_one[1]).any())


@pytest.mark.parametrize("scale", [2.0**-27, 2.0**27])  # the grid of moves has powers of two
def test_the_unit_of_the_inputs_does_not_matter(scale: float) -> None:
    model, larger = network(LogCosh, 2).double(), network(LogCosh, 2).double()
    with torch.no_grad():
        larger.get_parameter("0.weight").div_(scale)
    inputs = torch.randn(8, 5, dtype=torch.float64)
    labels = model(inputs).argmax(1)
    floors = [
        certify(
            net, Samples(points, labels), rho=0.1, local_radii=0, gamma_rounds=0, attack_steps=0
        ).proven_error_cost
        for net, points in ((model, inputs), (larger, inputs * scale))
    ]
    assert floors[0] is not None
    assert floors[1] is not None
    torch.testing.assert_close(floors[1] / scale**2, floors[0], rtol=1e-6, atol=0)


def test_radii_hold_against_the_nearest_errors_found() -> None:
    """No error is found nearer than the certified radius, and the radii beat the Lipschitz ones."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 16), LogCosh(5.0), nn.Linear(16, 4)).double()
    data = Samples(torch.randn(80, 5).double(), torch.zeros(80, dtype=torch.long))
    with torch.no_grad():
        data = Samples(data.inputs, model(data.inputs).argmax(1))
    found = certify(model, data, rho=0.1, local_radii=0, gamma_rounds=0, attack_steps=0)
    assert found.proven_error_cost is not None
    near = minimum_norm_attack(ModelLoss(model), data.inputs, data.targets, norm=2.0, steps=20, rounds=8)
    distance = (near.inputs - data.inputs).norm(dim=1)
    with torch.no_grad():
        wrong = model(near.inputs).argmax(1) != data.targets
    assert int(wrong.sum()) > 20
    assert bool((found.proven_error_cost.sqrt()[wrong] <= distance[wrong] + 1e-9).all())
    assert float(found.proven_error_cost.sqrt()[wrong].mean()) > 0.4 * float(distance[wrong].mean())


def test_other_networks_have_none() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ELU(), nn.Linear(8, 3))
    data = Samples(torch.randn(3, 5), torch.zeros(3, dtype=torch.long))
    made = Problem.of(model, data, CrossEntropy(), SquaredL2(), Unbounded(), None, None)
    assert hidden_layer(made.kernel) is None
    assert centered(made) is None


def test_a_first_layer_that_cancels() -> None:
    """(2²⁷ + 1)(2²⁷ − 1) − 2²⁷·2²⁷ = −1 may be computed as 0, and is not lost."""
    model = nn.Sequential(
        nn.Linear(1, 2, bias=False), nn.Linear(2, 1, bias=False), LogCosh(1.0), nn.Linear(1, 2)
    )
    with torch.no_grad():
        model.double()[0].weight.copy_(torch.tensor([[2.0**27 - 1], [2.0**27]], dtype=torch.float64))  # type: ignore[operator]
        model[1].weight.copy_(torch.tensor([[2.0**27 + 1, -(2.0**27)]], dtype=torch.float64))  # type: ignore[operator]
    data = Samples(torch.zeros(1, 1, dtype=torch.float64), torch.tensor([0]))
    made = Problem.of(model.double(), data, CrossEntropy(), SquaredL2(), Unbounded())
    layer = hidden_layer(made.kernel)
    assert layer is not None
    matrix, lost, _ = layer
    assert float(matrix.norm()) + lost >= 1


def test_a_sample_whose_units_cancel() -> None:
    """z = (2²⁷ + 1)(2²⁷ − 1) − 2(2⁵³ − 1) = 1, which float64 may compute as 2: the curvature of
    log cosh around it is tanh(1)/1, not tanh(2)/2."""
    model = nn.Sequential(nn.Linear(2, 1, bias=False), LogCosh(1.0), nn.Linear(1, 2, bias=False)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[2.0**27 + 1, -2.0]], dtype=torch.float64))  # type: ignore[operator]
        model[2].weight.copy_(torch.tensor([[0.0], [1.0]], dtype=torch.float64))  # type: ignore[operator]
    point = torch.tensor([[2.0**27 - 1, 2.0**53 - 1]], dtype=torch.float64)
    made = Problem.of(model, Samples(point, torch.tensor([0])), CrossEntropy(), SquaredL2(), Unbounded())
    found = centered(made)
    assert found is not None
    weight = (2.0**27 + 1) ** 2 + 4
    assert float(found.curvature[0, 1]) >= math.tanh(1) * weight


def test_a_sample_at_the_top_of_its_margin() -> None:
    """m = log cosh(x₁) at x = 0 has no slope and curvature 1: no parabola may be flatter."""
    model = nn.Sequential(nn.Linear(2, 1, bias=False), LogCosh(1.0), nn.Linear(1, 2, bias=False)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.0]]))  # type: ignore[operator]
        model[2].weight.copy_(torch.tensor([[0.0], [1.0]]))  # type: ignore[operator]
    point = torch.zeros(1, 2, dtype=torch.float64)
    made = Problem.of(model, Samples(point, torch.tensor([0])), CrossEntropy(), SquaredL2(), Unbounded())
    found = centered(made)
    assert found is not None
    assert bool((found.coefficient[0, 1] >= 1).all())
    assert bool((found.rise[0, 1] >= 0).all())


def test_radii_in_the_sup_norm() -> None:
    """Four equal features that move together: in the sup-norm the nearest error is at half the distance."""
    model = nn.Sequential(nn.Linear(4, 1, bias=False), LogCosh(1.0), nn.Linear(1, 2)).double()
    with torch.no_grad():
        for parameter, value in zip(
            model.parameters(), ([[1.0] * 4], [[0.0], [1.0]], [1.0, 0.0]), strict=True
        ):
            parameter.copy_(torch.tensor(value, dtype=torch.float64))
    # log cosh z = 1 at z = arcosh e: from z = 0 that is arcosh(e)/4 in the sup-norm.
    data = Samples(torch.zeros(1, 4, dtype=torch.float64), torch.tensor([0]))
    made = Problem.of(model, data, CrossEntropy(), SquaredSup(), Unbounded())
    grid = Grid(torch.tensor([0.0, 0.5, 1.0, 2.0], dtype=torch.float64), ())
    radius = bounded(made, grid).radius
    assert radius is not None
    assert 0 < float(radius) <= math.acosh(math.e) / 4
