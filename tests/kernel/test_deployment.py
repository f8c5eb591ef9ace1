"""float32 in use: no evaluation, in any order, leaves the stated distance; and what is not covered."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import certus
from certus.bounds.analysis import Analysis
from certus.certificates import audit
from certus.certificates.problem import Problem
from certus.costs import SquaredL2, WeightedL2
from certus.domains import Unbounded
from certus.errors import UnsupportedError
from certus.kernel.deployment import DIRECT, SINGLE, Deviation, deviation
from certus.kernel.pointwise import Pointwise, scalar
from certus.kernel.problem import Problem as KernelProblem
from certus.layers import plain
from certus.losses import CrossEntropy
from certus.models.networks import lipschitz


def dense(seed: int, widths: tuple[int, ...] = (24, 40, 40, 5)) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def convolutional(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 4)
    return nn.Sequential(*layers)


def orthogonal(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = plain(lipschitz((1, 8, 8), 16, 5, 4))
    for weights in model.parameters():
        if weights.dim() == 1:
            weights.data = 0.1 * torch.randn_like(weights)
    return model


NETWORKS = {
    "dense": (dense, (24,)),
    "convolutional": (convolutional, (2, 6, 6)),
    "orthogonal": (orthogonal, (1, 8, 8)),
}


def deviation_of(model: nn.Module, points: Tensor) -> tuple[Deviation, KernelProblem]:
    problem = Analysis(model, input_shape=tuple(points.shape[1:])).problem
    return deviation(problem.graph, points.double(), problem.smoothness.start()), problem


def shuffled(weight: Tensor, inputs: Tensor, bias: Tensor | None, order: Tensor, parts: int) -> Tensor:
    """A product in float32, its terms permuted and summed in parts, one after the other or as torch does."""
    terms = (weight[:, order].unsqueeze(0) * inputs[:, None, order]).split(max(1, len(order) // parts), 2)
    total = torch.zeros(len(inputs), len(weight)) if bias is None else bias.expand(len(inputs), -1).clone()
    for part in terms:
        total = total + (part.sum(2) if parts % 2 else part.cumsum(2)[..., -1])
    return total


class Reordered(nn.Module):
    """A linear layer that sums in an order of its own."""

    def __init__(self, layer: nn.Linear, generator: torch.Generator) -> None:
        super().__init__()
        self.layer, self.order = layer, torch.randperm(layer.in_features, generator=generator)
        self.parts = int(torch.randint(1, 9, (), generator=generator))

    def forward(self, inputs: Tensor) -> Tensor:
        layer, flat = self.layer, inputs.flatten(0, -2)
        summed = shuffled(layer.weight, flat, layer.bias, self.order, self.parts)
        return summed.reshape(*inputs.shape[:-1], -1)


def reordered(model: nn.Module, generator: torch.Generator) -> nn.Module:
    children = [
        Reordered(child, generator) if isinstance(child, nn.Linear) else child for child in model.children()
    ]
    return nn.Sequential(*children)


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.quick_share(40)
@pytest.mark.parametrize("seed", range(80))
def test_no_evaluation_leaves_the_bound(kind: str, seed: int) -> None:
    """In many orders, batch sizes and threads, at samples and away from them: 100,800 evaluations in all."""
    make, shape = NETWORKS[kind]
    model, generator = make(seed), torch.Generator().manual_seed(seed)
    points = torch.randn(20, *shape, generator=generator)
    off, problem = deviation_of(model, points)
    threads = torch.get_num_threads()
    with torch.no_grad():
        for radius in (0.0, 0.5, 50.0):
            moves = torch.randn(20, *shape, dtype=torch.float64, generator=generator)
            moves *= (radius / moves.flatten(1).norm(dim=1)).reshape(-1, *([1] * len(shape)))
            there = points.double() + moves
            exact = problem.graph.apply(there)
            single = there.float()
            values = [model(single), torch.cat([model(part) for part in single.split(1)])]
            values += [reordered(model, generator)(single) for _ in range(4)]
            try:
                torch.set_num_threads(1 + seed % 3)
                values.append(model(single))
            finally:
                torch.set_num_threads(threads)
            allowed = off.start + off.slope * radius
            for computed in values:
                error = computed.double() - exact
                apart = (error.amax(1) - error.amin(1)).abs()
                assert bool((apart <= allowed).all())
    assert float((off.start / points.flatten(1).norm(dim=1)).max()) < 1e-2  # not vacuous


def test_the_bound_is_that_of_the_theory() -> None:
    """One product of n entries: √2·(‖A‖u‖x‖ + γ_{n+2}‖|A|‖‖x‖(1 + u)), and all bounds above it."""
    weight = torch.full((2, 50), 0.1)
    model = nn.Linear(50, 2, bias=False)
    model.weight.data = weight
    points, unit = torch.ones(1, 50), 2.0**-24
    (start, slope), _ = deviation_of(model, points)
    size, length = 0.1 * math.sqrt(100), math.sqrt(50)
    gamma = 52 * unit / (1 - 52 * unit)
    expected = math.sqrt(2) * (size * unit * length + gamma * size * length * (1 + unit))
    assert expected <= float(start) <= expected * (1 + 1e-6)
    assert slope == pytest.approx(expected / length, rel=1e-6)


def test_a_sum_that_reaches_its_bound() -> None:
    """1 + n·2⁻²⁵, from the left: every addition is lost, in one order of summation."""
    terms = 4000
    model = nn.Linear(terms + 1, 2, bias=False)
    model.weight.data = torch.cat([torch.ones(2, 1), torch.full((2, terms), 2.0**-25)], 1)
    model.weight.data[1] *= -1
    total = torch.ones(())
    for _ in range(terms):
        total = total + torch.tensor(2.0**-25)
    lost = 2 * (1 + terms * 2.0**-25 - float(total))
    assert lost == 2 * terms * 2.0**-25
    off, _ = deviation_of(model, torch.ones(1, terms + 1))
    assert float(off.start) >= lost


@pytest.mark.parametrize("slope", [1.7, -1.1, 0.01, 3.0])
def test_a_slope_of_a_leaky_relu_is_rounded_too(slope: float) -> None:
    """Its float32 number is off from the stored one, and so is its product with the input."""
    points = -torch.rand(20_000, 1, generator=torch.Generator().manual_seed(0)).float()
    units = Pointwise(scalar("piecewise_linear", slope, 1.0), (1,))
    off = (nn.LeakyReLU(slope)(points).double() - slope * points.double()).abs()[:, 0]
    allowed = units.length_error(points[:, 0].double().abs(), torch.zeros(20_000).double(), SINGLE)
    assert bool((off <= allowed).all())


@pytest.mark.parametrize(
    ("model", "shape", "words"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)), (3,), "not covered for 1 .Tanh."),
        (nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 2)), (3,), "not covered for 1 .GELU."),
    ],
)
def test_what_is_no_sum_of_products_is_not_covered(
    model: nn.Module, shape: tuple[int, ...], words: str
) -> None:
    data = torch.randn(4, *shape), torch.zeros(4, dtype=torch.long)
    with pytest.raises(UnsupportedError, match=words):
        certus.certify(model, data, rho=0.1, deployment="float32")


def test_other_losses_and_costs_are_not_covered() -> None:
    data = torch.randn(4, 24), torch.zeros(4, dtype=torch.long)
    with pytest.raises(UnsupportedError, match="cost with weights"):
        certus.certify(dense(0), data, rho=0.1, deployment="float32", cost=WeightedL2(torch.full((24,), 2.0)))
    smoothed = CrossEntropy(label_smoothing=0.1)
    with pytest.raises(UnsupportedError, match="softmax family without smoothing"):
        certus.certify(dense(0), data, rho=0.1, deployment="float32", criterion=smoothed)
    with pytest.raises(certus.CertusError, match="`deployment` must be 'float32'"):
        certus.certify(dense(0), data, rho=0.1, deployment="int8")  # type: ignore[arg-type]


@pytest.mark.parametrize("powers", [(100, 30), (90, -90)])
def test_a_network_that_overflows_is_not_covered(powers: tuple[int, int]) -> None:
    """At its samples, or only far away: numbers that grow by 2⁹⁰ with the distance are infinite at 10¹⁵."""
    model = dense(0)
    model.get_parameter("0.weight").data *= 2.0 ** powers[0]
    model.get_parameter("2.weight").data *= 2.0 ** powers[1]
    with pytest.raises(UnsupportedError, match="not covered"):
        certus.certify(
            model, (torch.randn(4, 24), torch.zeros(4, dtype=torch.long)), rho=0.1, deployment="float32"
        )


def problem_of(model: nn.Module, points: Tensor) -> Problem:
    labels = model(points).argmax(1).detach()
    return Problem.of(model, (points, labels), CrossEntropy(), SquaredL2(), Unbounded())


def test_convolutions_are_direct_by_assumption() -> None:
    points = torch.randn(4, 2, 6, 6)
    problem = replace(problem_of(convolutional(0), points), deployment="float32")
    assert problem.assumptions == (DIRECT,)
    assert replace(problem_of(dense(0), torch.randn(4, 24)), deployment="float32").assumptions == ()


@pytest.mark.parametrize("kind", ["dense", "orthogonal"])
def test_certificates_for_float32_are_above_those_of_real_arithmetic(kind: str) -> None:
    make, shape = NETWORKS[kind]
    model = make(1)
    points = torch.randn(8, *shape)
    data = points, model(points).argmax(1).detach()
    options: dict[str, Any] = {"rho": [0.01, 0.1], "gammas": [0.2, 2.0], "local_radii": 0, "gamma_rounds": 0}
    options["attack_steps"] = 0
    real = certus.certify(model, data, **options)
    single = certus.certify(model, data, deployment="float32", **options)
    assert single.deployment == "float32"
    assert real.deployment is None
    assert single.evidence == "proven"
    for rho in (0.0, 0.01, 0.1):
        assert real.bound(rho) < single.bound(rho) < real.bound(rho) + 0.01
        errors = [certificate.error_bound(rho) for certificate in (real, single)]
        assert None not in errors
        assert errors == sorted(errors)  # type: ignore[type-var]
    ours, theirs = single.proven_error_cost, real.proven_error_cost
    assert ours is not None
    assert theirs is not None
    assert bool((ours < theirs).all())


def test_radii_for_float32_hold_in_float32() -> None:
    """At r minus nothing: margins of the float32 network, attacked to the very edge of the radius."""
    model = nn.Linear(8, 3)
    points = torch.randn(200, 8)
    data = points, model(points).argmax(1).detach()
    radii = certus.certify(
        model, data, rho=0.1, deployment="float32", gammas=[1.0], attack_steps=0
    ).proven_error_cost
    assert radii is not None
    rows = model.weight.detach().double()
    for rival in range(3):
        across = rows[rival] - rows[data[1]]
        length = across.norm(dim=1, keepdim=True)
        ends = points.double() + across / length.clamp_min(1e-300) * radii.sqrt().unsqueeze(1)
        with torch.no_grad():
            outputs = model(ends.float())
        assert torch.equal(outputs.argmax(1), data[1])


def test_an_audit_says_both() -> None:
    model = orthogonal(2)
    points = torch.randn(40, 1, 8, 8)
    result = audit(model, (points, model(points).argmax(1).detach()), epsilon=[0.05, 0.1])
    for each in result.radii:
        assert each.float32 is not None
        assert each.proven - 0.05 <= each.float32 <= each.proven
    tanh = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    result = audit(tanh, (torch.randn(9, 4), torch.zeros(9, dtype=torch.long)), epsilon=0.1)
    assert result.radii[0].float32 is None
    assert "Tanh" in result.not_covered
