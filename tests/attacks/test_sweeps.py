"""Sweeps: trials are recorded as they were run, wrm climbs far enough, a worst compares like with like."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from certus import WRM, Box, CrossEntropy, ModelLoss
from certus.attacks import (
    FGSM,
    evaluate,
    worst_of,
)
from certus.attacks.evaluation import Trial, as_row, sweep
from certus.data import Samples
from certus.inner import BarzilaiBorwein
from tests.attacks.models import convolutional, images

DATA = Samples(*images(50))
LOSS = ModelLoss(convolutional(), CrossEntropy())


def test_only_attacks_on_the_same_set_share_a_worst() -> None:
    """Two clipped attacks and one unclipped of the same norm and ε: the worst is that of the clipped two."""
    trials = [Trial("fgsm", math.inf, 0.8), Trial("pgd", math.inf, 0.8, steps=5)]
    done = sweep(LOSS, DATA, [*trials, Trial("fgsm", math.inf, 0.8, clipped=False)], domain=Box(0, 1))
    (worst,) = [(trial, outcome) for trial, outcome in done if trial.attack == "worst"]
    assert worst[0].clipped
    assert torch.equal(worst[1].losses, worst_of([done[0][1], done[1][1]]).losses)
    assert not torch.equal(done[0][1].losses, done[2][1].losses)  # clipping changes something here
    apart = [replace(trials[0], clipped=clipped) for clipped in (True, False)]
    assert len(sweep(LOSS, DATA, apart, domain=Box(0, 1))) == 2


def test_wrm_in_a_sweep_climbs_to_the_maximum() -> None:
    """ℓ − γc is within 10⁻³ of what a very long ascent reaches, in a flat valley that takes many steps."""
    torch.manual_seed(0)
    stretched = nn.Linear(4, 3)
    with torch.no_grad():
        stretched.weight.mul_(torch.tensor([6.0, 2.0, 0.5, 0.1]))
    loss = ModelLoss(stretched)
    data = Samples(torch.randn(20, 4), torch.randint(3, (20,)))
    weight = stretched.weight.detach()
    gamma = 1.02 * float(torch.cdist(weight, weight).max()) ** 2 / 8  # just concave
    ((_, found),) = sweep(loss, data, [Trial("wrm", None, None, gamma=gamma)])
    longer = WRM(gamma, maximizer=BarzilaiBorwein(tolerance=0.0, max_gradients=300))
    best = evaluate(loss.model, data, longer)
    reached, highest = (outcome.losses - gamma * outcome.l2**2 for outcome in (found, best))
    assert (highest - reached).max() <= 1e-3
    lazy = evaluate(loss.model, data, WRM(gamma, maximizer=BarzilaiBorwein(tolerance=0.0, max_gradients=2)))
    assert (highest - (lazy.losses - gamma * lazy.l2**2)).max() > 1e-3  # it does take more than a look


def test_a_sweep_records_what_was_done() -> None:
    trials = [
        Trial("fgsm", math.inf, 0.0, steps=1),
        *(Trial("fgsm", math.inf, 0.1, steps=1, clipped=clipped) for clipped in (True, False)),
        Trial("pgd", math.inf, 0.1, steps=5, restarts=2),
        Trial("bim", math.inf, 0.1, steps=5, step_size=0.07),
        Trial("wrm", None, None, gamma=0.5),
    ]
    done = sweep(LOSS, DATA, trials, domain=Box(0, 1))
    rows = [as_row(*one) for one in done]
    assert [row["attack"] for row in rows] == ["fgsm", "fgsm", "fgsm", "pgd", "bim", "wrm", "worst"]
    assert [row["step_size"] for row in rows[:6]] == [0.0, 0.1, 0.1, 0.05, 0.07, None]
    assert [row["clipped"] for row in rows[:3]] == [True, True, False]
    assert [row["steps"] for row in rows] == [1, 1, 1, 5, 5, None, 5]
    assert [row["restarts"] for row in rows] == [None, None, None, 2, None, None, 2]
    errors = [row["error"]["value"] for row in rows]
    assert errors[6] >= max(errors[1], errors[3], errors[4])
    assert rows[0]["rho_test"] == 0
    unclipped = evaluate(LOSS.model, DATA, FGSM(0.1)).loss.value
    assert rows[2]["loss"]["value"] == pytest.approx(unclipped)
    assert {row["evidence"] for row in rows} == {"attained"}
