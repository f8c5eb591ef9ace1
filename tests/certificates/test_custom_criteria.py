"""Models that cannot be read are refused; for criteria without a rule the error rate alone is proven."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import certus
from certus.attacks import minimum_norm_attack
from certus.certificates import Certificate
from certus.certificates.files import as_json, sample_table
from certus.costs import SquaredSup, WeightedL2
from certus.data import Samples
from certus.errors import ArgumentError, LossError, UnreadableModelError
from certus.kernel.evidence import Evidence
from certus.storage.write import write_json
from certus.training.metrics import clean_metrics


class Normed(nn.Module):
    """A layer norm of two numbers gives (−1, 1) or (1, −1), whatever they are: a step."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(2, eps=0.1, elementwise_affine=False)

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.norm(x)


class Detached(nn.Module):
    """Nothing to export, and no gradients."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().numpy())


class Drawn(nn.Module):
    """A linear model with noise of its own on its outputs, in eval mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.linear(x)
        return scores + torch.randn_like(scores)


class Centred(nn.Module):
    """A linear model of inputs less the mean of their batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x - x.mean(0, keepdim=True))


INPUTS = torch.tensor([[0.5, 0.0], [1.0, 0.2], [0.0, 2.0]])
TARGETS = torch.tensor([0, 0, 1])


def own_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """A function that certus has no rule for."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


@pytest.mark.parametrize("criterion", [None, own_cross_entropy], ids=["with a rule", "without"])
@pytest.mark.parametrize(
    ("model", "part"),
    [
        (Normed, r"LayerNorm \(norm\) in test_custom_criteria.py:"),
        (Detached, "numpy|export"),
        (Drawn, "rand"),
        (Centred, "batch|mean"),
    ],
)
def test_a_model_that_cannot_be_read_is_refused_by_the_part(
    model: Callable[[], nn.Module], part: str, criterion: certus.losses.Criterion | None
) -> None:
    torch.manual_seed(0)
    with pytest.raises(UnreadableModelError, match=part) as refused:
        certus.certify(model(), (INPUTS, TARGETS), rho=0.05, criterion=criterion)
    assert "certify_smoothed" in str(refused.value)


def test_nor_with_a_regression_of_another_criterion() -> None:
    with pytest.raises(UnreadableModelError, match="certify_smoothed"):
        certus.certify(Normed(), (INPUTS, INPUTS), rho=0.05, criterion=nn.L1Loss(reduction="none"))


def compared() -> nn.Sequential:
    """Scores 2(x₁ − x₂) and 2(x₂ − x₁): errors begin where the numbers are equal."""
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0, -2.0], [-2.0, 2.0]]))
        layer.bias.zero_()
    return nn.Sequential(layer)


@pytest.fixture(scope="module")
def found() -> Certificate:
    data = (INPUTS, TARGETS)
    rhos = [0.0, 0.05, 0.5]
    return certus.certify(compared(), data, rho=rhos, criterion=own_cross_entropy, attack_steps=20)


def test_no_bound_on_the_loss_and_the_reason(found: Certificate) -> None:
    assert found.no_proof is not None
    assert "own_cross_entropy" in found.no_proof
    assert found.evidence is Evidence.ATTAINED
    assert [one.loss_high for one in found.curve()] == [math.inf] * 3


def test_lower_bounds_are_attained_and_the_error_rate_is_proven(found: Certificate) -> None:
    model = compared().double()
    with torch.no_grad():
        start = float(nn.functional.cross_entropy(model(INPUTS.double()), TARGETS))
    assert found.lower(0.0) == pytest.approx(start, rel=1e-6)
    assert found.lower(0.0) <= start
    assert found.lower(0.05) > start
    proven = certus.certify(compared(), (INPUTS, TARGETS), rho=[0.0, 0.05, 0.5])
    assert found.lower(0.05) <= proven.bound(0.05)
    # Errors begin on the line, at distances |x₁ − x₂|/√2. Two samples cross for 0.125 + 0.32 of 3·0.5, and
    # what is left pays half of the third, at 2.
    exact = (2 + (1.5 - 0.445) / 2) / 3
    low, high = found.error_lower(0.5), found.error_bound(0.5)
    assert low is not None
    assert high is not None
    assert low <= exact <= high + 1e-12
    assert low == pytest.approx(exact, abs=0.01)
    assert high == pytest.approx(exact, abs=0.01)
    for attack in found.attacks:
        assert attack.transport_cost <= attack.rho


def test_it_is_written_and_read(found: Certificate, tmp_path: Path) -> None:
    content = as_json(found)
    assert content["evidence"] == "attained"
    assert content["no_proof"] == found.no_proof
    assert content["brackets"][1]["loss_high"] is None
    assert content["brackets"][1]["error_high"] is not None
    write_json(tmp_path / "certificate.json", content)
    again = Certificate.load(tmp_path / "certificate.json")
    assert json.dumps(as_json(again)) == json.dumps(content)
    assert sample_table(found).splitlines()[0] == "sample,attained_error_distance"
    with pytest.raises(ArgumentError, match="without a proof stores no points"):
        found.worst_case_data(0.05)


@pytest.mark.parametrize(
    "cost", [SquaredSup(), WeightedL2(torch.tensor([1.0, 4.0]))], ids=["sup", "weighted"]
)
def test_other_costs(cost: certus.costs.Cost) -> None:
    data = (INPUTS[:2], TARGETS[:2])
    found = certus.certify(compared(), data, rho=0.05, cost=cost, criterion=own_cross_entropy, attack_steps=8)
    assert found.lower(0.05) > found.lower(0.0)
    assert found.attacks[0].transport_cost <= 0.05


def test_without_gradients_the_loss_on_unmoved_data_is_the_lower_bound() -> None:
    def counted(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(1) != targets).float()

    found = certus.certify(compared(), (INPUTS, TARGETS), rho=0.05, criterion=counted)
    assert found.no_proof is not None
    assert "no attack was run" in found.no_proof
    assert found.lower(0.05) == found.lower(0.0)


class Paired(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x, x  # type: ignore[return-value]  # what users do


def test_a_model_that_returns_no_tensor_is_refused() -> None:
    with pytest.raises(LossError, match=r"must return one tensor, .*tuple of 2"):
        certus.certify(Paired(), (INPUTS, TARGETS), rho=0.05)


class Overwrites(nn.Module):
    """x ↦ a kinked function of x + 5, which it writes over its input, or not."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how, self.last = how, nn.Linear(2, 2).double()

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "in place":
            x.add_(5.0)
        elif self.how == "behind autograd's back":
            x.data.add_(5.0)
        else:
            x = x + 5.0
        outputs: Tensor = self.last(torch.where(x > 5, x, 2 * x))
        return outputs


@pytest.mark.parametrize("how", ["in place", "behind autograd's back"])
def test_models_that_write_over_their_inputs_are_given_copies(how: str) -> None:
    """Or the samples would move for nothing, and what is attained there would be another's."""
    inputs = torch.randn(20, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    targets, kept = torch.zeros(20, dtype=torch.long), inputs.clone()
    found, expected = (
        [
            certus.certify_smoothed(
                model, (inputs, targets), rho=0.1, sigma=0.3, draws=10, votes=9, attack_steps=2
            ).curve(),
            clean_metrics(certus.ModelLoss(model), Samples(inputs, targets)),
            minimum_norm_attack(certus.ModelLoss(model), inputs, targets, steps=5, rounds=3).distance,
        ]
        for model in (Overwrites(how), Overwrites("not"))
    )
    assert torch.equal(inputs, kept)
    assert found[:2] == expected[:2]
    torch.testing.assert_close(found[2], expected[2], rtol=0, atol=0)
