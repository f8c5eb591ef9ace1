"""Criteria of torch, inferred ones and one's own: in certify, fit and attacks, against torch itself."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import certus
from certus import WRM, ModelLoss
from certus.attacks import PGD
from certus.attacks.evaluation import evaluate
from certus.certificates import Certificate
from certus.certificates.files import as_json
from certus.data import Samples
from certus.training.preflight import certificate_outlook
from tests.certificates.problems import certify_exactly

INPUTS = torch.randn(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(3, (40,), generator=torch.Generator().manual_seed(1))
NUMBERS = torch.randn(40, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
BINARY = (INPUTS[:, :1] > 0).double()
WEIGHTS = torch.tensor([1.0, 3.0, 0.5], dtype=torch.float64)
RHO = 0.01


def network(outputs: int) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, outputs)).double()


CASES: dict[str, tuple[nn.Module, int, Tensor]] = {
    "cross-entropy": (nn.CrossEntropyLoss(), 3, LABELS),
    "smoothed labels": (nn.CrossEntropyLoss(label_smoothing=0.1), 3, LABELS),
    "weights": (nn.CrossEntropyLoss(weight=WEIGHTS), 3, LABELS),
    "squares": (nn.MSELoss(), 1, NUMBERS),
    "logistic": (nn.BCEWithLogitsLoss(), 1, BINARY),
    "logistic, weighted": (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0]).double()), 1, BINARY),
}


def worst_of_attacks(model: nn.Module, criterion: Any, targets: Tensor) -> float:
    """What gradient steps on torch's own criterion find with every sample within √ρ of its place."""
    points = INPUTS.clone()
    best = -torch.inf
    for _ in range(60):
        points.requires_grad_()
        loss = criterion(model(points), targets)
        best = max(best, float(loss.detach()))
        (slope,) = torch.autograd.grad(loss, points)
        move = points.detach() + 0.02 * slope / slope.norm(dim=1, keepdim=True).clamp_min(1e-12) - INPUTS
        points = INPUTS + move * (RHO**0.5 / move.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp_max(1)
    return best


@pytest.mark.parametrize("name", CASES)
def test_certified_as_torch_computes_it(name: str) -> None:
    """The mean that is bracketed is torch's own at the data, and no attack on torch's own gets above."""
    criterion, outputs, targets = CASES[name]
    model = network(outputs)
    certificate = certus.certify(model, (INPUTS, targets), rho=RHO, criterion=criterion, progress=False)
    with torch.no_grad():
        exact = float(criterion(model(INPUTS), targets))
    assert certificate.evidence == "proven"
    assert certificate.clean_loss[0] <= exact + 1e-12
    assert certificate.clean_loss[1] >= exact - 1e-12
    assert certificate.clean_loss[1] - certificate.clean_loss[0] < 1e-6
    assert certificate.bound(RHO) >= worst_of_attacks(model, criterion, targets)
    worst, shares = certificate.worst_case_data(RHO)
    with torch.no_grad():  # samples that are moved in part count in both places
        single: Any = copy.copy(criterion)
        single.reduction = "none"
        losses = single(model(worst.inputs), worst.targets.reshape(-1, *targets.shape[1:]).to(targets))
        losses = losses.flatten()
        if name == "weights":
            losses = losses * len(LABELS) / WEIGHTS[LABELS].sum()
    assert certificate.lower(RHO) <= float((losses * shares).sum()) + 1e-9


def test_an_inferred_criterion_is_that_of_the_targets() -> None:
    model = network(1)
    data: list[Any] = [
        (INPUTS, NUMBERS[:, 0]),
        Samples(INPUTS, NUMBERS),
        DataLoader(TensorDataset(INPUTS, NUMBERS), batch_size=7),
        (INPUTS.numpy(), NUMBERS.numpy()),
    ]
    exact = float(functional.mse_loss(model(INPUTS).detach(), NUMBERS))
    for way in data:
        certificate = certus.certify(model, way, rho=RHO, progress=False)
        assert certificate.classes is None
        assert certificate.clean_loss[0] <= exact <= certificate.clean_loss[1]
    linear = nn.Linear(2, 1).double()
    exact = float(functional.mse_loss(linear(INPUTS).detach(), NUMBERS))
    low, high = certify_exactly(linear, (INPUTS, NUMBERS[:, 0]), rho=RHO).clean_loss
    assert low <= exact <= high
    torch.testing.assert_close(ModelLoss(model)(INPUTS, NUMBERS), (model(INPUTS) - NUMBERS)[:, 0] ** 2)
    moved = WRM(gamma=5.0)(ModelLoss(model), INPUTS, NUMBERS)
    assert functional.mse_loss(model(moved), NUMBERS) > functional.mse_loss(model(INPUTS), NUMBERS)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_losses_of_each_sample_are_torchs_own(reduction: str) -> None:
    several = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    cases: list[tuple[Any, int, Tensor]] = [
        (nn.CrossEntropyLoss(label_smoothing=0.2, reduction=reduction), 3, LABELS),
        (nn.MSELoss(reduction=reduction), 3, several),
        (nn.HuberLoss(delta=0.3, reduction=reduction), 3, several),
        (nn.HuberLoss(delta=0.3, reduction=reduction), 1, NUMBERS),
        (nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.0).double(), reduction=reduction), 1, BINARY),
    ]
    if reduction == "none":
        cases.append((nn.CrossEntropyLoss(WEIGHTS, label_smoothing=0.2, reduction="none"), 3, LABELS))
    for criterion, outputs, targets in cases:
        model = network(outputs)
        losses = ModelLoss(model, criterion)(INPUTS, targets)
        for index in range(len(INPUTS)):
            row = slice(index, index + 1)
            alone = criterion(model(INPUTS[row]), targets[row]).mean()
            torch.testing.assert_close(losses[index], alone)


@pytest.mark.parametrize("name", [*CASES, "huber"])
def test_training_and_attacks_take_them(name: str) -> None:
    criterion, outputs, targets = CASES.get(name, (nn.HuberLoss(), 1, NUMBERS))
    model = network(outputs)
    before = float(criterion(model(INPUTS), targets).detach())
    trained = certus.fit(
        model,
        (INPUTS, targets),
        criterion=criterion,
        epochs=30,
        batch_size=40,
        optimizer=lambda groups: torch.optim.Adam(groups, lr=0.02),
        progress=False,
    )
    assert trained.history[0].loss == pytest.approx(before, rel=1e-6)
    assert float(criterion(model(INPUTS), targets).detach()) < before
    if name == "weights":
        return  # the mean of a batch belongs to no sample: refused below
    loss = ModelLoss(model, criterion)
    outcome = evaluate(loss.model, Samples(INPUTS, targets), PGD(0.3, 2.0, steps=5), criterion=loss.criterion)
    with torch.no_grad():
        assert float(outcome.losses.mean()) > float(criterion(model(INPUTS), targets))
    assert (outcome.errors is None) is (name in ("squares", "huber"))


def hinge(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.multi_margin_loss(outputs, targets, reduction="none")


def test_a_criterion_of_ones_own_gets_the_bound_on_the_error_rate() -> None:
    """The rate does not depend on the criterion: that of cross-entropy holds, and attacks stay below."""
    model = network(3)
    own = certus.certify(model, (INPUTS, LABELS), rho=RHO, epsilon=0.1, criterion=hinge, progress=False)
    plain = certus.certify(model, (INPUTS, LABELS), rho=RHO, epsilon=0.1, progress=False)
    assert own.error_bound(RHO) == pytest.approx(plain.error_bound(RHO), rel=1e-6)
    assert own.bound(RHO) == float("inf")
    with torch.no_grad():
        assert own.lower(0.0) == pytest.approx(float(hinge(model(INPUTS), LABELS).mean()), rel=1e-6)
    assert own.lower(RHO) > own.lower(0.0)
    moved = PGD(0.1, 2.0, steps=20)(ModelLoss(model), INPUTS, LABELS)
    wrong = float((model(moved).argmax(1) != LABELS).double().mean())
    bound = own.error_bound(RHO)
    assert bound is not None
    assert wrong <= bound
    assert own.accuracies()[0].certified <= 1 - wrong
    assert "no proof" in str(own)
    assert f"{bound:.3f}"[:4] in str(own)


def test_its_certificate_is_written_and_read(tmp_path: Path) -> None:
    own = certus.certify(network(3), (INPUTS, LABELS), rho=RHO, criterion=hinge, progress=False)
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(as_json(own)))
    assert Certificate.load(path).error_bound(RHO) == own.error_bound(RHO)


WEIGHTED: Any = nn.CrossEntropyLoss(WEIGHTS)
ANYTHING: tuple[Any, Any] = nn.MSELoss, "x"


def test_smoothing_takes_them() -> None:
    found = [
        certus.certify_smoothed(
            network(3), (INPUTS, LABELS), rho=RHO, sigma=0.5, draws=100, criterion=each, progress=False
        ).bound(RHO)
        for each in (nn.CrossEntropyLoss(label_smoothing=0.1), certus.CrossEntropy(label_smoothing=0.1))
    ]
    assert found[0] == found[1]


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "sum": (lambda: ModelLoss(network(3), nn.CrossEntropyLoss(reduction="sum")), "reduction"),
    "ignored": (lambda: ModelLoss(network(3), nn.CrossEntropyLoss(ignore_index=1)), "ignore_index"),
    "mean of weights": (lambda: ModelLoss(network(3), nn.CrossEntropyLoss(WEIGHTS)), "weights"),
    "weights of a loader": (
        lambda: certus.certify(
            network(3),
            DataLoader(TensorDataset(INPUTS, LABELS), 8),
            rho=RHO,
            criterion=WEIGHTED,
        ),
        "weights",
    ),
    "weights twice": (
        lambda: certus.certify(
            network(3),
            (INPUTS, LABELS),
            rho=RHO,
            criterion=WEIGHTED,
            class_weights=(1, 1, 1),
        ),
        "class_weights",
    ),
    "too few weights": (
        lambda: certus.fit(network(4), (INPUTS, LABELS), criterion=WEIGHTED, epochs=1),
        "weight",
    ),
    "element weights": (lambda: ModelLoss(network(1), nn.BCEWithLogitsLoss(torch.ones(1))), "weight"),
    "several positive weights": (
        lambda: ModelLoss(network(1), nn.BCEWithLogitsLoss(pos_weight=torch.ones(2))),
        "pos_weight",
    ),
    "soft labels": (
        lambda: certus.certify(
            network(1), (INPUTS, BINARY / 2), rho=RHO, criterion=nn.BCEWithLogitsLoss(), progress=False
        ),
        "targets",
    ),
    "a class": (lambda: ModelLoss(network(3), ANYTHING[0]), "criterion"),
    "a word": (
        lambda: certus.certify(network(3), (INPUTS, LABELS), rho=RHO, criterion=ANYTHING[1]),
        "criterion",
    ),
    "confidence": (
        lambda: certus.certify(network(3), (INPUTS, LABELS), rho=RHO, criterion=hinge, confidence=0.9),
        "confidence",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_criteria_without_a_loss_per_sample_are_refused(name: str) -> None:
    ask, word = REFUSED[name]
    with pytest.raises(certus.CertusError, match=word):
        ask()


class Returns(nn.Module):
    """A model whose outputs are in something else."""

    def __init__(self, wrap: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.layers, self.wrap = network(3), wrap

    def forward(self, inputs: Tensor) -> object:
        return self.wrap(self.layers(inputs))


class Output:
    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


USES: dict[str, Callable[[nn.Module], object]] = {
    "certify": lambda model: certus.certify(model, (INPUTS, LABELS), rho=RHO, progress=False),
    "smoothing": lambda model: certus.certify_smoothed(
        model, (INPUTS, LABELS), rho=RHO, sigma=0.5, draws=100, progress=False
    ),
    "fit": lambda model: certus.fit(model, (INPUTS, LABELS), epochs=1, progress=False),
    "robust fit": lambda model: certus.fit(
        model, (INPUTS, LABELS), method=WRM(gamma=1.0), epochs=1, progress=False
    ),
    "attack": lambda model: PGD(0.1)(ModelLoss(model), INPUTS, LABELS),
    "outcomes": lambda model: evaluate(model, Samples(INPUTS, LABELS), PGD(0.1)),
    "WRM": lambda model: WRM(gamma=1.0)(ModelLoss(model), INPUTS, LABELS),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    ("wrap", "words"),
    [
        (lambda logits: {"logits": logits}, r"dict of 'logits'.*model\(x\)\['logits'\]"),
        (lambda logits: (logits, logits), r"tuple of 2.*model\(x\)\[0\]"),
        (Output, "Output.*forward"),
    ],
    ids=["dict", "tuple", "object"],
)
def test_models_that_return_no_tensor_are_refused_by_what_they_return(
    use: str, wrap: Callable[[Tensor], object], words: str
) -> None:
    with pytest.raises(certus.CertusError, match=words):
        USES[use](Returns(wrap))


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 4), nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(functional.relu(self.first(inputs)))
        return outputs


def test_smooth_is_recommended_where_it_works_only() -> None:
    layers = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
    for model in (layers, Functional()):
        recommended = "smooth(model)" in certificate_outlook(model, (2,))
        try:
            certus.bounds.smooth(model, (2,))
            works = True
        except certus.CertusError:
            works = False
        assert recommended is works
    assert "elu or softplus" in certificate_outlook(Functional(), (2,))
