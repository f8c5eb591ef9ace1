"""Parabolas tangent to margins away from the sample: sound from any point, and exact from the right ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from certus import Box, SquaredL2, certify
from certus.certificates.error_costs import beyond_tangent_points, nearest_errors
from certus.certificates.local_bounds import Grid
from certus.certificates.problem import Problem
from certus.certificates.proposals import TangentPoints, tangent_points, with_parabolas
from certus.costs import Cost, Masked, SquaredSup, WeightedL2
from certus.data import Samples
from certus.domains import Unbounded
from certus.kernel.majorants import Parabolas, Tangents, constants, hidden_layer, parabolas
from certus.kernel.problem import Values
from certus.kernel.radial import rival_radii
from certus.layers import LogCosh, SmoothAbs
from certus.losses import CrossEntropy
from tests.certificates.problems import bounded
from tests.oracles import Array

WEIGHTED = WeightedL2(torch.tensor([1.0, 4.0, 0.2]))
MASKED = Masked(SquaredL2(), torch.tensor([True, False, True]))
EVERY_COST = pytest.mark.parametrize(
    "cost", [SquaredL2(), WEIGHTED, MASKED], ids=["l2", "weighted", "masked"]
)


def network(kind: str, seed: int, inputs: int = 3) -> nn.Sequential:
    """inputs-12-4, with units of all sharpnesses; "smooth" has log cosh units of sharpness 1, and "tanh" a
    second hidden layer, so that only its curvature everywhere is known."""
    torch.manual_seed(seed)
    if kind == "tanh":
        layers = [nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)]
        return nn.Sequential(*layers).double()
    if kind == "smooth":
        return nn.Sequential(nn.Linear(inputs, 12), LogCosh(1.0), nn.Linear(12, 4)).double()
    units = {"logcosh": LogCosh, "smoothabs": SmoothAbs}[kind]
    sharpness = 10 ** torch.empty(12).uniform_(-0.5, 1)
    return nn.Sequential(nn.Linear(inputs, 12), units(sharpness), nn.Linear(12, 4)).double()


def problem(model: nn.Module, cost: Cost, count: int = 30, inputs: int = 3) -> Problem:
    """Samples with the labels that the network gives them, a few of them wrong."""
    generator = torch.Generator().manual_seed(1)
    points = 2 * torch.randn(count, inputs, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        labels = model(points).argmax(1)
    labels[:3] = (labels[:3] + 1) % 4
    return Problem.of(model, Samples(points, labels), CrossEntropy(), cost, Unbounded())


def margins(made: Problem, points: Tensor) -> Tensor:
    with torch.no_grad():
        outputs = made.kernel.outputs(points)
    return outputs - outputs.gather(1, made.targets.unsqueeze(1))


def certified(made: Problem, tangents: TangentPoints | None) -> Tensor:
    """(n,) radii from all parabolas, without bounds on balls."""
    values = Values.at(made.kernel)
    return rival_radii(made.kernel, values, [with_parabolas(made.kernel, values, tangents)]).amin(1)


def tangent_parabolas(made: Problem, tangents: TangentPoints) -> Parabolas:
    """The parabolas at the proposed points alone: those with Q = κ·I, and with the Q of a hidden layer."""
    kernel, values = made.kernel, Values.at(made.kernel)
    shapes = (False, True) if hidden_layer(kernel) is not None else (False,)
    points = tangents.sample, tangents.rival, tangents.point
    factors = torch.tensor([1.05, 1.5], dtype=torch.float64)
    endless = torch.full((len(tangents.sample), 2), math.inf, dtype=torch.float64)
    each = [
        parabolas(kernel, values, constants(kernel, values), Tangents(*points, factors, endless, shaped))
        for shaped in shapes
    ]
    rise, coefficient = (torch.cat([vars(one)[name] for one in each], 2) for name in ("rise", "coefficient"))
    return Parabolas(rise, coefficient, torch.stack([one.curvature for one in each]).amin(0))


@pytest.mark.quick_share(4)
@EVERY_COST
@pytest.mark.parametrize("kind", ["logcosh", "smoothabs", "tanh"])
@pytest.mark.parametrize("wild", [False, True], ids=["proposed", "anywhere"])
def test_margins_stay_below_them(kind: str, cost: Cost, wild: bool) -> None:
    """From the points that are proposed and from random ones: 27 samples × 3 classes × 300 moves."""
    made = problem(network(kind, 0), cost)
    tangents = tangent_points(made)
    assert tangents is not None
    generator = torch.Generator().manual_seed(2)
    if wild:
        noise = 3 * torch.randn(tangents.point.shape, generator=generator, dtype=torch.float64)
        tangents = TangentPoints(tangents.sample, tangents.rival, tangents.point + noise)
    start, found = Values.at(made.kernel).margins, tangent_parabolas(made, tangents)
    slopes = torch.autograd.functional.jacobian(
        lambda points: made.kernel.outputs(points).sum(0), made.inputs
    ).transpose(0, 1)
    slopes = slopes - slopes[torch.arange(len(made)), made.targets].unsqueeze(1)
    looked = torch.isfinite(found.rise).any(2)
    assert int(looked.sum()) >= 27
    tightest = -math.inf
    for turn in range(300):
        u = torch.randn(made.inputs.shape, dtype=torch.float64, generator=generator)
        size = 10 ** torch.empty(len(u), 1).double().uniform_(-2, 1, generator=generator)
        move = cost.whiten(cost.free_part(u / u.norm(dim=1, keepdim=True) * size))
        moved = made.inputs + move
        if turn == 0 and not wild:
            moved = made.inputs.clone()
            moved[tangents.sample] = tangents.point
        square = cost.value(moved, made.inputs).reshape(-1, 1, 1)
        heights = (found.rise + found.coefficient * square / 2).nan_to_num(math.inf)  # ∞ · 0
        most = start + heights.amin(2)
        there = margins(made, moved)
        assert bool((there <= most + 1e-9)[looked].all())
        linear = start + (slopes * (moved - made.inputs).unsqueeze(1)).sum(2)
        curved = (found.curvature * square.squeeze(2) / 2).nan_to_num(math.inf)
        assert bool((there <= linear + curved + 1e-9).all())
        tightest = max(tightest, float((there - most)[looked].max()))
    assert wild or tightest > -1e-3  # they touch


@pytest.mark.parametrize("kind", ["logcosh", "smoothabs", "tanh"])
def test_parabolas_of_samples_on_the_faces_of_a_box(kind: str) -> None:
    """From points anywhere, for every move inside: blocked gradients count except at the sample itself."""
    model, generator = network(kind, 0), torch.Generator().manual_seed(3)
    inputs = (4 * torch.rand(30, 3, generator=generator, dtype=torch.float64) - 2).clamp(-1, 1)
    with torch.no_grad():
        labels = model(inputs).argmax(1)
    made = Problem.of(model, Samples(inputs, labels), CrossEntropy(), SquaredL2(), Box(-1.0, 1.0))
    sample, rival = (~made.kernel.own).nonzero().unbind(1)
    noise = torch.randn(len(sample), 3, generator=generator, dtype=torch.float64)
    start = Values.at(made.kernel).margins
    for spread in (0.0, 0.1, 1.0, 3.0):
        found = tangent_parabolas(made, TangentPoints(sample, rival, inputs[sample] + spread * noise))
        looked = torch.isfinite(found.rise).any(2)
        assert int(looked.sum()) >= 30
        for _ in range(200):
            size = 10 ** torch.empty(30, 1).double().uniform_(-2, 0.5, generator=generator)
            moved = inputs + size * torch.randn(30, 3, dtype=torch.float64, generator=generator)
            moved = moved.clamp(-1, 1)
            square = ((moved - inputs) ** 2).sum(1).reshape(-1, 1, 1)
            heights = (found.rise + found.coefficient * square / 2).nan_to_num(math.inf)
            assert bool((margins(made, moved) <= start + heights.amin(2) + 1e-9)[looked].all())


def test_a_radius_is_the_distance_of_the_nearest_error_in_the_plane() -> None:
    """Brute force: no error on a fine polar grid inside, and for most samples one just outside."""
    made = problem(network("smooth", 3, inputs=2), SquaredL2(), count=20, inputs=2)
    radii = certified(made, tangent_points(made))
    grid = Grid(torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64), ())
    centered = bounded(made, grid).radius
    assert centered is not None
    assert bool((radii >= 0.999 * centered).all())
    truth = np.array([brute(made, index, 1.2 * max(float(radii[index]), 0.1)) for index in range(20)])
    found = radii.numpy()
    assert (found[:3] == 0).all()  # wrong as they are
    assert (found <= truth + 1e-12).all()
    close = found[3:] > 0.97 * truth[3:]
    assert close.mean() > 0.6
    assert (centered.numpy()[3:] > 0.97 * truth[3:]).mean() < 0.2  # no such bound is as close


def brute(made: Problem, index: int, far: float) -> float:
    """The least distance of an error of one sample on a polar grid, or ``far``."""
    angles, lengths = np.linspace(0, 2 * np.pi, 241), np.linspace(0, far, 201)
    steps: Array = np.stack([np.cos(angles), np.sin(angles)], 1)[:, None] * lengths[:, None]
    points = made.inputs[index] + torch.from_numpy(steps).reshape(-1, 2)
    with torch.no_grad():
        wrong = (
            (made.kernel.outputs(points).argmax(1) != made.targets[index]).reshape(241, 201).any(0).numpy()
        )
    return float(lengths[wrong.argmax()]) if wrong.any() else far


def test_attained_distances_are_close_to_certified_ones() -> None:
    made = problem(network("smooth", 3, inputs=2), SquaredL2(), count=20, inputs=2)
    tangents = tangent_points(made)
    assert tangents is not None
    radii = certified(made, tangents)
    costs = nearest_errors(made, [beyond_tangent_points(made, tangents)])[0].cost
    some = torch.isfinite(costs)
    assert int(some.sum()) > 12
    assert bool((radii**2 <= costs)[some].all())
    assert float((radii / costs.sqrt())[some].median()) > 0.998


@EVERY_COST
def test_certificates_use_them(cost: Cost) -> None:
    """The error floor of ``certify`` is at least what they prove, and no attack gets below it."""
    model = network("smoothabs", 5)
    made = problem(model, cost)
    found = certify(model, (made.inputs, made.targets), rho=0.1, cost=cost, local_radii=0, gamma_rounds=0)
    assert found.proven_error_cost is not None
    assert found.attained_error_cost is not None
    radii = certified(made, tangent_points(made))
    assert bool((found.proven_error_cost.sqrt() >= radii * (1 - 1e-6)).all())
    assert bool((found.proven_error_cost <= found.attained_error_cost).all())


def test_a_box_keeps_them_sound() -> None:
    """Points that are proposed outside the box bound what happens inside it."""
    model = network("logcosh", 6)
    inputs = 2 * torch.rand(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 1
    with torch.no_grad():
        labels = model(inputs).argmax(1)
    inside = certify(model, (inputs, labels), rho=0.1, domain=Box(-1.0, 1.0), local_radii=0, gamma_rounds=0)
    free = certify(model, (inputs, labels), rho=0.1, local_radii=0, gamma_rounds=0)
    floors = []
    for found in (inside, free):
        assert found.proven_error_cost is not None
        assert found.attained_error_cost is not None
        assert bool((found.proven_error_cost <= found.attained_error_cost).all())
        floors.append(found.proven_error_cost)
    assert bool((floors[0] >= 0.99 * floors[1]).all())


def test_kinks_and_other_norms_have_none() -> None:
    torch.manual_seed(0)
    relu = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4)).double()
    assert tangent_points(problem(relu, SquaredL2())) is None
    assert tangent_points(problem(network("logcosh", 0), SquaredSup())) is None


def test_proposals_depend_on_their_own_sample_alone() -> None:
    made = problem(network("logcosh", 1), SquaredL2())
    whole, part = tangent_points(made), tangent_points(made.select(torch.arange(5, 9)))
    assert whole is not None
    assert part is not None
    chosen = (whole.sample >= 5) & (whole.sample < 9)
    assert torch.equal(whole.sample[chosen] - 5, part.sample)
    torch.testing.assert_close(whole.point[chosen], part.point, rtol=1e-9, atol=1e-9)
