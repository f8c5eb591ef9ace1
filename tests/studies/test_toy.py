"""The boundary of networks that are known: a circle, an ellipse, none; and how networks are trained."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from certus.datasets import load
from certus.runs.settings import Settings
from studies.study import Scale
from studies.toy import FARTHEST, STUDY, boundary_radii, three_networks
from studies.workspace import Workspace


class Conic(nn.Module):
    """Class 1 outside x²/a² + y²/b² = 1."""

    def __init__(self, a: float, b: float) -> None:
        super().__init__()
        self.squares = torch.tensor([a**2, b**2])

    def forward(self, points: Tensor) -> Tensor:
        outside = (points**2 / self.squares).sum(1) - 1
        return torch.stack([torch.zeros_like(outside), outside], 1)


def test_a_circle() -> None:
    torch.testing.assert_close(boundary_radii(Conic(1.5, 1.5)), torch.full((360,), 1.5), atol=1e-4, rtol=0)


def test_an_ellipse() -> None:
    angles = torch.arange(360) * (2 * math.pi / 360)
    truth = 1 / (angles.cos() ** 2 / 4 + angles.sin() ** 2 / 1).sqrt()
    torch.testing.assert_close(boundary_radii(Conic(2.0, 1.0)), truth, atol=1e-3, rtol=0)


def test_no_boundary_within_reach() -> None:
    assert boundary_radii(Conic(9.0, 9.0)).tolist() == pytest.approx([FARTHEST] * 360)


class Recorder:
    """In place of a workspace: no network is trained, and every one moves its data by 0.3 on average."""

    def __init__(self) -> None:
        self.asked: dict[str, Settings] = {}

    def network(self, settings: Settings) -> Any:
        self.asked[settings.method] = settings
        return SimpleNamespace(rho_hat=0.09, settings=settings)


def test_fgm_moves_by_the_root_of_the_level_of_wrm() -> None:
    """ε² = ρ̂_n(θ_WRM) = 0.09, in the 2-norm [eqn:fgm-fair]."""
    recorder = Recorder()
    found = three_networks(cast(Workspace, recorder), "elu", seed=4, epochs=7, schedule="cosine")
    assert {name: cast(Any, one).settings.method for name, one in found.items()} == {
        **{name: name for name in ("erm", "wrm")},
        "fgm": "fgsm",
    }
    fgm, wrm = recorder.asked["fgsm"], recorder.asked["wrm"]
    assert fgm.epsilon == pytest.approx(0.3)
    assert fgm.norm == "2"
    assert (wrm.gamma, wrm.rho, wrm.cost) == (2.0, None, "natural")
    for one in recorder.asked.values():
        assert (one.data, one.model, one.seed, one.epochs, one.schedule) == ("rings", "toy", 4, 7, "cosine")


def test_the_page_says_how_networks_are_trained() -> None:
    """As they are: not by the paper's 15 steps."""
    recorder = Recorder()
    three_networks(cast(Workspace, recorder), "relu", seed=0, epochs=30)
    wrm = recorder.asked["wrm"]
    assert (wrm.model, wrm.schedule, wrm.maximizer, wrm.tolerance) == (
        "toy-relu",
        "constant",
        "adaptive",
        0.005,
    )
    assert (wrm.optimizer, wrm.learning_rate, wrm.batch_size) == ("adam", 0.01, 128)
    assert len(load("rings").train) == 10_000
    settings = STUDY.training_at(Scale.FULL)
    assert {name: getattr(wrm, name) for name in settings} == settings | {"model": "toy-relu"}
    for scale, epochs in ((Scale.QUICK, 3), (Scale.FULL, 30)):
        assert {part.settings["epochs"] for part in STUDY.parts(scale)} == {epochs}
