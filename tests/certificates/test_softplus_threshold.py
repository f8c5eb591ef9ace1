"""Softplus as torch computes it: the argument itself above a threshold, with a small jump there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import certus


class _Functional(nn.Module):
    """The same network with its softplus as a function."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.first, softplus, self.last = layers
        assert isinstance(softplus, nn.Softplus)
        self.beta = softplus.beta

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(functional.softplus(self.first(inputs), beta=self.beta))
        return outputs


def _steep(beta: float, sign: float, scale: float) -> nn.Sequential:
    """Outputs 0 and ± scale·(softplus(x) − 20/b): the jump at 20/b counts scale·2·10⁻⁹/b."""
    network = nn.Sequential(nn.Linear(1, 1), nn.Softplus(beta), nn.Linear(1, 2)).double()
    with torch.no_grad():
        network.get_parameter("0.weight").fill_(1.0)
        network.get_parameter("0.bias").zero_()
        network.get_parameter("2.weight").copy_(torch.tensor([[0.0], [sign * scale]]))
        network.get_parameter("2.bias").copy_(torch.tensor([0.0, -sign * scale * 20 / beta]))
    return network


@pytest.mark.quick_share(5)
@pytest.mark.parametrize("form", [lambda network: network, _Functional])
@pytest.mark.parametrize("beta", [1.0, 1e-3, 7.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("scale", [1e8, 1e9])
def test_both_sides_hold_for_the_model_itself_at_the_jump(
    form: Callable[[nn.Sequential], nn.Module], beta: float, sign: float, scale: float
) -> None:
    """The model itself, on a grid of points around the threshold, is the oracle."""
    model = form(_steep(beta, sign, scale * beta))
    around = torch.linspace(-3e-12, 3e-12, 5, dtype=torch.float64)[:, None] / beta
    inputs, labels = 20 / beta + around, torch.zeros(5, dtype=torch.long)
    rho = (1e-12 / beta) ** 2
    certificate = certus.certify(model, (inputs, labels), rho=rho, progress=False)

    def losses(points: Tensor) -> Tensor:
        with torch.no_grad():
            return functional.cross_entropy(
                model(points), torch.zeros(len(points), dtype=torch.long), reduction="none"
            )

    moves = torch.linspace(-(rho**0.5), rho**0.5, 401, dtype=torch.float64)
    worst = torch.stack([losses(point + moves[:, None]).max() for point in inputs]).mean()
    assert certificate.bound(rho) >= worst
    found, weights = certificate.worst_case_data(rho)
    assert certificate.lower(rho) <= (losses(found.inputs) * weights).sum()
    assert certificate.clean_loss[0] <= losses(inputs).mean() <= certificate.clean_loss[1]
    assert certificate.proven_error_cost is not None
    for point, floor in zip(inputs, certificate.proven_error_cost, strict=True):
        near = point + moves[moves.abs() < floor**0.5][:, None]
        assert not (model(near).argmax(1) != 0).any()


def test_a_low_threshold_is_refused() -> None:
    with pytest.raises(certus.CertusError, match="threshold"):
        certus.bounds.input_smoothness(nn.Sequential(nn.Linear(2, 2), nn.Softplus(threshold=5)))


def test_an_ordinary_softplus_loses_nothing_that_is_seen() -> None:
    """The allowance is of the size of the jump: with weights of size 1 it is lost in the eighth digit."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Softplus(), nn.Linear(8, 3)).double()
    inputs, labels = torch.randn(20, 2, dtype=torch.float64), torch.randint(3, (20,))
    low, high = certus.certify(model, (inputs, labels), rho=0.01, progress=False).clean_loss
    exact = float(functional.cross_entropy(model(inputs).detach(), labels))
    assert low <= exact <= high
    assert high - low < 1e-7
