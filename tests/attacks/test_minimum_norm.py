"""Smallest perturbations against closed forms of linear classifiers: attained, and never below the truth."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from certus import WRM, Box, CrossEntropy, ModelLoss, SquaredL2
from certus._names import NORMS
from certus.attacks import Margin, largest_penalty, minimum_norm_attack
from certus.costs import SquaredSup, WeightedL2
from certus.data import Samples
from certus.errors import ArgumentError, CertusError
from certus.inner import BarzilaiBorwein
from certus.norms import Lp
from tests.attacks.models import convolutional, images, linear

EVERY_NORM = pytest.mark.parametrize("norm", NORMS.values())


def problem(classes: int = 3, size: int = 4, scale: float = 1.0) -> tuple[ModelLoss, Tensor, Tensor, Tensor]:
    """A linear classifier, points, labels of which some are wrong, and (batch, classes) margins F_y − F_k."""
    torch.manual_seed(classes)
    loss = linear(scale * torch.randn(classes, size).double(), scale * torch.randn(classes).double())
    inputs = 2 * torch.randn(30, size).double()
    outputs = loss.model(inputs).detach()
    labels = outputs.argmax(1)
    labels[::2] = torch.randint(classes, (15,))  # about half are misclassified already
    return loss, inputs, labels, outputs.gather(1, labels[:, None]) - outputs


def true_distance(loss: ModelLoss, labels: Tensor, margins: Tensor, norm: float) -> Tensor:
    """min_k (F_y − F_k)₊/‖w_y − w_k‖_*: the distance to the nearest half-space where another class wins."""
    weight = loss.model.get_parameter("weight").detach()
    lengths = torch.stack([Lp(norm).dual(weight[y] - weight) for y in labels])
    lengths[torch.arange(len(labels)), labels] = math.nan
    ratios = (margins.clamp_min(0) / lengths).nan_to_num(math.inf)
    wrong = (margins < 0).any(1)
    return torch.where(wrong, 0.0, ratios.amin(1))


@EVERY_NORM
@pytest.mark.parametrize("classes", [2, 4])
def test_nearest_error_of_a_linear_classifier(norm: float, classes: int) -> None:
    loss, inputs, labels, margins = problem(classes)
    found = minimum_norm_attack(loss, inputs, labels, norm=norm, steps=40, rounds=20)
    truth = true_distance(loss, labels, margins, norm)
    assert found.success.all()
    assert (truth == 0).any()
    assert torch.equal(found.distance == 0, truth == 0)
    assert (found.distance >= truth * (1 - 1e-9)).all()
    # With more than two classes the attack climbs towards the class that is nearest in value, which need not
    # be the nearest in distance: most samples end at the truth, not all.
    close = found.distance <= truth * 1.02 + 1e-9
    assert close.double().mean() >= (1.0 if classes == 2 else 0.8)
    assert (loss.model(found.inputs).argmax(1) != labels).all()
    torch.testing.assert_close(Lp(norm)(found.inputs - inputs), found.distance)


@EVERY_NORM
def test_confident_models_are_attacked_too(norm: float) -> None:
    """At this scale the cross-entropy of every sample is 0 in floating point, and so is its gradient."""
    loss, inputs, labels, margins = problem(2, scale=1e4)
    found = minimum_norm_attack(loss, inputs, labels, norm=norm, steps=40)
    truth = true_distance(loss, labels, margins, norm)
    assert found.success.all()
    assert (found.distance <= truth * 1.02 + 1e-6).all()


def test_errors_nearer_than_the_first_radius_are_not_passed_over() -> None:
    """A thin shell of errors around 0: an attack with long steps lands behind it."""

    class Shell(torch.nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            bump = torch.exp(-((inputs.norm(dim=1) - 1) ** 2) / 0.02) - 0.5
            return torch.stack([torch.zeros_like(bump), bump], 1)

    inputs = torch.tensor([[0.6, 0.0], [0.0, -0.7]]).double()
    found = minimum_norm_attack(ModelLoss(Shell()), inputs, torch.tensor([0, 0]), largest=64.0, steps=10)
    assert found.success.all()
    inner = 1 - math.sqrt(0.02 * math.log(2))
    truth = inner - inputs.norm(dim=1)
    assert (found.distance >= truth - 1e-9).all()
    assert (found.distance <= 1.1 * truth).all()


def test_inside_the_domain_and_float32_images() -> None:
    model, (inputs, labels) = convolutional(), images(20)
    for norm in (2.0, math.inf):
        found = minimum_norm_attack(ModelLoss(model), inputs, labels, norm=norm, domain=Box(0, 1))
        assert Box(0, 1).contains(found.inputs).all()
        assert found.success.any()
        assert (model(found.inputs).argmax(1) != labels)[found.success].all()
        assert torch.equal(
            found.distance[~found.success], torch.full((int((~found.success).sum()),), math.inf)
        )


def test_no_error_to_be_found() -> None:
    loss = linear(torch.zeros(2, 3), torch.tensor([1.0, 0.0]))
    inputs, labels = torch.rand(4, 3), torch.tensor([0, 0, 1, 0])
    found = minimum_norm_attack(loss, inputs, labels)
    assert found.success.tolist() == [False, False, True, False]
    assert found.distance.tolist() == [math.inf, math.inf, 0.0, math.inf]
    assert torch.equal(found.inputs, inputs)
    penalty = largest_penalty(loss, inputs, labels)
    assert penalty.gamma.tolist() == [0.0, 0.0, math.inf, 0.0]
    assert penalty.distance.tolist() == [math.inf, math.inf, 0.0, math.inf]


def test_the_search_is_a_function_of_its_seed() -> None:
    model, (inputs, labels) = convolutional(), images(6)
    state = torch.random.get_rng_state()
    runs = [minimum_norm_attack(ModelLoss(model), inputs, labels, steps=5, seed=seed) for seed in (4, 4, 5)]
    one, two, other = runs
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(one.distance, two.distance)
    assert not torch.equal(one.distance, other.distance)


@pytest.mark.parametrize("cost", [SquaredL2(), SquaredSup()], ids=["L2", "sup"])
def test_largest_penalty_of_a_linear_margin(cost: SquaredL2 | SquaredSup) -> None:
    """For ℓ = ⟨w, x⟩ + b and c = ‖·‖², T_γ moves by ‖w‖_*/2γ: an error for γ < ‖w‖_*²/(2·margin)."""
    loss, inputs, labels, margins = problem(2)
    weight = loss.model.get_parameter("weight").detach()
    dual = cost.norm.dual((weight[1] - weight[0])[None])
    found = largest_penalty(
        ModelLoss(loss.model, Margin()),
        inputs,
        labels,
        cost=cost,
        maximizer=BarzilaiBorwein(tolerance=1e-10, max_gradients=200),
        rounds=30,
    )
    margin = margins.gather(1, 1 - labels[:, None]).squeeze(1)
    right = margin > 0
    truth = dual**2 / (2 * margin)
    assert found.success.all()
    assert torch.isinf(found.gamma[~right]).all()
    torch.testing.assert_close(found.gamma[right], truth[right], rtol=1e-3, atol=0)
    assert (found.gamma[right] <= truth[right] * (1 + 1e-6)).all()
    # At that γ the move just reaches the boundary: its length is the distance to it.
    torch.testing.assert_close(found.distance[right], (margin / dual)[right], rtol=2e-3, atol=0)
    assert (loss.model(found.inputs).argmax(1) != labels).all()


def test_the_penalty_found_is_one_at_which_wrm_errs() -> None:
    # At the largest γ a margin is almost 0: in float32 the rounding of another batch would decide its sign.
    model, (inputs, targets) = convolutional().double(), images(20)
    data, loss = Samples(inputs.double(), targets), ModelLoss(model, CrossEntropy())
    found = largest_penalty(loss, data.inputs, data.targets, domain=Box(0, 1))
    moved = found.success & torch.isfinite(found.gamma)
    assert moved.any()
    wrm = WRM(found.gamma[moved], domain=Box(0, 1), maximizer=BarzilaiBorwein(1e-3, max_gradients=20))
    again = wrm(loss, data.inputs[moved], data.targets[moved])
    assert (model(again).argmax(1) != data.targets[moved]).all()
    assert (model(found.inputs).argmax(1) != data.targets)[found.success].all()


POINTS, LABELS = torch.rand(3, 2), torch.tensor([0, 1, 0])
LOSS = linear(torch.eye(2))
BAD = {
    "largest": ({"largest": -1.0}, "`largest` must be positive and finite; got -1.0"),
    "rounds": ({"rounds": 0}, "`rounds` must be a whole number, at least 1; got 0"),
    "norm": ({"norm": 3.0}, "`norm` must be 1, 2 or inf; got 3.0"),
    "domain": ({"domain": Box(5, 6)}, "`inputs` must lie in the domain Box"),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD.keys())
def test_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        minimum_norm_attack(LOSS, POINTS, LABELS, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("search", [minimum_norm_attack, largest_penalty])
def test_invalid_arguments_of_both_searches(search: object) -> None:
    assert callable(search)
    with pytest.raises(ArgumentError, match="`loss` must be a ModelLoss, whose model is attacked"):
        search(lambda x, y: x.sum(1), POINTS, LABELS)
    with pytest.raises(ArgumentError, match=r"`targets` must be \(batch,\) int64 labels.*got torch.float32"):
        search(LOSS, POINTS, POINTS[:, 0])
    with pytest.raises(ArgumentError, match="`inputs` must be finite"):
        search(LOSS, POINTS * math.nan, LABELS)
    with pytest.raises(ArgumentError, match=r"`smallest` must be positive and below `largest`; got 2\.0"):
        largest_penalty(LOSS, POINTS, LABELS, smallest=2.0, largest=1.0)


WRONG_DOMAINS: dict[str, Any] = {
    "inputs outside": Box(0.0, 0.5),
    "another shape": Box(torch.zeros(3), torch.ones(3)),
    "no domain": "Box",
}


@pytest.mark.parametrize("name", WRONG_DOMAINS)
@pytest.mark.parametrize("search", [minimum_norm_attack, largest_penalty])
def test_a_wrong_domain_is_refused_though_nothing_is_left_to_attack(search: Any, name: str) -> None:
    """All samples err as they are, so that no attack is run that would notice."""
    model = nn.Linear(2, 2)
    inputs = torch.ones(4, 2)
    targets = 1 - model(inputs).argmax(1)
    loss = ModelLoss(model)
    assert bool((search(loss, inputs, targets, domain=Box(0.0, 2.0)).distance == 0).all())
    with pytest.raises(ArgumentError, match=r"domain|shape|`inputs`"):
        search(loss, inputs, targets, domain=WRONG_DOMAINS[name])


def test_a_cost_that_does_not_go_with_its_domain_is_refused_though_nothing_is_left_to_attack() -> None:
    model = nn.Linear(2, 2)
    inputs = torch.ones(4, 2)
    targets = 1 - model(inputs).argmax(1)
    cost = WeightedL2(torch.ones(3))
    with pytest.raises(CertusError, match="shape"):
        largest_penalty(ModelLoss(model), inputs, targets, cost=cost)
