"""Training and attacks on a device without float64: they run, and say what they say on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.accelerators.cpu import CPUAccelerator
from lightning_fabric.strategies.single_device import SingleDeviceStrategy
from pytorch_lightning import LightningModule
from torch import Tensor, nn
from torch.nn import functional

import certus
from certus import WRM, Box, ModelLoss, SquaredL2
from certus.attacks import (
    FGSM,
    PGD,
    evaluate,
    fair_epsilon,
    largest_penalty,
    minimum_norm_attack,
    typical_length,
    worst_of,
)
from certus.attacks.evaluation import paired_differences
from certus.costs import Cost, Mahalanobis, Masked, SquaredLp, SquaredSup, WeightedL2
from certus.data import Samples
from certus.inner import largest_curvature
from certus.inner.methods import MethodLike
from certus.models import certified_mlp
from certus.training.lightning_callback import RobustTraining
from tests.single_precision import DEVICE, DeviceTensor, SinglePrecisionDevice, on_device

DRAWN = torch.Generator().manual_seed(0)
INPUTS = torch.randn(24, 4, generator=DRAWN)
LABELS = (INPUTS[:, 0] > 0).long()
COUNTS = torch.rand(24, generator=DRAWN) + 0.5
WEIGHTS = torch.tensor([1.0, 2.0, 0.5, 4.0])
MATRIX = torch.diag(WEIGHTS) + 0.25


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(4, 6), nn.Softplus(), nn.Linear(6, 2))


def there(data: Samples) -> Samples:
    weights = None if data.weights is None else data.weights.to(DEVICE)
    return Samples(data.inputs.to(DEVICE), data.targets.to(DEVICE), weights)


def same(one: Any, other: Any) -> None:
    """Numbers and tensors agree, wherever they are."""
    if one is None or other is None:
        assert one is other
    elif isinstance(one, Tensor):
        torch.testing.assert_close(one.cpu(), other.cpu(), rtol=1e-5, atol=1e-6, check_dtype=False)
    else:
        assert one == pytest.approx(other, rel=1e-5, abs=1e-6)


class Anywhere(CPUAccelerator):
    def setup_device(self, device: torch.device) -> None:
        """Accept the device, which needs no preparation."""


def device_fabric() -> Fabric:
    accelerator = Anywhere()
    return Fabric(strategy=SingleDeviceStrategy(DEVICE, accelerator=accelerator))


def test_the_device_has_no_float64_and_does_not_mix() -> None:
    """What the other tests rest on."""
    with SinglePrecisionDevice():
        values = INPUTS.to(DEVICE)
        assert values.device == DEVICE
        assert torch.equal((2 * values).cpu(), 2 * INPUTS)
        assert values.cpu().double().dtype == torch.float64
        ways: tuple[Callable[[], Tensor], ...] = (
            lambda: values.double(),
            lambda: INPUTS.double().to(DEVICE),
            lambda: torch.zeros(2, dtype=torch.float64, device=DEVICE),
            lambda: torch.tensor([1.0], dtype=torch.float64, device=DEVICE),
            lambda: torch.as_tensor(values, dtype=torch.float64),
            lambda: values.to("cpu", torch.float64),
        )
        for way in ways:
            with pytest.raises(TypeError, match="no float64"):
                way()
        with pytest.raises(RuntimeError, match="mixed"):
            values + INPUTS


COSTS: dict[str, Cost] = {
    "l2": SquaredL2(),
    "weighted": WeightedL2(WEIGHTS),
    "matrix": Mahalanobis(MATRIX),
    "sup": SquaredSup(),
    "power": SquaredLp(1.5),
    "sum": SquaredLp(1.0),
    "masked": Masked(WeightedL2(WEIGHTS), torch.tensor([True, False, True, True])),
}
METHODS: dict[str, Callable[[], MethodLike | None]] = {
    "erm": lambda: None,
    "pgd": lambda: PGD(0.3, 2.0, steps=3),
    "wrm, gamma": lambda: WRM(2.0, domain=Box(-9, 9)),
    "wrm, rho": lambda: WRM(rho=0.05),
    "wrm, weighted": lambda: WRM(rho=0.05, cost=WeightedL2(WEIGHTS)),
    "wrm, labels": lambda: WRM(2.0, label_cost=certus.costs.LabelCost(0.5, 2)),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_fit(method: Callable[[], MethodLike | None]) -> None:
    """Weighted samples in float64, as tables have them, and a held-out share."""
    rows = Samples(INPUTS.double(), LABELS, COUNTS.double())
    data = certus.datasets.SplitDataset("rows", rows, rows[:9], rows, certus.domains.Unbounded(), 2)
    here = certus.fit(network(), data, method=method(), epochs=2, batch_size=8, progress=False)
    with SinglePrecisionDevice():
        model = on_device(network())
        found = certus.fit(
            model, data, method=method(), epochs=2, batch_size=8, progress=False, fabric=device_fabric()
        )
        for one, other in zip(found.model.parameters(), here.model.parameters(), strict=True):
            assert one.device == DEVICE
            same(one, other)
        for epoch, expected in zip(found.history, here.history, strict=True):
            for name, value in asdict(expected).items():
                if name != "seconds":
                    same(getattr(epoch, name), value)
        assert (found.robustness is None) == (here.robustness is None)
        if found.robustness is not None and here.robustness is not None:
            same(found.robustness.rho_hat, here.robustness.rho_hat)
            same(found.robustness.gamma, here.robustness.gamma)


def certifiable() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return certified_mlp(4, [6, 5], 2)


@pytest.mark.parametrize("make", [network, certifiable])
def test_certified_fit_and_certify(make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    # Tensors of a class of their own are refused; those of a real device are plain ones.
    monkeypatch.setattr("certus.bounds.export.PLAIN_TENSORS", (Tensor, nn.Parameter, DeviceTensor))

    def bounds(model: nn.Module, data: Samples, fabric: Fabric | None) -> tuple[float, float]:
        rows = (data.inputs, data.targets)
        found = certus.fit(
            model,
            rows,
            method=WRM(2.0),
            certified=certus.training.CertifiedTraining(),
            epochs=1,
            progress=False,
            fabric=fabric,
        )
        assert found.proof is not None
        return found.proof.curvature, certus.certify(model, rows, rho=0.01, gamma_rounds=0).bound(0.01)

    data = Samples(INPUTS[:8], LABELS[:8])
    expected = bounds(make(), data, None)
    with SinglePrecisionDevice():
        found = bounds(on_device(make()), there(data), device_fabric())
    same(found[0], expected[0])
    same(found[1], expected[1])


@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS.keys())
def test_wrm(cost: Cost) -> None:
    """A cost that was made on the CPU, and γ as a number, a tensor on the device, and from ρ."""
    tensors = (torch.full((24,), 2.0), torch.full((24,), 2.0))
    for gamma in (2.0, tensors):
        here, moved = gamma if isinstance(gamma, tuple) else (gamma, gamma)
        expected = WRM(here, cost=cost).solve(ModelLoss(network()), INPUTS, LABELS, curvature_bound=1.0)
        with SinglePrecisionDevice():
            moved = moved.to(DEVICE) if isinstance(moved, Tensor) else moved
            loss, data = ModelLoss(on_device(network())), there(Samples(INPUTS, LABELS))
            found = WRM(moved, cost=cost).solve(loss, data.inputs, data.targets, curvature_bound=1.0)
            assert found.inputs.device == DEVICE
            for name in ("inputs", "value", "transport_cost", "gradient_norm", "gap"):
                same(getattr(found, name), getattr(expected, name))
    one, other = WRM(rho=0.05, cost=cost), WRM(rho=0.05, cost=cost)
    one.perturb(ModelLoss(network()), INPUTS, LABELS, COUNTS)
    with SinglePrecisionDevice():
        other.perturb(
            ModelLoss(on_device(network())), INPUTS.to(DEVICE), LABELS.to(DEVICE), COUNTS.to(DEVICE)
        )
    same(one.gamma, other.gamma)


def test_costs_that_were_made_on_the_device() -> None:
    for make, values in ((WeightedL2, WEIGHTS), (Mahalanobis, MATRIX)):
        expected = WRM(2.0, cost=make(values)).solve(ModelLoss(network()), INPUTS, LABELS)
        with SinglePrecisionDevice():
            wrm, loss = WRM(2.0, cost=make(values.to(DEVICE))), ModelLoss(on_device(network()))
            found = wrm.solve(loss, INPUTS.to(DEVICE), LABELS.to(DEVICE))
            same(found.inputs, expected.inputs)
            same(found.gradient_norm, expected.gradient_norm)


def test_a_cost_of_the_users_is_tried() -> None:
    class Steep(SquaredL2):
        def gradient(self, moved: Tensor, origin: Tensor) -> Tensor:
            return 1.9 * (moved - origin)

    with SinglePrecisionDevice():
        loss = ModelLoss(on_device(network()))
        with pytest.raises(certus.errors.ClaimError, match="Steep is refuted"):
            WRM(2.0, cost=Steep())(loss, INPUTS.to(DEVICE), LABELS.to(DEVICE))


def test_attacks() -> None:
    def all_of(loss: ModelLoss, data: Samples) -> list[Any]:
        attacks: list[MethodLike] = [FGSM(0.2), PGD(0.5, 2.0, steps=4, restarts=2), WRM(1.0)]
        outcomes = [evaluate(loss.model, data, attack, batch_size=10) for attack in attacks]
        worst, first = worst_of(outcomes), outcomes[0]
        interval, difference = worst.loss, paired_differences(worst, first)
        regression = replace(first, errors=None)
        loss_difference = paired_differences(replace(worst, errors=None), regression)
        near = minimum_norm_attack(loss, data.inputs, data.targets, norm=2.0, steps=4, rounds=4)
        cost = WeightedL2(WEIGHTS)
        penalty = largest_penalty(loss, data.inputs, data.targets, cost=cost, rounds=4)
        curved = largest_curvature(loss, data.inputs, data.targets, cost=cost)
        return [
            *(outcome.losses for outcome in outcomes),
            *(outcome.l2 for outcome in outcomes),
            worst.sup,
            worst.rho_test,
            worst.error.value,  # type: ignore[union-attr]
            *(interval.low, interval.value, difference.low, loss_difference.low),
            *(near.distance, penalty.distance, penalty.gamma),
            *(curved.largest, curved.residual),
            fair_epsilon(WRM(1.0), loss, data, 1.0),
            typical_length(data, 2.0),
        ]

    data = Samples(INPUTS, LABELS)
    expected = all_of(ModelLoss(network()), data)
    with SinglePrecisionDevice():
        found = all_of(ModelLoss(on_device(network())), there(data))
        for one, other in zip(found, expected, strict=True):
            same(one, other)


def test_the_lightning_callback() -> None:
    class Net(LightningModule):
        def __init__(self, body: nn.Module) -> None:
            super().__init__()
            self.body, self.logged = body, dict[str, Any]()

        def forward(self, inputs: Tensor) -> Tensor:
            scores: Tensor = self.body(inputs)
            return scores

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return functional.cross_entropy(self(batch[0]), batch[1])

        def log_dict(self, dictionary: Any, *_: Any, **options: Any) -> None:
            self.logged.update(dictionary)

    for method in (lambda: WRM(2.0), lambda: WRM(rho=0.1, cost=Mahalanobis(MATRIX)), lambda: FGSM(0.1)):
        here = Net(network())
        RobustTraining(method()).on_train_start(None, here)
        expected = here.training_step((INPUTS, LABELS), 0).detach()
        with SinglePrecisionDevice():
            moved = Net(on_device(network()))
            RobustTraining(method()).on_train_start(None, moved)
            same(moved.training_step((INPUTS.to(DEVICE), LABELS.to(DEVICE)), 0).detach(), expected)
            assert moved.logged.keys() == here.logged.keys()
            for name, value in here.logged.items():
                same(moved.logged[name], value)


def test_a_float64_model_is_trained_on_the_cpu_of_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where MPS is the best that there is, and the model has numbers that MPS has not."""
    from lightning_fabric.accelerators.mps import MPSAccelerator

    monkeypatch.setattr(MPSAccelerator, "is_available", staticmethod(lambda: True))
    assert Fabric(devices=1).device.type == "mps"
    model = network().double()
    certus.fit(model, (INPUTS, LABELS), epochs=1, progress=False)
    assert {weight.device.type for weight in model.parameters()} == {"cpu"}
