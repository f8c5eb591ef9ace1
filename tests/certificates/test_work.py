"""The share that is told is the share of the work that was counted, call by call; no clock is asked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from certus import certify
from certus.certificates import engine, local_bounds
from certus.certificates.progress import ATTACK, BALL, GAMMA, NEAREST, READ, Work, total_work
from certus.costs import LabelCost
from certus.kernel import radial
from certus.smoothing import certify_smoothed
from tests.certificates.problems import network, samples

COUNT = 12
CALLS = {
    (radial, "constants"): BALL,
    (local_bounds, "solve_gamma"): GAMMA,
    (engine, "error_candidates"): NEAREST,
    (engine, "attack_balls"): ATTACK,
}


def counted(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The work of every call so far, in the units of ``work``."""
    done: list[float] = []
    for (module, name), cost in CALLS.items():
        real = getattr(module, name)

        def call(*given: Any, real: Callable[..., Any] = real, cost: float = cost, **more: Any) -> Any:
            found = real(*given, **more)
            done.append(COUNT * cost)
            return found

        monkeypatch.setattr(module, name, call)
    return done


@pytest.mark.parametrize("labels", [1, 3])
def test_the_share_is_what_was_counted(labels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done, told = counted(monkeypatch), [(0.0, 0.0)]
    gammas, rhos = (8.0, 4.0, 2.0), (0.01, 0.1)
    certify(
        network("tanh", 0),
        samples(0, COUNT),
        rho=rhos,
        gammas=gammas,
        local_radii=3,
        attack_steps=2,
        label_cost=None if labels == 1 else LabelCost(0.5, 3),
        progress=lambda share: told.append((share, sum(done))),
    )
    total = total_work(COUNT, labels, 3, gammas, rhos, gamma_rounds=1, attacked=True)
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    look, before = COUNT * labels * READ, 0.0  # what no call counts is told once
    for share, so_far in told:
        if share < 1:
            uncounted = share * total - so_far
            assert uncounted == pytest.approx(before) or uncounted == pytest.approx(look)
            before = uncounted
    assert before == pytest.approx(look)
    # It does not stand still: nothing takes longer than a ball around each sample.
    assert max(b - a for a, b in itertools.pairwise(shares[:-1])) <= 1.001 * COUNT * BALL / total


def test_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is planned is what is done, where nothing is refined."""
    done = counted(monkeypatch)
    gammas = (8.0, 4.0, 2.0)
    certify(
        network("tanh", 0),
        samples(0, COUNT),
        rho=0.1,
        gammas=gammas,
        local_radii=2,
        gamma_rounds=0,
        attack_steps=0,
    )
    planned = total_work(COUNT, 1, 2, gammas, (0.1,), gamma_rounds=0, attacked=False)
    assert planned == sum(done) + COUNT * READ


def test_work() -> None:
    """More than was planned never tells more than all; less is made up for at the end."""
    told: list[float] = []
    work = Work(10.0, told.append)
    for units in (2.0, 6.0, 5.0):
        work.advance(units)
    work.finish()
    assert told == [0.2, 0.8, 1.0, 1.0]
    short = Work(10.0, told.append)
    short.advance(1.0)
    short.finish()
    assert told[-2:] == [0.1, 1.0]


def test_a_certification_in_noise_tells_its_share() -> None:
    """In proportion to the predictions that were asked for."""
    inputs = samples(0, 40)[0]
    asked, told = [0], []

    def model(points: Any) -> Any:
        asked[0] += len(points)
        return (points[:, 0] > 0).astype(int)

    certify_smoothed(
        model,
        (inputs.numpy(), (inputs[:, 0] > 0).long().numpy()),
        rho=0.01,
        sigma=0.25,
        draws=20,
        votes=9,
        attack_steps=2,
        progress=lambda share: told.append((share, asked[0])),
    )
    assert [share for share, _ in told] == sorted(share for share, _ in told)
    assert told[-1][0] == 1
    whole = told[-1][1]
    for share, so_far in told:
        assert share == pytest.approx(so_far / whole, abs=0.12)


def test_silent_outside_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    ask: dict[str, Any] = {
        "rho": 0.1,
        "gammas": [4.0],
        "local_radii": 0,
        "gamma_rounds": 0,
        "attack_steps": 0,
    }
    certify(network("tanh", 0), samples(0, 5), **ask)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the stream for a terminal
    certify(network("tanh", 0), samples(0, 5), **ask, progress=False)
    assert capsys.readouterr() == ("", "")
    certify(network("tanh", 0), samples(0, 5), **ask)
    out, err = capsys.readouterr()
    assert out == ""
    assert "certifying" in err
    assert "100%" in err
