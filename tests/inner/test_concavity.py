"""The curvature estimate against full Hessians of small networks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import certus
from certus import CrossEntropy, ModelLoss, SquaredL2
from certus.costs import Bregman, Cost, Mahalanobis, Masked, SquaredLp, WeightedL2
from certus.inner import Status
from tests.bounds.margins import by_margins

SIZE = 6


def network(activation: nn.Module, seed: int = 0) -> ModelLoss:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(SIZE, 12), activation, nn.Linear(12, 3)).double()
    return ModelLoss(model, CrossEntropy())


INPUTS = torch.randn(15, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
TARGETS = torch.arange(15) % 3
_FACTOR = torch.randn(SIZE, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
MATRIX = _FACTOR @ _FACTOR.T + torch.eye(SIZE)
WEIGHTS = torch.linspace(0.2, 3.0, SIZE, dtype=torch.float64).reshape(2, 3)
MASK = torch.tensor([[True, False, True], [True, True, False]])


def full_hessians(loss: ModelLoss) -> Tensor:
    """(batch, 6, 6), entry by entry from automatic differentiation of one sample at a time."""
    rows, value = [], by_margins(loss.criterion)
    for x, y in zip(INPUTS, TARGETS, strict=True):
        hessian = torch.autograd.functional.hessian(lambda z, y=y: value(loss.model(z[None]), y[None])[0], x)
        rows.append(hessian.reshape(SIZE, SIZE))
    return torch.stack(rows)


@pytest.mark.parametrize("activation", [nn.ELU(), nn.Softplus(), nn.Tanh()], ids=["elu", "softplus", "tanh"])
def test_against_full_hessians(activation: nn.Module) -> None:
    loss = network(activation)
    expected = torch.linalg.eigvalsh(full_hessians(loss))[:, -1]
    found = certus.inner.largest_curvature(loss, INPUTS, TARGETS, tolerance=1e-10)
    assert (found.status == Status.CONVERGED).all()
    torch.testing.assert_close(found.largest, expected, atol=1e-8, rtol=1e-8)
    assert found.products <= SIZE + 1


@pytest.mark.parametrize(
    ("cost", "metric"),
    [(WeightedL2(WEIGHTS), torch.diag(WEIGHTS.flatten())), (Mahalanobis(MATRIX), MATRIX)],
    ids=["weighted", "full"],
)
def test_in_the_norm_of_the_cost(cost: Cost, metric: Tensor) -> None:
    """sup vᵀHv/vᵀMv is the largest generalised eigenvalue of H against M."""
    loss = network(nn.ELU())
    inverse = torch.linalg.inv(torch.linalg.cholesky(metric))
    expected = torch.linalg.eigvalsh(inverse @ full_hessians(loss) @ inverse.T)[:, -1]
    found = certus.inner.largest_curvature(loss, INPUTS, TARGETS, cost=cost, tolerance=1e-10)
    torch.testing.assert_close(found.largest, expected, atol=1e-8, rtol=1e-8)


def test_under_a_mask() -> None:
    loss = network(nn.ELU())
    free = MASK.flatten()
    expected = torch.linalg.eigvalsh(full_hessians(loss)[:, free][:, :, free])[:, -1]
    found = certus.inner.largest_curvature(
        loss, INPUTS, TARGETS, cost=Masked(SquaredL2(), MASK), tolerance=1e-10
    )
    torch.testing.assert_close(found.largest, expected, atol=1e-8, rtol=1e-8)


def test_under_a_mask_and_a_full_matrix() -> None:
    """The generalised eigenvalue of the free block of H against the free block of M."""
    loss, free = network(nn.ELU()), MASK.flatten()
    inverse = torch.linalg.inv(torch.linalg.cholesky(MATRIX[free][:, free]))
    expected = torch.linalg.eigvalsh(inverse @ full_hessians(loss)[:, free][:, :, free] @ inverse.T)[:, -1]
    cost = Masked(Mahalanobis(MATRIX), MASK)
    found = certus.inner.largest_curvature(loss, INPUTS, TARGETS, cost=cost, tolerance=1e-10)
    torch.testing.assert_close(found.largest, expected, atol=1e-8, rtol=1e-8)


def test_large_negative_curvature_does_not_excuse_an_error() -> None:
    """Eigenvalues −1000 and 31 of them between −1 and 5: relative to 1000, almost any answer would do."""
    curvature = torch.cat([torch.tensor([-1e3]), torch.linspace(-1, 5, 30)]).double()

    def loss(z: Tensor) -> Tensor:
        return z**2 @ curvature / 2

    points = torch.zeros(50, 31, dtype=torch.float64)
    found = certus.inner.largest_curvature(loss, points)
    assert (found.largest[found.status == Status.CONVERGED] > 4.9).all()
    assert certus.inner.concave_share(loss, points, gamma=2.4).concave == 0
    share = certus.inner.concave_share(loss, points, gamma=2.6)
    assert share.concave + share.unresolved == 50


def test_residuals_bound_the_distance_to_an_eigenvalue() -> None:
    loss = network(nn.Tanh(), seed=5)
    eigenvalues = torch.linalg.eigvalsh(full_hessians(loss))
    for products in (1, 2, 3, 4):
        found = certus.inner.largest_curvature(loss, INPUTS, TARGETS, max_products=products, tolerance=1e-14)
        nearest = (eigenvalues - found.largest[:, None]).abs().amin(1)
        assert (nearest <= found.residual + 1e-10).all()


def test_the_threshold_is_the_costs_own() -> None:
    """A cost of modulus 1 needs twice the γ of one of modulus 2."""
    half = Bregman(lambda z: (z**2).sum(1) / 2, modulus=1.0)
    curved = certus.inner.largest_curvature(lambda z: 1.5 * (z**2).sum(1), torch.zeros(1, 2), cost=half)
    assert curved.concave(2.0).tolist() == [True]
    assert curved.concave(2.0, half).tolist() == [False]
    assert curved.convex(2.0, half).tolist() == [True]
    assert curved.concave(4.0, half).tolist() == [True]


def test_never_above_the_truth_and_says_when_it_is_not_there_yet() -> None:
    loss = network(nn.ELU(), seed=3)
    expected = torch.linalg.eigvalsh(full_hessians(loss))[:, -1]
    for products in (1, 2, 3):
        found = certus.inner.largest_curvature(loss, INPUTS, TARGETS, max_products=products, tolerance=1e-12)
        assert (found.largest <= expected + 1e-10).all()
        assert (found.status == Status.MAX_STEPS).all()
        assert found.products == products


def test_negative_curvature_is_found_negative() -> None:
    """Also under a mask, where the frozen directions have curvature 0."""
    inputs = torch.zeros(2, 3)
    for cost in (SquaredL2(), Masked(SquaredL2(), torch.tensor([True, False, True]))):
        found = certus.inner.largest_curvature(
            lambda z: -(z**2) @ torch.tensor([1.0, 2.0, 3.0]), inputs, cost=cost
        )
        torch.testing.assert_close(found.largest, torch.tensor([-2.0, -2.0]))


def test_share_of_a_data_set() -> None:
    """The fraction of samples with 2γ above their own largest eigenvalue, whatever the batches."""
    loss = network(nn.ELU())
    largest = torch.linalg.eigvalsh(full_hessians(loss))[:, -1]
    gamma = float(largest.median()) / 2 + 1e-6
    for batch_size in (4, 100):
        share = certus.inner.concave_share(
            loss, INPUTS, TARGETS, gamma=gamma, batch_size=batch_size, tolerance=1e-8
        )
        assert share.concave == int((largest < 2 * gamma).sum()) == 8
        assert share.count == 15
        assert share.unresolved == 0
        assert share.fraction == pytest.approx(8 / 15)


def test_losses_without_curvature() -> None:
    weight = torch.ones(3, requires_grad=True)
    for loss in (lambda z: z.sum(1), lambda z: z @ weight):
        found = certus.inner.largest_curvature(loss, torch.zeros(2, 3))
        assert found.largest.tolist() == [0.0, 0.0]
        assert found.concave(1.0).all()


def test_a_loss_that_is_not_finite_is_a_status() -> None:
    found = certus.inner.largest_curvature(
        lambda z: torch.log(z).sum(1), torch.tensor([[1.0, 2.0], [-1.0, 1.0]])
    )
    assert found.status.tolist() == [Status.CONVERGED, Status.NONFINITE]
    assert found.concave(1.0).tolist() == [True, False]


def test_refused_without_an_inner_product() -> None:
    with pytest.raises(certus.errors.UnsupportedError, match="no inner product"):
        certus.inner.largest_curvature(lambda z: z.sum(1), torch.zeros(1, 2), cost=SquaredLp(1.5))
