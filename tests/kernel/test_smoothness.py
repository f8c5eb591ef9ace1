"""The flat graph: its values, its bounds beside those of ``bounds``, and attacks on them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from certus.bounds import Analysis
from certus.costs import Cost, Mahalanobis, Masked, SquaredL2, SquaredSup, WeightedL2
from certus.kernel.graph import Graph, Node
from certus.kernel.operators import Dense
from certus.kernel.passes import Refused
from certus.layers import Residual
from certus.losses import CrossEntropy, Logistic, SmoothMargin, SquaredError
from tests.kernel.translation import graph_of, smoothness_of


class Joined(nn.Module):
    """Branches that are concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 5), nn.Linear(6, 4), nn.Linear(15, 3)

    def forward(self, x: Tensor) -> Tensor:
        parts = torch.tanh(self.first(x)), nn.functional.elu(self.second(x)), x
        return self.last(torch.cat(parts, 1))  # type: ignore[no-any-return]


class Shared(nn.Module):
    """A layer that is used three times, and sums that share nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        first = torch.tanh(self.layer(x))
        second = torch.tanh(self.layer(first)) + first
        third = torch.tanh(self.layer(second + x)) + 0.5 * first
        return self.last(third)  # type: ignore[no-any-return]


def dense(*widths: int, unit: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    layers: list[nn.Module] = []
    for first, second in itertools.pairwise(widths):
        layers += [nn.Linear(first, second), unit()]
    return nn.Sequential(*layers[:-1])


def block(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))


NETWORKS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "one hidden layer": (lambda: dense(6, 16, 3), (6,)),
    "deep": (lambda: dense(6, 16, 12, 8, 3, unit=nn.ELU), (6,)),
    "softplus": (lambda: dense(6, 9, 9, 3, unit=nn.Softplus), (6,)),
    "gelu": (lambda: dense(6, 9, 9, 3, unit=nn.GELU), (6,)),
    "relu": (lambda: dense(6, 9, 3, unit=nn.ReLU), (6,)),
    "linear": (lambda: nn.Linear(6, 3), (6,)),
    "activation first": (lambda: nn.Sequential(nn.Tanh(), nn.Linear(6, 3)), (6,)),
    "residual": (
        lambda: nn.Sequential(nn.Linear(6, 8), Residual(block(8)), nn.Tanh(), nn.Linear(8, 3)),
        (6,),
    ),
    "nested": (
        lambda: nn.Sequential(
            nn.Linear(6, 8), Residual(nn.Sequential(block(8), Residual(block(8)))), nn.Linear(8, 3)
        ),
        (6,),
    ),
    "joined": (Joined, (6,)),
    "shared": (Shared, (6,)),
    "convolutions": (
        lambda: nn.Sequential(
            *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ELU(), nn.Conv2d(4, 6, 3, stride=2)),
            *(nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(6, 3)),
        ),
        (1, 8, 8),
    ),
    "max pooling": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(75, 3)
        ),
        (1, 8, 8),
    ),
}


def made(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    torch.manual_seed(sorted(NETWORKS).index(name))
    make, shape = NETWORKS[name]
    return make().eval(), shape


@pytest.mark.parametrize("name", NETWORKS)
def test_a_graph_computes_what_the_module_does(name: str) -> None:
    model, shape = made(name)
    points = torch.randn(7, *shape, dtype=torch.float64)
    graph = graph_of(Analysis(model, input_shape=shape))
    expected = model.double()(points)
    assert torch.allclose(graph.apply(points), expected, rtol=1e-12, atol=1e-12)
    outputs, error, _ = graph.rounded(points)
    assert bool(((outputs - expected).abs() <= error + 1e-15).all())


@pytest.mark.parametrize("name", NETWORKS)
def test_bounds_are_those_of_bounds(name: str) -> None:
    """Everywhere and on balls; checked norms leave less room than ``bounds`` does."""
    model, shape = made(name)
    analysis = Analysis(model, input_shape=shape)
    kernel = smoothness_of(analysis)
    points, labels = torch.randn(5, *shape, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    radius = torch.linspace(0.01, 1, 5, dtype=torch.float64)
    for old, new in (
        (analysis.everywhere, kernel.everywhere),
        (analysis.run(points, labels, radius), kernel.bound(points, labels, radius)),
    ):
        for rule, bound in old.bounds.items():
            assert _close(bound, new.curvature[rule]), rule
        assert _close(old.lipschitz, new.lipschitz)
        assert _close(old.output_lipschitz, new.output_lipschitz)
        for first, second in (
            (old.margin_lipschitz, new.margin_lipschitz),
            (old.margin_curvature, new.margin_curvature),
        ):
            assert first is not None
            assert second is not None
            assert _close(first, second)


def _close(old: Tensor, new: Tensor) -> bool:
    """Never larger, apart from rounding, and seldom smaller by much."""
    finite = torch.isfinite(old)
    smaller = (new[finite] <= old[finite] * (1 + 1e-9) + 1e-300).all()
    near = (new[finite] >= old[finite] * (1 - 1e-3)).all()
    return bool(smaller) and bool(near) and bool((new[~finite] == old[~finite]).all())


COSTS: dict[str, Cost] = {
    "L2": SquaredL2(),
    "weighted": WeightedL2(torch.linspace(0.5, 3, 6)),
    "full": Mahalanobis(torch.eye(6) + 0.3),
    "sup": SquaredSup(),
    "masked": Masked(SquaredL2(), torch.tensor([True, True, False, True, False, True])),
}
CRITERIA: dict[str, Any] = {
    "cross-entropy": (CrossEntropy(), 3),
    "smoothed labels": (CrossEntropy(label_smoothing=0.1), 3),
    "margin": (SmoothMargin(0.5, 2.0), 3),
    "logistic": (Logistic(), 1),
    "squared error": (SquaredError(), 2),
}


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("criterion", CRITERIA)
def test_costs_and_losses(cost: str, criterion: str) -> None:
    loss, outputs = CRITERIA[criterion]
    torch.manual_seed(0)
    model = dense(6, 8, 7, outputs)
    analysis = Analysis(model, loss, input_shape=(6,), cost=COSTS[cost])
    kernel = smoothness_of(analysis)
    points, radius = torch.randn(4, 6, dtype=torch.float64), torch.full((4,), 0.3, dtype=torch.float64)
    targets = torch.tensor([0, 1, 1, 0])
    if criterion == "squared error":
        targets = torch.randn(4, 2, dtype=torch.float64)
    pairs = [(analysis.run(points, targets, radius), kernel.bound(points, targets, radius))]
    if criterion != "squared error":
        pairs.append((analysis.everywhere, kernel.everywhere))
    for old, new in pairs:
        assert all(_close(bound, new.curvature[rule]) for rule, bound in old.bounds.items())
        assert _close(old.lipschitz, new.lipschitz)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in ("relu", "max pooling")])
def test_no_hessian_exceeds_the_bounds(name: str) -> None:
    """Exact second derivatives at random points of balls."""
    model, shape = made(name)
    model = model.double()
    kernel = smoothness_of(Analysis(model, input_shape=shape))
    center, label = torch.randn(1, *shape, dtype=torch.float64), torch.tensor([1])
    radius = torch.tensor([0.5], dtype=torch.float64)
    bounds = kernel.bound(center, label, radius)
    curvature = min(float(bound) for bound in bounds.curvature.values())

    def loss(flat: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(flat.reshape(1, *shape)), label)

    for _ in range(12):
        move = torch.randn(center.numel(), dtype=torch.float64)
        point = center.flatten() + 0.5 * torch.rand(1) * move / move.norm()
        hessian = torch.autograd.functional.hessian(loss, point)
        gradient = torch.autograd.functional.jacobian(loss, point)
        assert float(torch.linalg.eigvalsh(hessian)[-1]) <= curvature
        assert float(gradient.norm()) <= float(bounds.lipschitz)


def test_graphs_that_make_no_sense_are_refused() -> None:
    layer = Dense(torch.ones(2, 3, dtype=torch.float64), None)
    with pytest.raises(Refused, match="leads nowhere"):
        Graph((Node((), (3,)), Node((0,), (2,), layer), Node((0,), (2,), layer)))
    with pytest.raises(Refused, match="do not fit"):
        Graph((Node((), (4,)), Node((0,), (2,), layer)))
    with pytest.raises(Refused, match="does not come before"):
        Graph((Node((), (3,)), Node((0, 2), (2,)), Node((1,), (3,))))
