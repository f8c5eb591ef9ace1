"""Reading a model changes nothing in it, and what is evaluated is what was read."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import certus
from certus._eval_mode import eval_mode
from certus.bounds import Analysis
from certus.kernel.operators import Affine


def normed(seed: int = 0) -> nn.Sequential:
    """In train mode, with a power iteration that has not converged: each look at the weights changes them."""
    torch.manual_seed(seed)
    first = spectral_norm(nn.Linear(6, 30), n_power_iterations=1)
    last = nn.Linear(30, 3)
    last.weight.data *= 20
    return nn.Sequential(first, nn.BatchNorm1d(30), nn.Tanh(), nn.Dropout(0.5), last).double().train()


def same(model: nn.Module, other: nn.Module) -> bool:
    one, two = model.state_dict(), other.state_dict()
    modes = [a.training == b.training for a, b in zip(model.modules(), other.modules(), strict=True)]
    return all(modes) and one.keys() == two.keys() and all(bool((one[k] == two[k]).all()) for k in one)


INPUTS, TARGETS = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(10, 6), torch.arange(10) % 3

READERS: dict[str, Callable[[nn.Module], object]] = {
    "input_smoothness": lambda model: certus.input_smoothness(model),
    "local_smoothness": lambda model: certus.bounds.local_smoothness(model, INPUTS, TARGETS, 0.1),
    "Analysis": lambda model: Analysis(model, input_shape=(6,)),
    "validate": lambda model: certus.bounds.validate(model),
    "certify": lambda model: certus.certify(
        model, (INPUTS, TARGETS), rho=0.01, local_radii=0, gamma_rounds=0
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_nothing_is_changed(name: str) -> None:
    model = normed()
    before = copy.deepcopy(model)
    READERS[name](model)
    assert same(model, before)


@pytest.mark.parametrize("name", ["input_smoothness", "validate"])
def test_modes_come_back_when_reading_fails(name: str) -> None:
    model = nn.Sequential(spectral_norm(nn.Linear(6, 3)), nn.Softmax(1)).double().train()
    before = copy.deepcopy(model)
    if name == "validate":
        certus.bounds.validate(model)
    else:
        with pytest.raises(certus.errors.UnsupportedError, match="Softmax"):
            certus.input_smoothness(model)
    assert same(model, before)


def test_bounds_and_network_have_the_same_weights() -> None:
    """Read twice in train mode, bounds and network belonged to different weights: 9.523 above 9.499."""
    model = normed(1)
    frozen = copy.deepcopy(model).eval()
    first = Analysis(model, input_shape=(6,)).graph.nodes[1].primitive
    assert isinstance(first, Affine)
    torch.testing.assert_close(
        first.transpose(torch.eye(30).double()), dense_rows(frozen), rtol=1e-12, atol=0
    )
    found = certus.certify(model, (INPUTS, TARGETS), rho=[0.0, 0.01, 0.1])
    losses = certus.CrossEntropy()(frozen(INPUTS), TARGETS)
    assert found.lower(0.0) <= float(losses.detach().mean()) <= found.bound(0.0)
    for rho in found.rhos:
        assert found.lower(rho) <= found.bound(rho)


def dense_rows(model: nn.Sequential) -> Tensor:
    """Jacobian of the layers in front of the activation, in eval mode, (30, 6)."""
    front = model[:2]
    zero = torch.zeros(1, 6, dtype=torch.float64)
    with torch.no_grad():
        images: Tensor = front(torch.eye(6, dtype=torch.float64)) - front(zero)
    return images.T


def test_one_reading_serves_all(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[nn.Module] = []
    right = Analysis.__init__

    def counting(self: Analysis, model: nn.Module, *args: object, **options: object) -> None:
        made.append(model)
        right(self, model, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Analysis, "__init__", counting)
    certus.certify(normed(), (INPUTS, TARGETS), rho=0.01, local_radii=2)
    assert len(made) == 1


class Jitter(nn.Module):
    """A parametrization that is another one at every look, whatever the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def forward(self, weight: Tensor) -> Tensor:
        self.looks += 1
        return weight * (1 + self.looks)


def test_each_weight_is_computed_once() -> None:
    layer = nn.Linear(2, 2).double()
    parametrize.register_parametrization(layer, "weight", Jitter())
    model = nn.Sequential(layer)
    with eval_mode(model), torch.no_grad():
        assert bool((layer.weight == layer.weight).all())
        torch.testing.assert_close(model(torch.eye(2).double()) - layer.bias, layer.weight.T)
    analysis = Analysis(model, input_shape=(2,))  # agrees with itself
    assert analysis.smoothness.head is not None


def test_weight_norm_in_train_mode_is_read_as_it_is() -> None:
    torch.manual_seed(0)
    layer = weight_norm(nn.Linear(4, 3)).double().train()
    bound = certus.input_smoothness(nn.Sequential(layer))
    rows = layer.weight.detach()
    widest = max(float((a - b).norm()) for a in rows for b in rows)
    assert bound.curvature == pytest.approx(widest**2 / 4, rel=1e-6)
