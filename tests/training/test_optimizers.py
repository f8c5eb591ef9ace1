"""Projections of the weights, and decay by layer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import certus
from certus.errors import UnsupportedError
from certus.training import Projection, SpectralBall, WeightBall, WeightBox, decay_groups, early_and_late


def network(scale: float = 3.0) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ELU(), nn.Linear(6, 3)).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(scale)
    return model


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


@pytest.mark.parametrize("projection", [WeightBall(2.0), WeightBox(0.3), SpectralBall(0.8)], ids=str)
def test_projections_are_nearest_points(projection: Projection) -> None:
    """⟨θ − Πθ, η − Πθ⟩ ≤ 0 for every η of the set, and Π is idempotent."""
    model = network()
    before = flat(model)
    projection(model)
    after = flat(model)
    assert not torch.equal(before, after)
    for seed in range(20):
        torch.manual_seed(seed)
        other = network(scale=4 * torch.rand(()).item())
        with torch.no_grad():
            for weight in other.parameters():
                weight.add_(torch.randn_like(weight))
        projection(other)
        assert (before - after) @ (flat(other) - after) <= 1e-9
    projection(model)
    torch.testing.assert_close(flat(model), after)


def test_projections_leave_what_is_inside() -> None:
    for projection in (WeightBall(1e3), WeightBox(1e3), SpectralBall(1e3)):
        model = network()
        before = flat(model)
        projection(model)
        assert torch.equal(flat(model), before)


def test_spectral_norms_end_at_the_limit() -> None:
    model = network()
    SpectralBall(0.8)(model)
    for weight in model.parameters():
        if weight.dim() == 2:
            assert float(torch.linalg.matrix_norm(weight.detach(), 2)) <= 0.8 + 1e-12


def test_decay_shrinks_just_the_layers_named() -> None:
    """One step of SGD on a loss without slope: w ← (1 − lr·decay)·w."""
    model = network()
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = torch.optim.SGD(decay_groups(model, early_and_late(model, 0.5, 0.1)), lr=0.2)
    sum((0 * weight).sum() for weight in model.parameters()).backward()  # type: ignore[union-attr]
    optimizer.step()
    factors = {"0.weight": 0.9, "0.bias": 1.0, "2.weight": 0.98, "2.bias": 1.0}
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.detach(), factors[name] * before[name])


def test_the_most_specific_layer_decides() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), nn.Linear(2, 2))
    groups = decay_groups(model, {"0": 0.1, "0.1": 0.7})
    amounts = {id(weight): group["weight_decay"] for group in groups for weight in group["params"]}
    found = [amounts[id(weight)] for name, weight in model.named_parameters() if "weight" in name]
    assert found == [0.1, 0.7, 0.0]
    assert sum(len(group["params"]) for group in groups) == 6


def test_refused() -> None:
    for work, message in (
        (lambda: WeightBall(0.0), "`radius` must be positive and finite; got 0.0"),
        (lambda: WeightBox(-1.0), "`limit` must be positive and finite; got -1.0"),
        (lambda: SpectralBall(float("nan")), "`limit` must be positive and finite; got nan"),
        (lambda: decay_groups(network(), -0.1), "must be finite and not negative; got -0.1"),
        (lambda: decay_groups(network(), {"7": 0.1}), "must name layers of the model"),
    ):
        with pytest.raises(certus.errors.ArgumentError, match=message):
            work()
    with pytest.raises(certus.errors.UnsupportedError, match=r"`0\.weight` has shape"):
        SpectralBall(1.0)(nn.Sequential(nn.Conv2d(1, 1, 3)))


def test_a_layer_is_not_another_whose_name_begins_alike() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(12)))
    decayed = [group["params"] for group in decay_groups(model, {"1": 0.5}) if group["weight_decay"] == 0.5]
    (parameters,) = decayed
    assert [id(parameter) for parameter in parameters] == [id(model[1].weight)]


def test_spectral_balls_refuse_every_convolution() -> None:
    for layer in (nn.Conv1d(2, 3, 2), nn.Conv2d(2, 3, 2)):
        with pytest.raises(UnsupportedError, match="weight matrices only"):
            SpectralBall(1.0)(layer)
