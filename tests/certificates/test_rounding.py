"""Rounding is bounded where it happens: against the same network in 80-bit arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from certus.certificates.problem import Problem
from certus.costs import Mahalanobis
from certus.errors import CertusError, UnsupportedError
from certus.kernel.problem import outputs_at, rounding_at
from certus.losses import Criterion, SquaredError
from tests.certificates.problems import CROSS_ENTROPY, EVERYWHERE, L2, around, network, samples

Long = np.ndarray[Any, Any]  # of np.longdouble

SLOPES: dict[str, tuple[Callable[[Long], Long], Callable[[Long], Long]]] = {
    "tanh": (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "softplus": (
        lambda z: np.logaddexp(z, np.longdouble(0)),
        lambda z: np.exp(-np.logaddexp(np.longdouble(0), -z)),
    ),
    "relu": (lambda z: np.maximum(z, 0), lambda z: (z > 0).astype(np.longdouble)),
}


def long(tensor: Tensor) -> Long:
    return tensor.detach().numpy().astype(np.longdouble)


def length(vectors: Long) -> Long:
    return np.asarray(np.sqrt((vectors**2).sum(1)))


def exactly(model: nn.Module, kind: str, points: Tensor) -> tuple[Long, Long]:
    """Outputs (n, classes) and their gradients (n, classes, inputs), with 11 more bits."""
    value, slope = SLOPES[kind]
    first, second = model[0], model[2]  # type: ignore[index]  # a Sequential
    before = long(points) @ long(first.weight).T + long(first.bias)
    outputs = value(before) @ long(second.weight).T + long(second.bias)
    return outputs, np.einsum("ko,no,oi->nki", long(second.weight), slope(before), long(first.weight))


@pytest.mark.parametrize("kind", SLOPES)
@pytest.mark.parametrize("size", [1.5, 3e3])
def test_values_and_gradients_are_off_by_no_more_than_stated(kind: str, size: float) -> None:
    """Also for a hard case: outputs that cancel down from large terms."""
    shares = []
    for seed in range(20):
        model, (points, targets) = network(kind, seed, size=size), samples(seed, 20)
        problem = Problem.of(model, (points, targets), CROSS_ENTROPY, L2, EVERYWHERE)
        bound, (outputs, slopes) = rounding_at(problem.graph, points), exactly(model, kind, points)
        leaf = points.clone().requires_grad_()
        computed = problem.loss.model(leaf)
        off = np.abs(long(computed) - outputs).max(1)
        assert bool((off <= long(bound.values)).all())
        assert torch.equal(outputs_at(problem.graph, points)[1], bound.values)
        shares.append(float((off / long(bound.values)).max()))
        for k in range(3):
            (rows,) = torch.autograd.grad(computed[:, k].sum(), leaf, retain_graph=True)
            assert bool((length(long(rows) - slopes[:, k]) <= long(bound.slopes)).all())
            assert bool((length(long(rows)) <= long(bound.rows)).all())
    # A bound, and not one from another world: of softplus most of it is the jump of torch's own.
    assert (1e-9 if kind == "softplus" else 1e-5) < max(shares) < 0.5


@pytest.mark.parametrize(("criterion", "classes"), [(CROSS_ENTROPY, 3), (SquaredError(), 1)])
def test_losses_and_their_gradients(criterion: Criterion, classes: int) -> None:
    for size in (1.5, 3e3):
        for seed in range(10):
            model, (points, targets) = network("softplus", seed, classes, size=size), samples(seed, 20)
            if classes == 1:
                targets = torch.randn(20, generator=torch.Generator().manual_seed(seed)).double()
            problem = Problem.of(model, (points, targets), criterion, L2, EVERYWHERE)
            outputs, slopes = exactly(model, "softplus", points)
            if classes == 1:
                away = outputs[:, 0] - long(targets)
                losses, rows = away**2, 2 * away[:, None]
            else:
                top = outputs.max(1, keepdims=True)
                shares = np.exp(outputs - top)
                total = shares.sum(1, keepdims=True)
                rows = shares / total
                labels = targets.numpy()
                losses = (np.log(total) + top)[:, 0] - outputs[np.arange(20), labels]
                rows[np.arange(20), labels] -= 1
            truth = np.einsum("nk,nki->ni", rows, slopes)
            leaf, kernel = points.clone().requires_grad_(), problem.kernel
            for computed in (kernel.losses(leaf), problem.loss(leaf, problem.targets)):
                (slope,) = torch.autograd.grad(computed.sum(), leaf)
                allowed = kernel.slack(computed.detach(), kernel.rounding)
                assert bool((np.abs(long(computed) - losses) <= long(allowed)).all())
                error = kernel.slope_error(computed.detach(), kernel.rounding)
                assert bool((length(long(slope) - truth) <= long(error)).all())


def test_a_network_that_overflows_is_refused() -> None:
    last = nn.Linear(4, 2).double()
    nn.init.constant_(last.weight, 1.7e308)
    nn.init.constant_(last.bias, 1.7e308)
    model = nn.Sequential(nn.Linear(2, 4).double(), nn.Tanh(), last)
    with pytest.raises(CertusError, match=r"overflow|differ from those"):
        around(model, (torch.ones(3, 2).double(), torch.zeros(3, dtype=torch.long)))


def test_ties_are_errors_even_without_rounding() -> None:
    """A network of zeros says the same for all classes: every margin is 0, and no radius is certified."""
    layer = nn.Linear(2, 3).double()
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    radius = around(nn.Sequential(layer), (torch.zeros(4, 2).double(), torch.tensor([0, 1, 2, 0]))).radius
    assert radius is not None
    assert radius.tolist() == [0.0] * 4


def test_a_matrix_that_float64_cannot_invert_is_refused() -> None:
    cost = Mahalanobis(torch.diag(torch.tensor([1.0, 1e-9])).double())
    with pytest.raises(UnsupportedError, match="too ill-conditioned for a proof in float64"):
        around(network("tanh", 0), samples(0, 3), cost=cost)
