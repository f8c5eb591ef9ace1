"""Per-sample losses against torch's own, and against their formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import certus
from certus import CrossEntropy, ModelLoss
from certus.errors import LossError
from certus.losses import Criterion, SquaredError

GENERATOR = torch.Generator().manual_seed(0)
OUTPUTS = torch.randn(7, 4, generator=GENERATOR)
LABELS = torch.randint(0, 4, (7,), generator=GENERATOR)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_cross_entropy_by_its_formula(smoothing: float) -> None:
    """−Σ t_k log p_k with t = (1 − ε)e_y + ε/K."""
    targets = (1 - smoothing) * functional.one_hot(LABELS, 4) + smoothing / 4
    expected = -(targets * OUTPUTS.softmax(1).log()).sum(1)
    torch.testing.assert_close(CrossEntropy(smoothing)(OUTPUTS, LABELS), expected)


def test_squared_error_sums_over_the_outputs_of_a_sample() -> None:
    targets = torch.randn(7, 4, generator=GENERATOR)
    expected = torch.stack([((OUTPUTS[i] - targets[i]) ** 2).sum() for i in range(7)])
    torch.testing.assert_close(SquaredError()(OUTPUTS, targets), expected)
    column = OUTPUTS[:, :1]
    torch.testing.assert_close(SquaredError()(column, targets[:, 0]), (column[:, 0] - targets[:, 0]) ** 2)


@pytest.mark.parametrize(
    "criterion", [nn.CrossEntropyLoss(reduction="none"), nn.MultiMarginLoss(reduction="none")], ids=str
)
def test_torch_criteria_are_accepted(criterion: Criterion) -> None:
    model = nn.Linear(3, 4)
    inputs = torch.randn(7, 3, generator=GENERATOR)
    values = ModelLoss(model, criterion)(inputs, LABELS)
    torch.testing.assert_close(values, criterion(model(inputs), LABELS))
    assert certus.WRM(1.0)(ModelLoss(model, criterion), inputs, LABELS).shape == inputs.shape


def test_regression_on_rows_moves_towards_larger_error() -> None:
    """ℓ = (wᵀx + b − y)²: the worst move is along w, by (r w)/(γ − ‖w‖²) with r the residual."""
    model = nn.Linear(3, 1).double()
    loss = ModelLoss(model, SquaredError())
    inputs = torch.randn(5, 3, dtype=torch.float64, generator=GENERATOR)
    targets = torch.randn(5, dtype=torch.float64, generator=GENERATOR)
    weight = model.weight.detach()[0]
    gamma = 3 * float(weight @ weight)
    maximizer = certus.inner.BarzilaiBorwein(1e-14, 200)
    moved = certus.inner.transport_map(loss, inputs, targets, gamma=gamma, maximizer=maximizer)
    residual = (inputs @ weight + model.bias.detach() - targets)[:, None]
    torch.testing.assert_close(moved, inputs + residual * weight / (gamma - weight @ weight))


def test_models_without_parameters_and_modules_as_losses() -> None:
    class Distance(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            assert not self.training
            lengths: Tensor = torch.linalg.vector_norm(z, dim=1)
            return lengths

    bare = Distance()
    found = certus.WRM(1.0).solve(bare, torch.ones(2, 2))
    assert bare.training
    torch.testing.assert_close(found.inputs, torch.full((2, 2), 1 + 1 / (2 * math.sqrt(2))))
    assert ModelLoss(nn.Flatten(), SquaredError())(torch.zeros(2, 2), torch.ones(2, 2)).tolist() == [2.0, 2.0]


class Recurrent(nn.Module):
    """Its own type check raises ValueError, not RuntimeError."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(3, 2, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.cell(inputs.unsqueeze(1))[0]
        return outputs[:, 0]


class Broken(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        raise RuntimeError("the valve is stuck")


def test_other_dtypes_are_explained_and_other_failures_left_alone() -> None:
    labels = torch.zeros(2, dtype=torch.long)
    with pytest.raises(LossError, match=r"`inputs` must have the model's dtype torch.float32") as caught:
        ModelLoss(Recurrent())(torch.zeros(2, 3, dtype=torch.float64), labels)
    assert isinstance(caught.value.__cause__, ValueError)  # what torch said is not hidden
    with pytest.raises(RuntimeError, match="the valve is stuck"):
        ModelLoss(Broken())(torch.zeros(2, 3), labels)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Linear(4, 2), (3,)),
        (nn.Conv2d(3, 2, 3), (1, 8, 8)),
        (nn.Conv2d(3, 2, 3), (3, 2, 2)),
        (nn.Conv1d(3, 2, 3), (7, 7, 7)),
        (nn.LayerNorm(4), (3,)),
        (nn.BatchNorm1d(4).eval(), (3,)),
        (nn.BatchNorm2d(4).eval(), (4,)),
        (nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), (3, 5)),
        (nn.GRU(4, 2), (3,)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else str(value),
)
def test_wrong_shapes_are_explained(model: nn.Module, shape: tuple[int, ...]) -> None:
    sizes = ", ".join(["batch", *map(str, shape)])
    with pytest.raises(LossError, match=rf"`inputs` must have a shape .* fails at \({sizes}\)"):
        ModelLoss(model)(torch.zeros(2, *shape), torch.zeros(2, dtype=torch.long))
