"""Where certificates are easily wrong: claims, borders, extremes of ρ and of n, large weights in float32."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import certus
from certus import Box, CrossEntropy, SquaredL2, certify
from certus.bounds import SmoothnessBound, input_smoothness
from certus.certificates.certificate import Certificate
from certus.certificates.files import as_json
from certus.costs import LabelCost, SquaredSup, WeightedL2
from certus.errors import ArgumentError, ContradictionError, LossError
from certus.losses import Logistic, SquaredError
from tests.certificates.problems import L2, network, numpy_loss, samples
from tests.oracles import maximum_on_square


def phi_on_the_line(model: nn.Module, data: tuple[Tensor, Tensor], gamma: float) -> Tensor:
    """φ_γ for one input, by brute force at three resolutions, from below."""
    found = []
    for origin, target in zip(*data, strict=True):
        axis = torch.linspace(-9, 9, 1801).double()
        spread = (axis / 9 * 0.2, axis / 9 * 1e-3, axis - origin)
        points = torch.cat([origin + part for part in spread]).unsqueeze(1)
        for _ in range(2):
            with torch.no_grad():
                heights = CrossEntropy()(model(points), target.expand(len(points)))
            heights = heights - gamma * ((points - origin) ** 2).sum(1)
            best = points[heights.argmax()]
            points = best + axis.unsqueeze(1) / 9 * 0.01
        found.append(float(heights.max()))
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("kind", [nn.ELU, nn.Tanh, nn.Softplus, nn.ReLU])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_large_weights_in_float32_single_samples_and_duplicates(kind: type[nn.Module], scale: float) -> None:
    for seed, count in ((0, 1), (1, 4)):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(1, 8), kind(), nn.Linear(8, 3))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(scale)
        inputs, targets = torch.randn(count, 1), torch.randint(3, (count,))
        inputs[-1], targets[-1] = inputs[0], targets[0]
        found = certify(
            model,
            (inputs, targets),
            rho=(1e-4, 0.1),
            local_radii=2,
            gamma_rounds=0,
            attack_steps=3,
            confidence=0.5,
        )
        exact = copy.deepcopy(model).double()
        for level in found.dual_values[::4]:
            truth = phi_on_the_line(exact, (inputs.double(), targets), level.gamma)
            assert bool((level.bound >= truth - 1e-12 * (1 + truth.abs())).all())
        for rho in (0.0, 1e-9, 1e-4, 0.1, 1e6):
            one = found.bracket(rho)
            assert one.loss_low <= one.loss_high
            assert 0 <= (one.error_low or 0) <= (one.error_high or 0) <= 1


def test_nothing_moves_at_zero_and_everything_far_away() -> None:
    model, (inputs, targets) = network("elu", 0), samples(0, 20)
    with torch.no_grad():
        start = float(CrossEntropy()(model(inputs), targets).mean())
        wrong = float((model(inputs).argmax(1) != targets).double().mean())
    found = certify(model, (inputs, targets), rho=0.0, local_radii=1)
    zero = found.bracket(0.0)
    assert start - 1e-9 < zero.loss_low <= start <= zero.loss_high < start + 1e-9
    assert zero.error_low == pytest.approx(wrong)
    assert zero.error_high == pytest.approx(wrong)
    boxed = certify(model, (inputs, targets), rho=(0.1, 1e5), domain=Box(-1.0, 1.0), local_radii=1)
    assert boxed.bound(1e5) < 1e3  # nothing in the box is farther than its diameter
    most = np.mean([maximum_on_square(numpy_loss(model, CrossEntropy(), y)) for y in targets])
    assert most - 1e-5 < boxed.lower(1e5) <= most + 1e-9
    assert most <= boxed.bound(1e5)


@pytest.mark.parametrize("layer", [nn.ReLU(), nn.MaxPool1d(2)])
def test_a_constant_network_keeps_its_loss(layer: nn.Module) -> None:
    """The infinite curvature of a kink counts nothing behind weights of 0."""
    head = nn.Linear(2, 3)
    nn.init.zeros_(head.weight)
    model = nn.Sequential(
        nn.Linear(2, 4), nn.Unflatten(1, (2, 2)), layer, nn.Flatten(), nn.LazyLinear(2), head
    )
    model(torch.zeros(1, 2))
    points, labels = torch.randn(9, 2, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 3
    certificate = certify(model, (points, labels), rho=0.5, gammas=[1e-7], gamma_rounds=0, attack_steps=0)
    loss = float(nn.functional.cross_entropy(head.bias.detach().double().expand(9, 3), labels))
    assert certificate.bound(0.5) == pytest.approx(loss, rel=1e-6)
    assert input_smoothness(model).curvature == 0


def test_labels_on_the_decision_border() -> None:
    """Equal outputs are errors at no cost, whatever the label is; and never found with certainty."""
    layer = nn.Linear(2, 3).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]))
        layer.bias.zero_()
    data = (torch.tensor([[1.0, 0.3], [2.0, 0.0]]).double(), torch.tensor([0, 1]))
    found = certify(nn.Sequential(layer), data, rho=0.01)
    assert found.error_bound(0.0) == 1.0
    # Only the third class can be ahead for certain, at x₁ < 0: 1 from the first sample, 2 from the second.
    assert 0.45 < (found.error_lower(0.5) or 0) <= 0.5


def test_gamma_just_above_the_threshold_proves_no_less_than_it_should() -> None:
    """The modulus is then nearly 0: the gap rule must not gain from rounding."""
    model, data = network("softplus", 1, size=0.8), samples(1, 10)
    threshold = certus.input_smoothness(model).gamma
    found = certify(model, data, rho=0.1, gammas=[threshold * (1 + share) for share in (1e-13, 1e-9, 1e-3)])
    precise = certus.inner.robust_surrogate(
        certus.ModelLoss(model),
        *data,
        gamma=threshold,
        maximizer=certus.inner.BarzilaiBorwein(1e-12, 300),
    ).detach()
    for level in found.dual_values[-3:]:
        assert bool((level.bound >= precise - 1e-9 - 2e-3 * level.transport_cost).all())


def test_smoothness_of_the_callers_own_is_assumed() -> None:
    model, data = network("elu", 2), samples(2, 15)
    own = certus.input_smoothness(model)
    proven, claimed = (certify(model, data, rho=0.1, smoothness=bound) for bound in (None, own))
    assert (proven.evidence, claimed.evidence) == ("proven", "assumed")
    assert claimed.bound(0.1) >= proven.bound(0.1) - 1e-9  # no balls: looser, if anything
    bare = SmoothnessBound(
        {"mine": own.curvature}, own.lipschitz, own.output_lipschitz, None, None, [], None, L2
    )
    loose = certify(model, data, rho=0.1, smoothness=bare)
    assert loose.bound(0.1) >= claimed.bound(0.1) - 1e-9
    assert math.isfinite(loose.bound(0.1))
    assert loose.error_bound(0.0) == 1.0  # nothing is known of the margins
    wrong = SmoothnessBound({"mine": 1e-6}, 1e-3, 1e-3, None, None, [], None, L2)
    with pytest.raises(ContradictionError, match="It assumes the bounds given as `smoothness`"):
        certify(model, data, rho=0.1, smoothness=wrong)
    weights = torch.tensor([1.0, 2.0]).double()
    weighted = certus.input_smoothness(model, cost=WeightedL2(weights))
    certify(
        model,
        data,
        rho=0.1,
        smoothness=weighted,
        cost=WeightedL2(weights.clone()),
        local_radii=0,
        gamma_rounds=0,
    )
    for cost in (SquaredL2(), SquaredSup(), WeightedL2(2 * weights)):
        with pytest.raises(ArgumentError, match="`smoothness` must be in the norm of"):
            certify(model, data, rho=0.1, smoothness=weighted, cost=cost)


def test_refusals() -> None:
    model, data = network("elu", 0), samples(0, 4)
    with pytest.raises(ArgumentError, match="`gammas` must hold at least one number; got none"):
        certify(model, data, rho=0.1, gammas=[])
    with pytest.raises(ArgumentError, match="`rho` must be finite and not negative; got inf"):
        certify(model, data, rho=math.inf)


def test_a_regression_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Without a clip φ̄ is ∞ at small γ, which JSON does not know."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.ELU(), nn.Linear(8, 1))
    inputs = torch.randn(12, 2)
    found = certify(
        model, (inputs, inputs.sum(1)), rho=0.05, criterion=SquaredError(), local_radii=0, attack_steps=0
    )
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(as_json(found), allow_nan=False))
    for rho in (0.0, 0.05, 1.0):
        assert Certificate.load(path).bracket(rho) == found.bracket(rho)


def test_labels_and_prices_must_fit_the_network() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(6, 2)
    model = nn.Sequential(nn.Linear(2, 8), nn.ELU(), nn.Linear(8, 1))
    floats = certify(
        model, (inputs, torch.tensor([0.0, 1.0] * 3)), rho=0.01, criterion=Logistic(), local_radii=0
    )
    longs = certify(model, (inputs, torch.tensor([0, 1] * 3)), rho=0.01, criterion=Logistic(), local_radii=0)
    assert floats.bracket(0.01) == longs.bracket(0.01)
    with pytest.raises(LossError, match="labels from 0 to 1"):
        certify(model, (inputs, torch.tensor([0, 2] * 3)), rho=0.01, criterion=Logistic())
    three = nn.Sequential(nn.Linear(2, 8), nn.ELU(), nn.Linear(8, 3))
    with pytest.raises(ArgumentError, match="`label_cost` must have as many classes as"):
        certify(three, (inputs, torch.tensor([0, 1] * 3)), rho=0.01, label_cost=LabelCost(0.05, 5))


def test_a_method_for_the_population_needs_a_confidence() -> None:
    with pytest.raises(
        ArgumentError, match="`inequality` must be left out without `confidence`: it applies to pop"
    ):
        certify(nn.Linear(2, 3), (torch.zeros(4, 2), None), rho=0.1, inequality="hoeffding")
