"""Arguments that ``fit``, ``WRM`` and ``evaluate`` cannot use: errors name the argument and its rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import nn

import certus
from certus import WRM, ModelLoss
from certus.attacks import FGSM, evaluate
from certus.data import Samples
from certus.inner.methods import ERM

INPUTS = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
LABELS = (INPUTS[:, 0] > 0).long()
WIDE = torch.randn(12, 7, generator=torch.Generator().manual_seed(1))
CPU = Fabric(accelerator="cpu", devices=1)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


def fit(**options: Any) -> certus.training.Fit:
    given = {"model": network(), "data": (INPUTS, LABELS), "epochs": 1, "progress": False, "fabric": CPU}
    return certus.fit(**{**given, **options})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": None}, "`model` must be a torch.nn.Module; got .*NoneType"),
        ({"model": nn.Linear}, "`model` must be a torch.nn.Module"),
        ({"data": None}, "`data` must be Samples"),
        ({"epochs": 1.5}, "`epochs` must be a whole number, at least 1; got 1.5"),
        ({"epochs": "3"}, "`epochs` must be a whole number"),
        ({"epochs": True}, "`epochs` must be a whole number"),
        ({"epochs": 0}, "`epochs` must be a whole number, at least 1; got 0"),
        ({"batch_size": 2.5}, "`batch_size` must be a whole number"),
        ({"batch_size": "x"}, "`batch_size` must be a whole number"),
        ({"seed": 1.5}, "`seed` must be a whole number"),
        ({"seed": None}, "`seed` must be a whole number"),
        ({"criterion": "x"}, "`criterion` must be a criterion.*CrossEntropy.*; got 'x'"),
        ({"criterion": nn.CrossEntropyLoss}, "`criterion` must be a criterion"),
        ({"criterion": lambda outputs, targets: outputs.mean()}, "one number per sample"),
        ({"data": (WIDE, LABELS)}, r"`inputs` must have a shape that the model takes.*\(batch, 7\)"),
        ({"data": (WIDE, LABELS), "method": WRM(1.0)}, r"`inputs` must have a shape.*\(batch, 7\)"),
        ({"data": (INPUTS[:, 0], LABELS)}, "`inputs` must have a shape that the model takes"),
        ({"data": (INPUTS * torch.nan, LABELS)}, "`inputs` must be finite; got NaN"),
        ({"scheduler": "cosine"}, "`scheduler` must be a scheduler, or make one"),
        ({"scheduler": lambda optimizer: None}, "`scheduler` must make a scheduler"),
        ({"projection": "ball"}, "`projection` must be a function of the model"),
        ({"augment": 3}, "`augment` must be a function of the inputs"),
        ({"weight_decay": "x"}, "`weight_decay` must be a number; got 'x'"),
        ({"weight_decay": {"0": None}}, "`weight_decay` must be a number"),
        ({"certified": True}, "`certified` must be a certus.training.CertifiedTraining, or None; got True"),
        ({"fabric": "cpu"}, "`fabric` must be a lightning_fabric.Fabric"),
        ({"callbacks": ["bar"]}, "`callbacks` must be a list"),
        ({"method": lambda loss, inputs, targets: None}, "must return moved inputs of shape"),
    ],
)
def test_fit(options: dict[str, Any], words: str) -> None:
    with pytest.raises(certus.CertusError, match=words):
        fit(**options)


def test_fit_takes_whole_numbers_of_numpy() -> None:
    assert len(fit(epochs=np.int64(2), batch_size=np.int64(5), seed=np.int64(3)).history) == 2


@pytest.mark.parametrize("criterion", ["x", 3, nn.CrossEntropyLoss])
def test_a_criterion_that_is_none(criterion: Any) -> None:
    with pytest.raises(certus.errors.ArgumentError, match="`criterion` must be a criterion"):
        ModelLoss(network(), criterion)


@pytest.mark.parametrize("options", [{"gamma": True}, {"gamma": "x"}, {"rho": True}, {"rho": "x"}])
def test_wrm(options: dict[str, Any]) -> None:
    with pytest.raises(certus.errors.ArgumentError, match=f"`{next(iter(options))}` must be"):
        WRM(**options)


@pytest.mark.parametrize("attack", [WRM(1.0), FGSM(0.1)])
def test_a_wrong_width(attack: Any) -> None:
    with pytest.raises(certus.errors.LossError, match=r"`inputs` must have a shape.*\(batch, 7\)"):
        attack(ModelLoss(network()), WIDE, LABELS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": None}, "`model` must be a torch.nn.Module"),
        ({"data": None}, "`data` must be Samples"),
        ({"data": INPUTS}, "`data` must be Samples"),
        ({"data": Samples(INPUTS.numpy(), LABELS)}, "`inputs` must be a tensor; got .*ndarray"),  # type: ignore[arg-type]
        ({"data": Samples(WIDE, LABELS)}, r"`inputs` must have a shape.*\(batch, 7\)"),
        ({"data": Samples(WIDE, LABELS), "attack": ERM()}, r"`inputs` must have a shape.*\(batch, 7\)"),
        ({"attack": None}, "`attack` must be a method, such as .*FGSM.*; got None"),
        ({"attack": "fgsm"}, r"`attack` must be an object, certus.attacks.FGSM\(epsilon\); got 'fgsm'"),
        ({"attack": WRM}, "`attack` must be a method"),
        ({"attack": lambda loss, inputs, targets: inputs[:, :2]}, r"moved inputs of shape \(12, 4\); got"),
        ({"seed": 1.5}, "`seed` must be a whole number"),
        ({"batch_size": 1.5}, "`batch_size` must be a whole number"),
    ],
)
def test_evaluate(options: dict[str, Any], words: str) -> None:
    given = {"model": network(), "data": Samples(INPUTS, LABELS), "attack": FGSM(0.1)}
    with pytest.raises(certus.CertusError, match=words):
        evaluate(**{**given, **options})


def test_evaluate_takes_pairs_of_arrays() -> None:
    loss = ModelLoss(network())
    whole = evaluate(loss.model, Samples(INPUTS, LABELS), FGSM(0.1))
    pairs = evaluate(loss.model, (INPUTS.numpy(), LABELS.numpy()), FGSM(0.1))
    assert torch.equal(whole.losses, pairs.losses)
