"""ResNet-50 fine-tuned on pixels (section:dogs), small: its last layer, its budgets, and what is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from certus.data import Samples
from certus.storage.files import RunError
from studies.dogs import attacks
from studies.dogs.attacks import fine_tuned, fit_last_layer, moves_of_wrm
from studies.dogs.resnet50 import Resnet50
from studies.workspace import Workspace, trained_network


def test_the_last_layer_is_fitted_alone() -> None:
    torch.manual_seed(0)
    network = Resnet50(2, width=8, stages=(1,))
    bright = torch.rand(8, 3, 32, 32) * 0.2 + 0.8 * (torch.arange(8) % 2)[:, None, None, None]
    data = Samples(bright, torch.arange(8) % 2)
    before = {name: value.clone() for name, value in network.state_dict().items()}

    def right() -> int:
        return int((network(data.inputs).argmax(1) == data.targets).sum())

    fit_last_layer(network, data, 300)
    assert right() == 8
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"last.weight", "last.bias"}


SMALL = {"train": 8, "side": 32, "epochs": 1, "batch": 4, "rate": 1e-5, "seed": 0, "probe": 1}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """With eight small photographs, and a small network."""
    drawn = torch.Generator().manual_seed(0)
    pictures = Samples(torch.rand(8, 3, 32, 32, generator=drawn), torch.arange(8) % 2)
    monkeypatch.setattr(attacks, "resnet50_weights", dict)
    monkeypatch.setattr(attacks, "pretrained", lambda weights, outputs: Resnet50(outputs, 8, (1,)))
    monkeypatch.setattr(attacks, "photographs", lambda part, count: pictures[:count])
    return Workspace(tmp_path)


def test_others_may_move_as_far_as_wrm_does(workspace: Workspace) -> None:
    facts = {method: fine_tuned(workspace, method, SMALL).facts for method in ("fgm", "wrm", "gentle", "erm")}
    assert facts["fgm"]["epsilon"] ** 2 == pytest.approx(facts["wrm"]["rho_hat"]) != 0
    assert facts["gentle"]["rho_hat"] < facts["wrm"]["rho_hat"] / 100, "ρ̂ is nearly ‖∇ℓ‖²/4γ²"
    assert facts["erm"] == {"epsilon": None, "rho_hat": None}


def test_the_moves_of_wrm_are_those_before_and_after_training(workspace: Workspace) -> None:
    quick, slow = ({**SMALL, "rate": rate} for rate in (3e-2, 1e-9))
    found = moves_of_wrm(workspace, {"how": quick, "samples": 8})
    reached = fine_tuned(workspace, "wrm", quick).facts["rho_hat"]  # by an ascent of more steps
    assert found["end"]["rho"] == pytest.approx(reached, rel=0.05)
    untrained = moves_of_wrm(workspace, {"how": slow, "samples": 8})
    assert untrained["start"] == pytest.approx(untrained["end"], rel=1e-3)
    assert untrained["start"] == found["start"] != found["end"]


def test_a_network_is_trained_once_and_kept_with_its_facts(tmp_path: Path) -> None:
    calls = []

    def train(model: nn.Module) -> dict[str, float]:
        calls.append(1)
        assert isinstance(model, nn.Linear)
        nn.init.constant_(model.weight, 7.0)
        return {"gamma": 2.5}

    def ask(recipe: dict[str, int]) -> tuple[float, dict[str, float]]:
        kept = trained_network(Workspace(tmp_path), "small", recipe, lambda: nn.Linear(2, 1), train)
        assert isinstance(kept.model, nn.Linear)
        assert not kept.model.training
        return kept.model.weight[0, 0].item(), kept.facts

    assert ask({"seed": 0}) == ask({"seed": 0}) == (7.0, {"gamma": 2.5})
    assert len(calls) == 1
    ask({"seed": 1})
    assert len(calls) == 2, "another recipe"
    for path in (tmp_path / "own-networks").iterdir():
        path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(RunError, match="is corrupt: remove it, and it is trained again"):
        ask({"seed": 0})
