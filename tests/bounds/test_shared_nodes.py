"""Random graphs that are no chains: layers used several times, sums with factors, concatenations.

Their bounds, everywhere and on balls, against gradients and Hessians by automatic differentiation.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from certus.bounds import Analysis, input_smoothness, local_smoothness
from certus.kernel.problem import rounding_at

UNITS: tuple[Callable[[Tensor], Tensor], ...] = (torch.tanh, F.softplus, F.silu, torch.sigmoid, F.elu)
KINDS = ("layer", "layer", "add", "cat", "unit")


class Woven(nn.Module):
    """Some nodes, each made of earlier ones, three of which are what the last layer sees."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        chance = random.Random(seed)
        widths, self.layers = [2], nn.ModuleList()
        self.nodes: list[tuple[str, int, int, int]] = []
        for _ in range(chance.randint(5, 9)):
            first, kind, way = chance.randrange(len(widths)), chance.choice(KINDS), chance.randrange(5)
            width = widths[first]
            alike = [index for index, each in enumerate(widths) if each == width]
            second = chance.choice(alike if kind == "add" else range(len(widths)))
            behind = width + (widths[second] if kind == "cat" else 0)
            if kind == "layer":
                second, behind = len(self.layers), chance.randint(1, 4)
                self.layers.append(nn.Linear(width, behind))
            self.nodes.append((kind, first, second, way))
            widths.append(behind)
        self.used = [*(chance.randrange(1, len(widths)) for _ in range(2)), len(widths) - 1]
        self.last = nn.Linear(sum(widths[index] for index in self.used), 3)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for kind, first, second, way in self.nodes:
            one = values[first].clone()
            if kind == "layer":
                values.append(UNITS[way](self.layers[second](one)))
            elif kind == "add":
                values.append(torch.add(one, F.dropout(values[second], 0.5, False), alpha=way - 1))
            elif kind == "cat":
                values.append(torch.cat([one, values[second]], 1))
            else:
                values.append(UNITS[way](one))
        return self.last(torch.cat([values[index] for index in self.used], 1))


def derivatives(model: nn.Module, points: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths of the gradients of the loss, and the largest eigenvalues of its Hessians."""
    leaf = points.clone().requires_grad_()
    loss = F.cross_entropy(model(leaf), labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
    rows = [torch.autograd.grad(column.sum(), leaf, retain_graph=True)[0] for column in gradient.T]
    return gradient.detach().norm(dim=1), torch.linalg.eigvalsh(torch.stack(rows, 1))[:, -1]


SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(12, 200))]


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_webs(seed: int) -> None:
    model = Woven(seed)
    analysis = Analysis(model, input_shape=(2,))
    everywhere = input_smoothness(analysis)
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.logspace(-2, 1.3, 40, dtype=torch.float64)[:, None]
    points = sizes * torch.randn(40, 2, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (40,), generator=generator)
    radius = torch.logspace(-3, 1, 40, dtype=torch.float64)[torch.randperm(40, generator=generator)]
    near = local_smoothness(analysis, points, labels, radius)
    with torch.no_grad():
        # torch's softplus is off by 2·10⁻⁹ where it becomes a straight line, which counts as rounding.
        values = rounding_at(analysis.graph, points).values
        assert bool(((analysis.graph.apply(points) - model(points)).abs().amax(1) <= values).all())
    assert 0 < float(values.max()) < 1e-6
    for share in (0.0, 0.5, 1.0):
        moves = torch.randn(40, 2, generator=generator, dtype=torch.float64)
        moved = points + share * radius[:, None] * moves / moves.norm(dim=1, keepdim=True)
        steep, bent = derivatives(model, moved, labels)
        for bound in (everywhere, near):
            assert bool((steep <= bound.lipschitz + 1e-12).all())
            assert bool((bent <= bound.curvature + 1e-12).all())


class Tight(nn.Module):
    """A web in front of two outputs ±F whose slope is exactly the product of its gains."""

    rows: Tensor

    def __init__(self, how: str) -> None:
        super().__init__()
        gains = {"side by side": 5**0.5, "shared": 9.0, "both": 3 * 5**0.5, "inside a sum": 1 + 5**0.5}
        self.how, self.gain = how, gains[how]
        row = torch.tensor([[0.6, 0.8]], dtype=torch.float64)
        if how in ("side by side", "both"):
            row = torch.cat([row, 2 * row], 1) / 5**0.5
        self.register_buffer("rows", torch.cat([row, -row]))

    def forward(self, x: Tensor) -> Tensor:
        three = x * 3
        if self.how == "side by side":
            return F.linear(torch.cat([x, 2 * x], 1), self.rows)
        if self.how == "shared":
            return F.linear(torch.add(torch.add(three, three), three), self.rows)
        if self.how == "inside a sum":
            one = torch.eye(2, dtype=torch.float64)
            both = torch.cat([x, 2 * x], 1)
            return F.linear(torch.add(x, F.linear(both, torch.cat([one, 2 * one], 1) / 5**0.5)), self.rows)
        return F.linear(torch.cat([three, torch.add(three, three)], 1), self.rows)


@pytest.mark.parametrize("how", ["side by side", "shared", "both", "inside a sum"])
def test_every_rule_is_exact_where_gains_are(how: str) -> None:
    """The loss log(1 + exp(−2F)) has slope 2·gain·p and curvature 4·gain²·p(1 − p)."""
    model = Tight(how)
    found = input_smoothness(model, input_shape=(2,))
    for name in ("corrected", "sum", "max"):
        assert model.gain**2 <= found.bounds[name] <= model.gain**2 * (1 + 1e-6)
    assert found.bounds["paper"] >= model.gain**2
    assert 2 * model.gain <= found.lipschitz <= 2 * model.gain * (1 + 1e-6)
    assert 2**0.5 * model.gain <= found.output_lipschitz <= 2**0.5 * model.gain * (1 + 1e-6)


class Functions(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        weight = torch.tensor([[3.0, 0.0], [0.0, 0.5]], dtype=torch.float64)
        x = torch.add(x, torch.abs(x), alpha=2)  # slopes −1 and 3
        x = torch.addmm(torch.ones(2, dtype=torch.float64), x, weight, beta=0.5, alpha=4)
        return F.linear(x, weight)


def test_functions_with_factors() -> None:
    """Each factor counts where it stands: 3·(4·3)·3, and three times −1 for a negative first input."""
    found = input_smoothness(Functions(), input_shape=(2,))
    assert 108 <= found.output_lipschitz <= 108 * (1 + 1e-6)
    assert found.lipschitz >= 108


class Sides(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(torch.abs(x), torch.tensor([[1.0], [-1.0]], dtype=torch.float64))


def test_the_slope_of_an_absolute_value_on_both_sides() -> None:
    """Behind |x| both outputs ±|x| move by 1 where x does: the loss log(1 + exp(±2|x|)) by up to 2."""
    points = torch.tensor([[-30.0], [30.0]], dtype=torch.float64)
    near = local_smoothness(Sides(), points, torch.tensor([1, 1]), torch.tensor([0.1, 0.1]).double())
    assert bool((near.lipschitz >= 2 - 1e-12).all())


class Cancels(nn.Module):
    """tanh x + 1/3 by way of sums that are a hundred million times as large."""

    def forward(self, x: Tensor) -> Tensor:
        unit = torch.tanh(x)
        large = torch.cat([unit * 1e8, unit * 1e8 + 1 / 3], 1)
        both = torch.add(large, torch.cat([unit * 2e8, unit * 2e8], 1), alpha=-1)
        weight = torch.tensor([[-1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
        return F.linear(both, weight)


def test_cancellation_in_a_graph_is_counted_as_rounding() -> None:
    """In exact arithmetic the outputs are ±1/3 at any point; float64 is off by 10⁻⁸, less than is said."""
    points = torch.linspace(-2, 2, 200, dtype=torch.float64)[:, None]
    analysis = Analysis(Cancels(), input_shape=(1,))
    off = (analysis.graph.apply(points)[:, 1].abs() - 1 / 3).abs()
    said = rounding_at(analysis.graph, points).values
    assert float(off.max()) > 1e-9
    assert bool((off <= said).all())
