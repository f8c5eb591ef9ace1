"""Algorithm 1: the loop equals one written by hand, is deterministic, and reports what it measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

import certus
from certus import WRM, CrossEntropy, ModelLoss
from certus.data import Samples
from certus.datasets import digits, rings
from certus.inner.methods import ERM, Method
from certus.losses import SquaredError
from certus.training import Robustness, RobustnessStatus, WeightBall, calibration, fit
from certus.training._fit import DivergedError
from certus.training.loaders import make_loader
from certus.training.metrics import clean_metrics


def small(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ELU(), nn.Linear(16, 10))


DATA = digits()


@pytest.mark.parametrize("method", [ERM(), WRM(1.0, domain=DATA.domain)], ids=["erm", "wrm"])
def test_the_loop_equals_one_by_hand(method: Method) -> None:
    """θ ← Proj(θ − α ∇ℓ(θ; ẑ)) with plain torch, on the same batches."""
    train, ball = DATA.train[:200], WeightBall(3.0)
    ours = small()
    fit(
        ours,
        train,
        method=method,
        epochs=2,
        batch_size=64,
        seed=5,
        projection=ball,
        optimizer=lambda groups: torch.optim.SGD(groups, lr=0.3),
    )
    theirs = small()
    loss = ModelLoss(theirs)
    for epoch in range(2):
        for _, batch, _ in make_loader(train, theirs, 64, seed=5).epoch(epoch):
            moved = method(loss, batch.inputs, batch.targets)
            theirs.train()
            value = nn.functional.cross_entropy(theirs(moved), batch.targets)
            theirs.zero_grad()
            value.backward()
            with torch.no_grad():
                for weight in theirs.parameters():
                    assert weight.grad is not None
                    weight.sub_(0.3 * weight.grad)
                length = math.sqrt(sum(float((weight**2).sum()) for weight in theirs.parameters()))
                if length > 3.0:
                    for weight in theirs.parameters():
                        weight.mul_(3.0 / length)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_every_sample_once_per_epoch_for_any_number_of_processes() -> None:
    numbers = Samples(torch.arange(100.0).unsqueeze(1), torch.zeros(100, dtype=torch.long))

    def batches(epoch: int, size: int, rank: int = 0, processes: int = 1) -> list[Tensor]:
        loader = make_loader(numbers, nn.Linear(1, 2), size, 7, rank=rank, processes=processes)
        with torch.random.fork_rng():
            return [batch.inputs.flatten() for _, batch, _ in loader.epoch(epoch)]

    for processes in (1, 3):
        shares = [batches(2, 16, rank, processes) for rank in range(processes)]
        seen = torch.cat([batch for share in shares for batch in share])
        assert seen.sort().values.tolist() == list(range(100))
        for step, batch in enumerate(batches(2, 16)):
            parts = torch.cat([share[step] for share in shares])
            assert torch.equal(parts.sort().values, batch.sort().values)
    assert not torch.equal(batches(0, 100)[0], batches(1, 100)[0])


def test_the_same_call_gives_the_same_weights() -> None:
    """Dropout included; and the caller's random numbers are not touched."""

    def train_once() -> dict[str, Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Dropout(0.3), nn.ELU(), nn.Linear(8, 10))
        fit(model, DATA.train[:150], method=WRM(rho=0.1), epochs=2, batch_size=50)
        return model.state_dict()

    one = train_once()
    before = torch.get_rng_state()
    two = train_once()
    torch.manual_seed(0)
    assert all(torch.equal(one[name], two[name]) for name in one)
    torch.set_rng_state(before)
    fit(small(), DATA.train[:50], epochs=1)
    torch.manual_seed(0)
    small()


def test_measurements() -> None:
    done = fit(small(), DATA, method=WRM(2.0, domain=DATA.domain), epochs=3, batch_size=256)
    assert [entry.epoch for entry in done.history] == [1, 2, 3]
    for entry in done.history:
        assert entry.phi is not None
        assert entry.rho_running is not None
        assert entry.phi == pytest.approx(entry.loss - 2.0 * entry.rho_running, abs=1e-4)
        assert entry.converged == 1.0
        assert entry.gamma == 2.0
        assert entry.gradients is not None
        assert 1 <= entry.gradients <= 16
    clean = clean_metrics(ModelLoss(done.model), DATA.calibration)
    assert done.history[-1].calibration_accuracy == clean["accuracy"]
    outputs = done.model(DATA.calibration.inputs)
    right = (outputs.argmax(1) == DATA.calibration.targets).double().mean()
    assert clean["accuracy"] == pytest.approx(float(right))
    losses = [entry.calibration_loss for entry in done.history if entry.calibration_loss is not None]
    assert all(after < before for before, after in pairwise(losses))
    # ρ̂ is one pass at the final weights, not the running mean.
    assert done.robustness is not None
    found = WRM(2.0, domain=DATA.domain).solve(ModelLoss(done.model), DATA.train.inputs, DATA.train.targets)
    assert done.robustness.rho_hat == pytest.approx(float(found.transport_cost.mean()), rel=1e-4)
    assert done.robustness.status is RobustnessStatus.FIXED
    assert not done.model.training


def test_erm_measures_no_inner_problem() -> None:
    done = fit(small(), DATA.train[:100], epochs=1)
    entry = done.history[0]
    assert (entry.phi, entry.rho_running, entry.gradients, entry.gamma) == (None, None, None, None)
    assert entry.calibration_loss is None
    assert done.robustness is None


@pytest.mark.parametrize("rho", [0.02, 0.2])
def test_a_wanted_level_is_reached(rho: float) -> None:
    done = fit(small(), DATA, method=WRM(rho=rho, domain=DATA.domain), epochs=2, batch_size=128)
    assert done.robustness is not None
    assert done.robustness.status is RobustnessStatus.REACHED
    assert abs(done.robustness.rho_hat - rho) <= 0.05 * rho
    wrm = WRM(done.robustness.gamma, domain=DATA.domain)
    found = wrm.solve(ModelLoss(done.model), DATA.train.inputs, DATA.train.targets)
    assert float(found.transport_cost.mean()) == pytest.approx(rho, rel=0.06)


def test_a_floor_is_reported() -> None:
    method = WRM(rho=1e4, domain=DATA.domain, gamma_min=0.05)
    done = fit(small(), DATA.train[:100], method=method, epochs=1, batch_size=50)
    assert done.robustness is not None
    assert done.robustness.status is RobustnessStatus.FLOOR
    assert done.robustness.gamma == 0.05


def test_regression() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(200, 3, generator=generator)
    data = Samples(inputs, inputs @ torch.tensor([1.0, -2.0, 0.5]))
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    done = fit(
        model, data, method=WRM(20.0), epochs=60, optimizer=lambda groups: torch.optim.Adam(groups, lr=0.05)
    )
    assert done.history[-1].accuracy is None
    assert clean_metrics(ModelLoss(model, SquaredError()), data)["loss"] < 0.05


def test_schedules_step_once_per_epoch() -> None:
    rates: list[float] = []

    class Watch(certus.training.Callback):
        def on_epoch_end(self, state: certus.training.TrainingState) -> None:
            rates.append(state.optimizer.param_groups[0]["lr"])

    fit(
        small(),
        DATA.train[:50],
        epochs=3,
        scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1),
        callbacks=[Watch()],
    )
    assert rates == pytest.approx([1e-4, 1e-5, 1e-6])


def test_optimizers_and_schedulers_as_objects() -> None:
    """They train as the functions that make them do; a scheduler of another optimizer is refused."""
    by_object, by_function = small(), small()
    optimizer = torch.optim.SGD(by_object.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    fit(by_object, DATA.train[:50], epochs=3, optimizer=optimizer, scheduler=scheduler)
    fit(
        by_function,
        DATA.train[:50],
        epochs=3,
        optimizer=lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1),
    )
    for ours, theirs in zip(by_object.parameters(), by_function.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(certus.errors.ArgumentError, match="`scheduler` must be a scheduler of `optimizer`"):
        fit(small(), DATA.train[:50], scheduler=scheduler)


def test_labels_that_move_are_trained_on() -> None:
    """The mean loss at the moved samples is φ + γρ only with the labels that moved with them."""
    train = DATA.train[:100]
    precise = certus.inner.BarzilaiBorwein(tolerance=1e-6, max_gradients=100)
    method = WRM(0.5, label_cost=certus.costs.LabelCost(0.01, 10), maximizer=precise)
    entry = fit(small(), train, method=method, epochs=1, batch_size=100).history[0]
    assert entry.phi is not None
    assert entry.rho_running is not None
    assert entry.loss == pytest.approx(entry.phi + 0.5 * entry.rho_running, rel=1e-4)


@pytest.mark.parametrize("shape", ["power", "threshold", "logistic"])
@pytest.mark.parametrize("start", [-1.5, 0.3, 1.5])
def test_a_level_is_found_on_any_falling_curve(shape: str, start: float) -> None:
    """ρ̂ as a function of γ: the search must come within 5%, or call a jump a jump."""
    curves: dict[str, Callable[[float], float]] = {
        "power": lambda gamma: gamma**-2.0,
        "threshold": lambda gamma: (gamma - 1) ** -2.0 if gamma > 1 else 1e6,
        "logistic": lambda gamma: 5 / (1 + math.exp(8 * math.log(gamma))),
    }
    for target in (1.02, 1.3, 3.0):
        rho = curves[shape](target)
        method = WRM(rho=rho)
        method.load_state_dict({"gamma": target * math.exp(start)})

        def measure(used: WRM, *rest: object) -> Robustness:
            assert isinstance(used.gamma, float)
            return Robustness(used.gamma, curves[shape](used.gamma), 0.0, 0.0, RobustnessStatus.FIXED)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(calibration, "measure_robustness", measure)
            level = calibration.calibrate(method, ModelLoss(small()), DATA.train, 1, Fabric(devices=1))
        assert level.status is RobustnessStatus.REACHED
        assert abs(level.rho_hat - rho) <= 0.05 * rho


def test_a_jump_is_called_a_jump() -> None:
    method = WRM(rho=1.0)
    method.load_state_dict({"gamma": 3.0})

    def measure(used: WRM, *rest: object) -> Robustness:
        assert isinstance(used.gamma, float)
        return Robustness(used.gamma, 10.0 if used.gamma < 2 else 0.1, 0.0, 0.0, RobustnessStatus.FIXED)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "measure_robustness", measure)
        level = calibration.calibrate(method, ModelLoss(small()), DATA.train, 1, Fabric(devices=1))
    assert level.status is RobustnessStatus.MISSED


def test_refused() -> None:
    with pytest.raises(certus.errors.ArgumentError, match="`epochs` must be a whole number, at least 1"):
        fit(small(), DATA, epochs=0)
    with pytest.raises(certus.errors.ArgumentError, match="`batch_size` must be a whole number, at least 1"):
        fit(small(), DATA, batch_size=0)
    with pytest.raises(certus.errors.ArgumentError, match="hold at least one sample"):
        fit(small(), DATA.train[:0])
    with pytest.raises(certus.errors.ArgumentError, match="give each of the 4 processes a share"):
        make_loader(DATA.train[:10], small(), 4, 0, processes=4)
    with pytest.raises(
        certus.errors.ArgumentError, match=r"int64 labels or floating-point numbers; got torch\.int32"
    ):
        fit(small(), Samples(DATA.train.inputs, DATA.train.targets.int()))
    with pytest.raises(
        certus.errors.ArgumentError, match="`gamma` must be one number to train with; got a tensor"
    ):
        fit(small(), DATA.train[:50], method=WRM(torch.ones(50)))
    normed = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10))
    with pytest.raises(certus.errors.ArgumentError, match="must not leave a batch of one sample to `2`"):
        fit(normed, DATA.train[:51], batch_size=10)
    with pytest.raises(certus.errors.UnsupportedError, match="ReduceLROnPlateau needs a metric"):
        fit(small(), DATA.train[:50], scheduler=lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o))
    with pytest.raises(DivergedError, match="The loss is not finite after epoch 1"):
        fit(small(), DATA, batch_size=2000, optimizer=lambda groups: torch.optim.SGD(groups, lr=1e37))
    with pytest.raises(DivergedError, match="not finite in epoch 1, step 2"):
        fit(
            small(), DATA.train[:90], batch_size=30, optimizer=lambda groups: torch.optim.SGD(groups, lr=1e30)
        )


def test_the_papers_toy_problem_trains() -> None:
    """WRM on the rings reaches a usable classifier whose worst case is milder than ERM's at the same γ."""
    data = rings(train=1500, calibration=100, test=500)
    worst = {}
    methods: dict[str, Method] = {"erm": ERM(), "wrm": WRM(2.0)}
    for name, method in methods.items():
        torch.manual_seed(1)
        model = certus.models.toy_mlp()
        fit(
            model,
            data,
            method=method,
            epochs=12,
            optimizer=lambda groups: torch.optim.Adam(groups, lr=0.02),
        )
        loss = ModelLoss(model, CrossEntropy())
        with torch.no_grad():
            worst[name] = float(
                certus.inner.robust_surrogate(loss, data.test.inputs, data.test.targets, gamma=2.0).mean()
            )
        assert clean_metrics(loss, data.test)["accuracy"] > 0.9
    assert worst["wrm"] < worst["erm"]
