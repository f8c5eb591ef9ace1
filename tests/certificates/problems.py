"""Small networks of the plane for certificates, and brute force around their samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import certus
from certus.certificates import Certificate
from certus.certificates.dual_values import DualValues
from certus.certificates.engine import make_grid
from certus.certificates.linear import certify_linear
from certus.certificates.local_bounds import Grid, SampleValues
from certus.certificates.problem import Problem
from certus.certificates.proposals import TangentPoints, with_parabolas
from certus.costs import Cost, SquaredL2
from certus.domains import Domain, Unbounded
from certus.kernel.evidence import mark
from certus.kernel.problem import Values
from certus.kernel.radial import Neighborhoods, neighborhoods
from certus.kernel.rules import DualBounds, SampleBounds
from certus.layers import LogCosh, Residual
from certus.losses import Criterion, CrossEntropy
from tests.oracles import Array


def certify_exactly(model: nn.Module, data: Any, *, rho: Any, **options: Any) -> Certificate:
    """The exact certificate of a linear score; that of ``certify`` for any other model."""
    exact = certify_linear(model, data, rho=rho, **options)
    return certus.certify(model, data, rho=rho, progress=False, **options) if exact is None else exact


CROSS_ENTROPY, L2, EVERYWHERE = CrossEntropy(), SquaredL2(), Unbounded()

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "elu": nn.ELU,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "relu": nn.ReLU,
    "logcosh": lambda: LogCosh(2.0),
}


def network(kind: str, seed: int, classes: int = 3, inputs: int = 2, size: float = 1.5) -> nn.Module:
    """inputs-6-classes, with weights of some size; "linear" has no hidden layer, "residual" a block more."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Linear(inputs, classes)]
    if kind == "residual":
        branch = nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 6))
        layers = [nn.Linear(inputs, 6), nn.Tanh(), Residual(branch), nn.Linear(6, classes)]
    elif kind != "linear":
        layers = [nn.Linear(inputs, 6), ACTIVATIONS[kind](), nn.Linear(6, classes)]
    model = nn.Sequential(*layers).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(size)
    return model


def samples(seed: int, count: int, classes: int = 3, inputs: int = 2) -> tuple[Tensor, Tensor]:
    """Points of a square and random labels: some are misclassified."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(count, inputs, dtype=torch.float64, generator=generator) * 2 - 1
    return points, torch.randint(classes, (count,), generator=generator)


def around(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    *,
    criterion: Criterion = CROSS_ENTROPY,
    cost: Cost = L2,
    domain: Domain = EVERYWHERE,
    clip: float | None = None,
    gammas: tuple[float, ...] = (0.05, 20.0),
    balls: int = 4,
) -> Neighborhoods:
    """What is known around the samples, for ρ from 0.01 to 1."""
    problem = Problem.of(model, data, criterion, cost, domain)
    return bounded(problem, make_grid(problem, [0.01, 1.0], gammas, balls), clip)


def bounded(
    problem: Problem, grid: Grid, clip: float | None = None, tangents: TangentPoints | None = None
) -> Neighborhoods:
    """Bounds around the samples of a problem, with parabolas at the samples and at tangent points."""
    values = Values.at(problem.kernel)
    bounds = with_parabolas(problem.kernel, values, tangents)
    return neighborhoods(problem.kernel, values, bounds, grid.edges, grid.balls, clip)


def numpy_loss(model: nn.Module, criterion: Criterion, target: Tensor) -> Callable[[Array], Array]:
    """The loss of one sample's target at (points, inputs), through torch's own modules."""

    def loss(points: Array) -> Array:
        inputs = torch.from_numpy(np.ascontiguousarray(points))
        with torch.no_grad():
            return np.asarray(criterion(model(inputs), target.expand(len(inputs))).numpy())

    return loss


def dual_values(
    gamma: float, bound: Tensor, cost: Tensor, loss: Tensor, rule: Tensor | None = None
) -> DualValues:
    """Dual values by hand, as if the kernel had proven them; no error was found."""
    rule = torch.zeros(len(bound), dtype=torch.int64) if rule is None else rule
    return DualValues(
        mark(DualBounds(gamma, bound, rule)),
        cost,
        loss,
        torch.full_like(bound, np.inf),
        torch.full_like(rule, -1),
    )


def sample_values(start: Tensor, error_cost: Tensor | None = None) -> SampleValues:
    """Values at samples by hand, as if the kernel had proven the costs of errors."""
    return SampleValues(mark(SampleBounds(start, error_cost, 1.0)), start, None)
