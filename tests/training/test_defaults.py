"""One table of defaults: a method trains alike from Python and from the settings of the command line."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

import certus
from certus import WRM
from certus._defaults import CERTIFIED, ESTIMATOR, PLAIN, defaults_for
from certus.attacks import BIM, FGSM, PGD
from certus.datasets import rings
from certus.models import build_model
from certus.runs.settings import Settings
from certus.runs.train_run import start_run, train_run
from certus.training import CertifiedTraining

DATA = rings(600, seed=0)
METHODS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "erm": ({"method": "erm"}, {}),
    "wrm": ({"gamma": 2.0}, {"method": WRM(2.0, domain=DATA.domain)}),
    "wrm by rho": ({"rho": 0.1}, {"method": WRM(rho=0.1, domain=DATA.domain)}),
    "fgsm": ({"method": "fgsm", "epsilon": 0.1}, {"method": FGSM(0.1, domain=DATA.domain)}),
    "bim": ({"method": "bim", "epsilon": 0.1}, {"method": BIM(0.1, domain=DATA.domain)}),
    "pgd": ({"method": "pgd", "epsilon": 0.1}, {"method": PGD(0.1, domain=DATA.domain)}),
    "certified": (
        {"gamma": 2.0, "certified": True},
        {"method": WRM(2.0, domain=DATA.domain), "certified": CertifiedTraining(2.0)},
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_trains_alike_from_settings_and_from_python(name: str, tmp_path: Path) -> None:
    typed, given = METHODS[name]
    network = "certified-mlp:8" if "certified" in typed else "toy"
    settings = Settings.chosen(data="rings", model=network, epochs=2, **typed)
    run = start_run(tmp_path / "run", settings, certus.datasets.load("rings", seed=0))
    by_settings = train_run(run).model
    model = build_model(network, certus.datasets.load("rings", seed=0), seed=0)
    certus.fit(model, certus.datasets.load("rings", seed=0), epochs=2, progress=False, **given)
    for (key, ours), theirs in zip(
        model.state_dict().items(), by_settings.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, theirs), key


def test_signatures_show_the_table() -> None:
    settings = Settings("rings", "toy", method="erm")
    assert (settings.epochs, settings.batch_size, settings.learning_rate) == (10, 128, PLAIN.learning_rate)
    assert inspect.signature(certus.fit).parameters["epochs"].default == PLAIN.epochs
    for kind in (certus.estimators.RobustClassifier, certus.estimators.RobustRegressor):
        shown = {name: option.default for name, option in inspect.signature(kind).parameters.items()}
        chosen = (shown["epochs"], shown["batch_size"], shown["learning_rate"])
        assert chosen == (ESTIMATOR.epochs, ESTIMATOR.batch_size, ESTIMATOR.learning_rate)
    assert defaults_for("certified-cnn", certified=True) == CERTIFIED
