"""The flat graph: its values, and its bounds beside exact derivatives."""

from __future__ import annotations

import itertools
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor, nn

from certus.bounds import Analysis
from certus.costs import Cost, Mahalanobis, Masked, SquaredL2, SquaredSup, WeightedL2
from certus.kernel.graph import Graph, Node
from certus.kernel.losses import Softmax
from certus.kernel.operators import Dense
from certus.kernel.passes import Refused
from certus.kernel.smoothness import Smoothness
from certus.layers import Residual
from certus.losses import CrossEntropy, Logistic, SmoothMargin, SquaredError


class Joined(nn.Module):
    """Branches that are concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 5), nn.Linear(6, 4), nn.Linear(15, 3)

    def forward(self, x: Tensor) -> Tensor:
        parts = torch.tanh(self.first(x)), nn.functional.elu(self.second(x)), x
        outputs: Tensor = self.last(torch.cat(parts, 1))
        return outputs


class Shared(nn.Module):
    """A layer that is used three times, and sums that share nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        first = torch.tanh(self.layer(x))
        second = torch.tanh(self.layer(first)) + first
        third = torch.tanh(self.layer(second + x)) + 0.5 * first
        outputs: Tensor = self.last(third)
        return outputs


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
    graph = Analysis(model, input_shape=shape).graph
    expected = model.double()(points)
    assert torch.allclose(graph.apply(points), expected, rtol=1e-12, atol=1e-12)
    outputs, error, _ = graph.rounded(points)
    assert bool(((outputs - expected).abs() <= error + 1e-15).all())


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
def test_slopes_and_curvatures_along_moves_of_a_cost(cost: str, criterion: str) -> None:
    """At random points of a ball, along random moves of length 1 in its norm."""
    loss, outputs = CRITERIA[criterion]
    torch.manual_seed(0)
    model = dense(6, 8, 7, outputs).double()
    smoothness = Analysis(model, loss, input_shape=(6,), cost=COSTS[cost]).smoothness
    center, radius = torch.randn(1, 6, dtype=torch.float64), torch.tensor([0.3], dtype=torch.float64)
    target = torch.randn(1, 2, dtype=torch.float64) if criterion == "squared error" else torch.tensor([1])
    bounds = smoothness.bound(center, target, radius)
    curvature = min(float(bound) for bound in bounds.curvature.values())
    free = torch.tensor([True, True, False, True, False, True]) if cost == "masked" else torch.ones(6).bool()

    def along(point: Tensor) -> Tensor:
        value: Tensor = loss(model(point[None]), target)[0]
        return value

    for _ in range(6):
        moves = torch.randn(2, 6, dtype=torch.float64) * free
        moves = moves / COSTS[cost].norm(moves).unsqueeze(1)
        point = center[0] + 0.3 * torch.rand(1, dtype=torch.float64) * moves[0]
        slope = torch.autograd.functional.jacobian(along, point)
        hessian = torch.autograd.functional.hessian(along, point)
        assert float((slope @ moves[1]).abs()) <= float(bounds.lipschitz)
        assert float(moves[1] @ hessian @ moves[1]) <= curvature


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in ("relu", "max pooling")])
def test_no_hessian_exceeds_the_bounds(name: str) -> None:
    """Exact second derivatives at random points of balls."""
    model, shape = made(name)
    model = model.double()
    kernel = Analysis(model, input_shape=shape).smoothness
    center, label = torch.randn(1, *shape, dtype=torch.float64), torch.tensor([1])
    radius = torch.tensor([0.5], dtype=torch.float64)
    bounds = kernel.bound(center, label, radius)
    curvature = min(float(bound) for bound in bounds.curvature.values())

    def loss(flat: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(flat.reshape(1, *shape)), label)

    for _ in range(4):
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


@pytest.mark.parametrize("size", [1e2, 1e6, 1e10])
@pytest.mark.parametrize("seed", range(4))
def test_the_error_on_a_ball_where_margins_and_rises_cancel(size: float, seed: int) -> None:
    """The largest q of a linear score on a ball is known: exact, it is never above the bound."""
    generator = torch.Generator().manual_seed(seed)
    count, radius = 1 + 9 * seed, 0.1 + 0.3 * seed
    scales = torch.rand(count, dtype=torch.float64, generator=generator) + 0.5
    last = size * torch.randn(2, count, dtype=torch.float64, generator=generator)
    with mpmath.workdps(60):
        row = [mpmath.mpf(a) - mpmath.mpf(b) for a, b in last.T.tolist()]
        rise = mpmath.norm([w * mpmath.mpf(s) for w, s in zip(row, scales.tolist(), strict=True)]) * radius
        bias = torch.tensor([-float(rise) - 5.0, 0.0], dtype=torch.float64)
        exact = 1 / (1 + mpmath.exp(-mpmath.mpf(bias[0].item()) - rise))
    nodes = Node((), (count,)), Node((0,), (count,), Dense(torch.diag(scales), None))
    graph = Graph((*nodes, Node((1,), (2,), Dense(last, bias))))
    origin, radii = torch.zeros(1, count).double(), torch.tensor([radius], dtype=torch.float64)
    bounds = Smoothness(graph, Softmax()).bound(origin, torch.tensor([1]), radii)
    assert bounds.error is not None
    assert mpmath.mpf(bounds.error.item()) >= exact


@pytest.mark.parametrize(
    ("shapes", "shape", "axis"),
    [
        ([(2,), (3,)], (3,), None),
        ([(2,), (3,)], (4,), 0),
        ([(2,), (3,)], (5,), 1),
        ([(2,), (3,)], (5,), -1),
        ([(1, 2), (1, 3)], (2, 5), 0),
        ([(1, 2), (2,)], (1, 4), 1),
    ],
)
def test_joins_of_other_shapes_are_refused(shapes: Any, shape: tuple[int, ...], axis: int | None) -> None:
    nodes = [Node((), (6,))]
    for each in shapes:
        size = torch.zeros(each).numel()
        nodes.append(Node((0,), each, Dense(torch.ones(size, 6).double(), None, (6,), each)))
    with pytest.raises(Refused, match="shapes of node 3"):
        Graph((*nodes, Node((1, 2), shape, axis=axis)))
