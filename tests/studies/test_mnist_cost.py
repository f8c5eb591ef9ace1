"""What cost says of made-up times, and how many gradients its methods really take."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from certus.data import Samples
from certus.losses import CrossEntropy, ModelLoss
from studies.mnist import cost as training_cost
from studies.mnist.cost import STUDY
from studies.study import Outcome, Scale, Verdict
from studies.workspace import Workspace

RUNTIME, OURS, OTHERS = range(3)


def made_up(gradients: float = 16.0, **ratios: float) -> dict[str, Any]:
    """Two seeds, the second on a machine that is twice as slow; the ratios are to ERM."""
    times = {"erm": 1.0, "fgm": 7.5, "pgm": 7.5, "paper": 8.0, "wrm": 2.5} | ratios
    counts = {"erm": 0.0, "fgm": 1.0, "pgm": 15.0, "paper": gradients, "wrm": 2.25}
    return {
        f"seed-{seed}": {
            name: {"seconds": 0.1 * (seed + 1) * time, "gradients": counts[name]}
            for name, time in times.items()
        }
        for seed in range(2)
    }


def values(verdict: Verdict) -> list[float | None]:
    return [one.value for one in verdict.ours.values()]


def test_agreement_with_the_paper() -> None:
    found = STUDY.verdicts(made_up())
    assert [one.outcome for one in found] == [Outcome.YES, Outcome.NOT_COMPARABLE, Outcome.YES]
    assert values(found[RUNTIME]) == pytest.approx([8, 16])
    assert values(found[OURS]) == pytest.approx([2.5, 2.25])
    assert values(found[OTHERS]) == pytest.approx([8, 7.5, 7.5])


@pytest.mark.parametrize(
    ("ratio", "outcome"),
    [
        (5.1, Outcome.YES),
        (12.4, Outcome.YES),
        (4.1, Outcome.YES),
        (3.9, Outcome.PARTLY),
        (12.6, Outcome.PARTLY),
        (2.4, Outcome.NO),
        (20.1, Outcome.NO),
    ],
)
def test_the_runtime_can_be_another(ratio: float, outcome: Outcome) -> None:
    assert STUDY.verdicts(made_up(paper=ratio))[RUNTIME].outcome is outcome


@pytest.mark.parametrize(
    ("ratios", "outcome"),
    [
        ({"pgm": 6.5, "fgm": 9.9}, Outcome.YES),
        ({"fgm": 6.3}, Outcome.PARTLY),
        ({"pgm": 6.3}, Outcome.PARTLY),
        ({"pgm": 10.1}, Outcome.PARTLY),
        ({"pgm": 20.0, "fgm": 2.0}, Outcome.NO),
    ],
)
def test_others_can_take_less_time_or_more(ratios: dict[str, float], outcome: Outcome) -> None:
    assert STUDY.verdicts(made_up(**ratios))[OTHERS].outcome is outcome


def test_the_table_of_times() -> None:
    assert STUDY.text is not None
    page = STUDY.text(made_up())
    assert "| WRM, the paper's 15 steps | 16.00 | 1200 | 8.00 |" in page
    assert "| ERM | 0.00 | 150 | 1.00 |" in page


class Counting(nn.Module):
    """A smooth network that counts the passes whose gradients in the inputs are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 4), nn.ELU(), nn.Linear(4, 10))
        self.passes = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.passes += inputs.requires_grad
        result: Tensor = self.layers(inputs)
        return result


@pytest.mark.parametrize(("name", "gradients"), [("erm", 0), ("fgm", 1), ("pgm", 15), ("paper", 16)])
def test_each_method_takes_the_papers_steps(name: str, gradients: int) -> None:
    """15 steps, and WRM looks once more at where it has arrived."""
    torch.manual_seed(0)
    model, data = Counting(), Samples(torch.rand(3, 1, 28, 28), torch.arange(3))
    method, known = training_cost._methods()[name]
    found = method.perturb(ModelLoss(model, CrossEntropy()), data.inputs, data.targets)
    assert model.passes == gradients
    counted = found.measured["gradients"].tolist() if known is None else [known] * 3
    assert counted == [gradients] * 3


def test_the_steps_are_measured_after_the_warm_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is made up: it moves by 100 in each method's first step, and then by 1."""
    pictures = Samples(torch.rand(8, 1, 28, 28, generator=torch.Generator().manual_seed(0)), torch.arange(8))
    ticks = [time for step in (100.0, 1.0, 1.0) for _ in range(5) for time in (0.0, step)]
    monkeypatch.setattr(training_cost, "load", lambda name: SimpleNamespace(train=pictures))
    monkeypatch.setattr(training_cost, "mnist_cnn", Counting)
    monkeypatch.setattr(training_cost, "time", SimpleNamespace(process_time=lambda: ticks.pop(0)))
    (part,) = STUDY.parts(Scale.QUICK)
    found = part.measure(Workspace(tmp_path), {"seed": 0, "batch": 2, "steps": 2, "warm": 1})
    assert ticks == []
    assert {name: one["seconds"] for name, one in found.items()} == dict.fromkeys(found, 1.0)
    counts = {name: one["gradients"] for name, one in found.items()}
    assert counts.pop("wrm") < 16
    assert counts == {"erm": 0.0, "fgm": 1.0, "pgm": 15.0, "paper": 16.0}
