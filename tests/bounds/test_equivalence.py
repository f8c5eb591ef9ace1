"""A model beside the graph that was read of another one: how far apart they may be, and where."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from certus.bounds.equivalence import check_equivalence
from certus.bounds.network import read_network
from certus.errors import UnsupportedError

Change = Callable[[Tensor, Tensor], Tensor]
OTHER, AGAIN = "differ from those of its layers", "differ between two calls"


def plain(gain: float = 1.0, first: float = 1.0) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Softplus(), nn.Linear(3, 2)).double()
    model.get_parameter("0.weight").data.mul_(first)
    model.get_parameter("2.weight").data.mul_(gain)
    return model


class Changed(nn.Module):
    """A model, and what is made of its outputs."""

    def __init__(self, model: nn.Module, change: Change) -> None:
        super().__init__()
        self.model, self.change = model, change

    def forward(self, points: Tensor) -> Tensor:
        return self.change(points, self.model(points))


def off_by(share: float, size: float) -> Change:
    """One output, by a share of 1 + the largest, at points of about this size."""

    def change(points: Tensor, outputs: Tensor) -> Tensor:
        there = (points.norm(dim=1, keepdim=True) / size).log10().abs() < 1
        room = there * share * (1 + outputs.abs().amax(1, keepdim=True))
        return torch.cat([outputs[:, :1], outputs[:, 1:] + room], 1)

    return change


def lost_beyond(size: float, value: float) -> Change:
    return lambda points, outputs: outputs.where(points.norm(dim=1, keepdim=True) < size, value)


def graph(model: nn.Module) -> Callable[[Tensor], Tensor]:
    return read_network(model, (2,)).apply


@pytest.mark.parametrize("kind", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 1e3, 1e6])
def test_the_tolerance_is_a_ten_millionth(size: float, kind: torch.dtype) -> None:
    """A model in float32 is tried in float64, too."""
    model = plain().to(kind)
    read = graph(model)
    check_equivalence(Changed(model, off_by(0.9e-7, size)), read, (2,))
    for sign in (-1, 1):
        with pytest.raises(UnsupportedError, match=OTHER):
            check_equivalence(Changed(model, off_by(sign * 1.2e-7, size)), read, (2,))


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("beyond", [0.1, 10.0, 1e5])
def test_outputs_that_are_lost_where_the_graph_has_some(value: float, beyond: float) -> None:
    with pytest.raises(UnsupportedError, match=OTHER):
        check_equivalence(Changed(plain(), lost_beyond(beyond, value)), graph(plain()), (2,))


def test_graphs_that_overflow() -> None:
    """Far out the model may overflow with them; it may not have outputs where they have none."""
    read = graph(plain(1e303))  # 10³⁰⁹ at the farthest points
    check_equivalence(plain(1e303), read, (2,))
    for value in (0.0, 1e308):
        with pytest.raises(UnsupportedError, match=OTHER):
            check_equivalence(Changed(plain(1e303), lost_beyond(1e5, value)), read, (2,))


def test_neither_may_overflow_near_zero() -> None:
    with pytest.raises(UnsupportedError, match=OTHER):
        graph(plain(1e200, first=1e200))


def test_outputs_of_another_shape() -> None:
    for change in (lambda _, outputs: outputs[:, :1], lambda _, outputs: outputs[:, None]):
        with pytest.raises(UnsupportedError, match=OTHER):
            check_equivalence(Changed(plain(), change), graph(plain()), (2,))


def test_a_model_that_knows_no_batch_of_one() -> None:
    def several(points: Tensor, outputs: Tensor) -> Tensor:
        if len(points) < 2:
            raise ValueError("one is too few")
        return outputs

    with pytest.raises(UnsupportedError, match="differ for a batch of one"):
        check_equivalence(Changed(plain(), several), graph(plain()), (2,))


class Single(Changed):
    """Runs in float32 alone."""

    def forward(self, points: Tensor) -> Tensor:
        if points.dtype != torch.float32:
            raise TypeError(points.dtype)
        return super().forward(points)


def test_in_float32_alone_it_is_a_few_thousandths() -> None:
    read = graph(plain())
    check_equivalence(Single(plain().float(), off_by(3e-3, 1.0)), read, (2,))
    with pytest.raises(UnsupportedError, match=OTHER):
        check_equivalence(Single(plain().float(), off_by(4e-3, 1.0)), read, (2,))


class Drifts(Changed):
    """A little more at each call."""

    calls = 0

    def forward(self, points: Tensor) -> Tensor:
        self.calls += 1
        return off_by(1e-6 * self.calls, 1.0)(points, self.model(points))


def test_changing_outputs_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=AGAIN):
        check_equivalence(Drifts(plain(), off_by(0.0, 1.0)), graph(plain()), (2,))
