"""Other libraries' attacks as methods, and models that come out of any attack as they went in."""

from __future__ import annotations

import sys
from collections.abc import Callable

import foolbox
import pytest
import torch
import torchattacks
from torch import Tensor, nn

import certus
from certus import WRM, Box, CrossEntropy, ModelLoss
from certus.attacks import (
    BIM,
    FGSM,
    PGD,
    Foolbox,
    Torchattacks,
    evaluate,
    largest_penalty,
    minimum_norm_attack,
)
from certus.data import Samples
from certus.errors import ArgumentError, UnsupportedError
from certus.inner.methods import Method
from certus.losses import SquaredError
from tests.attacks.models import convolutional, fragile, images
from tests.inner.test_untouched import assert_same, snapshot

INPUTS, LABELS = images()
BY_FOOLBOX = Foolbox(foolbox.attacks.LinfPGD(steps=5, random_start=False), 0.1, (0, 1))
BY_TORCHATTACKS = Torchattacks(lambda model: torchattacks.BIM(model, eps=0.1, alpha=0.1 / 30, steps=5))
METHODS: dict[str, Method] = {
    "fgsm": FGSM(0.1, 2.0),
    "bim": BIM(0.1, 1.0),
    "pgd": PGD(0.1, restarts=2, domain=Box(0, 1)),
    "wrm": WRM(1.0),
    "foolbox": BY_FOOLBOX,
    "foolbox minimising": Foolbox(foolbox.attacks.L2DeepFoolAttack(steps=3), None, (0, 1)),
    "torchattacks": BY_TORCHATTACKS,
    "torchattacks with an optimizer": Torchattacks(lambda model: torchattacks.CW(model, steps=3)),
}
Work = Callable[[ModelLoss], object]
WORKS: dict[str, Work] = {
    **{
        name: (lambda loss, attack=attack: attack(loss, INPUTS, LABELS))  # type: ignore[misc]
        for name, attack in METHODS.items()
    },
    "evaluation": lambda loss: evaluate(loss.model, Samples(INPUTS, LABELS), PGD(0.1)),
    "nearest": lambda loss: minimum_norm_attack(loss, INPUTS, LABELS, rounds=2),
    "penalty": lambda loss: largest_penalty(loss, INPUTS, LABELS, rounds=2),
}


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS.keys())
def test_models_come_out_as_they_went_in(work: Work) -> None:
    """BatchNorm's statistics, dropout, mixed modes, frozen weights, gradients of an earlier step."""
    model = fragile()
    before = snapshot(model)
    work(ModelLoss(model))
    assert_same(before, snapshot(model))


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS.keys())
def test_also_when_something_raises(work: Work) -> None:
    model = fragile()
    before = snapshot(model)
    calls = 0

    def broken(module: nn.Module, inputs: object) -> None:
        nonlocal calls
        calls += 1
        if calls == (1 if work is WORKS["fgsm"] else 2):
            raise RuntimeError("the model broke")

    hook = model[5].register_forward_pre_hook(broken)
    with pytest.raises(RuntimeError, match="the model broke"):
        work(ModelLoss(model))
    hook.remove()
    assert_same(before, snapshot(model))


def test_batch_statistics_play_no_part() -> None:
    """One sample alone moves as it does among others, which batch statistics or dropout would prevent."""
    loss = ModelLoss(fragile())
    for name in ("fgsm", "bim", "foolbox", "torchattacks"):
        together = METHODS[name](loss, INPUTS, LABELS)
        alone = [METHODS[name](loss, INPUTS[i : i + 1], LABELS[i : i + 1]) for i in range(len(INPUTS))]
        torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    ("attack", "step"),
    [(BY_FOOLBOX, 0.1 * 0.01 / 0.3), (BY_TORCHATTACKS, 0.1 / 30)],
    ids=["foolbox", "torchattacks"],
)
def test_they_do_what_ours_do(attack: Method, step: float, context: type[torch.no_grad]) -> None:
    loss = ModelLoss(convolutional())
    expected = BIM(0.1, steps=5, step_size=step, domain=Box(0, 1))(loss, INPUTS, LABELS)
    with context():
        found = attack(loss, INPUTS.clone(), LABELS.clone())
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert not found.requires_grad


@pytest.mark.parametrize("attack", [BY_FOOLBOX, BY_TORCHATTACKS], ids=["foolbox", "torchattacks"])
def test_they_train_as_ours_do(attack: Method) -> None:
    """A backward pass inside the library must not leak into the step: both trainings end alike."""
    data = Samples(INPUTS, LABELS)

    def train(method: Method) -> Tensor:
        model = convolutional()
        certus.fit(
            model, data, method=method, epochs=3, optimizer=lambda groups: torch.optim.SGD(groups, lr=0.1)
        )
        return model.get_parameter("5.weight").detach()

    torch.testing.assert_close(train(attack), train(BIM(0.1, steps=5, step_size=0.1 / 30, domain=Box(0, 1))))


@pytest.mark.parametrize("name", ["foolbox", "torchattacks"])
def test_missing_libraries(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    message = {
        "foolbox": r"foolbox is not installed: pip install 'certus\[attacks\]'",
        "torchattacks": "torchattacks is not installed: pip install --no-deps torchattacks",
    }[name]
    with pytest.raises(UnsupportedError, match=message):
        METHODS[name](ModelLoss(convolutional()), INPUTS, LABELS)


LOSS = ModelLoss(convolutional(), CrossEntropy())
BAD = {
    "bounds": (lambda: Foolbox(print, 0.1, (1, 0)), r"`bounds` must be two finite numbers in order"),
    "epsilon": (lambda: Foolbox(print, -0.1, (0, 1)), "`epsilon` must be finite and not negative, or None"),
    "attack": (lambda: Foolbox(3, 0.1, (0, 1)), "`attack` must be a foolbox attack"),
    "make": (lambda: Torchattacks(3), "`make` must be a function from a model"),  # type: ignore[arg-type]
    "several epsilons": (
        lambda: Foolbox(print, [0.1, 0.2], (0, 1)),  # type: ignore[arg-type]  # what is refused
        "`epsilon` must be finite and not negative, or None",
    ),
    "made": (
        lambda: Torchattacks(torchattacks.PGD(LOSS.model)),
        "`make` must be a function from a model to an attack, such as",
    ),
    "made of nothing": (
        lambda: Torchattacks(lambda model: 3)(LOSS, INPUTS, LABELS),
        "`make` must return an attack; got <class 'int'>",
    ),
    "empty": (lambda: BY_FOOLBOX(LOSS, INPUTS[:0], LABELS[:0]), "`inputs` must not be empty"),
    "loss": (lambda: BY_FOOLBOX(lambda x: x.sum(1), INPUTS), "`loss` must be a ModelLoss"),
    "range": (
        lambda: BY_FOOLBOX(LOSS, INPUTS + 1, LABELS),
        "`inputs` must lie between 0 and 1 for this attack; got values from 1",
    ),
    "range of torchattacks": (
        lambda: BY_TORCHATTACKS(LOSS, INPUTS - 1, LABELS),
        "`inputs` must lie between 0 and 1 for this attack; got values from -",
    ),
    "regression": (
        lambda: BY_FOOLBOX(ModelLoss(LOSS.model, SquaredError()), INPUTS, torch.zeros(len(INPUTS), 3)),
        "`targets` must be int64 labels for other libraries' attacks; got torch.float32",
    ),
    "no targets": (lambda: BY_TORCHATTACKS(LOSS, INPUTS), "`targets` must be int64 labels .* got None"),
    "shape": (
        lambda: Torchattacks(lambda model: lambda inputs, labels: inputs[:1])(LOSS, INPUTS, LABELS),
        r"`attack` must return inputs of shape \(12, 1, 8, 8\); got \(1, 1, 8, 8\)",
    ),
}


@pytest.mark.parametrize(("work", "message"), BAD.values(), ids=BAD.keys())
def test_refused(work: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        work()  # type: ignore[operator]
