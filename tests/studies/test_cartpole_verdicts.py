"""What cartpole says of made-up agents: each claim holds, and each can fail."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from certus.mdp.cartpole import ORIGINAL
from studies.cartpole.study import STUDY, cartpole_verdicts, combinations
from studies.study import Outcome

SYSTEMS = ("original", "light", "long", "soft g", "heavy", "short", "strong g")
LEARNING, WORST = 7, 8
YES, NO, NONE = Outcome.YES, Outcome.NO, Outcome.NOT_COMPARABLE
Gains = dict[str, tuple[float, float]]
"""Robust − nominal of the two seeds, by system. Of two seeds the interval is mean ± 12.7062 · half their
difference (t₁(0.975), from a table)."""

PAPER: Gains = {"heavy": (180.0, 188.0), "short": (150.0, 160.0), "strong g": (205.0, 210.0)}


def made_up(gains: Gains, learning: tuple[float, float] = (9.0, 10.0)) -> dict[str, Any]:
    """Robust agents hold for 400 steps. Where gains are not given there are none."""
    found: dict[str, Any] = {}
    for seed in range(2):
        nominal = {name: 400.0 - gains.get(name, (0.0, 0.0))[seed] for name in SYSTEMS}
        found[f"seed-{seed}"] = {
            "nominal": {
                "lengths": nominal,
                "fell": dict.fromkeys(SYSTEMS, 0.1),
                "ran off": dict.fromkeys(SYSTEMS, 0.2 + 0.1 * seed),
                "grid": {"a": 100.0 + 10 * seed, "b": 300.0},
                "curve": [20.0, 30.0],
            },
            "robust": {
                "lengths": dict.fromkeys(SYSTEMS, 400.0),
                "fell": dict.fromkeys(SYSTEMS, 0.0),
                "ran off": dict.fromkeys(SYSTEMS, 0.0),
                "grid": {"a": 390.0, "b": 340.0},
                "curve": [20.0, 30.0 + 2 * learning[seed]],
            },
        }
    lengths = dict.fromkeys(SYSTEMS, 399.0)
    return found | {"optimum-0.1": {"rho": 0.1, "lengths": lengths, "grid": {"a": 377.0, "b": 388.0}}}


def test_the_paper_agrees_with_itself() -> None:
    found = cartpole_verdicts(made_up(PAPER))
    assert [one.outcome for one in found] == [YES] * 8 + [NONE]
    short, learning, worst = found[5], found[LEARNING], found[WORST]
    assert short.paper == {"nominal": 245.2, "robust": 400.0}
    assert [short.ours[name].value for name in ("nominal", "robust", "gain")] == [245.0, 400.0, 155.0]
    assert (short.ours["gain"].low, short.ours["gain"].high) == pytest.approx((91.469, 218.531))
    assert learning.ours["gain"].value == 9.5
    assert (learning.ours["gain"].low, learning.ours["gain"].high) == pytest.approx((3.1469, 15.8531))
    values = {name: one.value for name, one in worst.ours.items()}
    assert values == {"nominal": 105.0, "robust": 340.0, "optimum at ρ = 0.1": 377.0}


@pytest.mark.parametrize(
    ("system", "gains", "outcome"),
    [
        # The paper's agents are alike.
        ("light", (-0.9, 0.9), YES),
        ("light", (5.9, 6.1), YES),
        ("original", (79.0, 80.0), YES),  # 400/320.5 is below 1.25
        ("long", (81.0, 81.0), Outcome.PARTLY),
        ("soft g", (-90.0, -130.0), Outcome.PARTLY),
        ("soft g", (210.0, 210.0), NO),
        # Its robust agent is better: by 154.8 steps on short, by 183.9 on heavy.
        ("short", (96.0, 97.0), YES),
        ("short", (1.0, 1.1), YES),
        ("short", (0.0, 20.0), NO),  # to 137
        ("short", (0.0, 25.0), NONE),  # to 171
        ("short", (-20.0, -21.0), NO),
        ("heavy", (0.0, 2.0), NO),
        ("heavy", (20.0, 24.0), NO),
        ("strong g", (-0.1, 0.1), NO),
    ],
)
def test_each_system_can_disagree(system: str, gains: tuple[float, float], outcome: Outcome) -> None:
    found = cartpole_verdicts(made_up(PAPER | {system: gains}))
    assert found.pop(SYSTEMS.index(system)).outcome is outcome
    assert [other.outcome for other in found] == [YES] * 7 + [NONE]


@pytest.mark.parametrize(
    ("gains", "outcome"),
    [((9.0, 10.0), YES), ((1.0, 9.0), NONE), ((-9.0, -10.0), NO)],  # the second: 5 ± 51
)
def test_learning_can_be_no_quicker(gains: tuple[float, float], outcome: Outcome) -> None:
    assert cartpole_verdicts(made_up(PAPER, gains))[LEARNING].outcome is outcome


def test_one_seed_decides_nothing() -> None:
    measured = made_up(PAPER)
    del measured["seed-1"]
    outcomes = dict(zip([*SYSTEMS, "learning", "worst"], cartpole_verdicts(measured), strict=True))
    harder = [outcomes[name].outcome for name in (*PAPER, "learning", "worst")]
    assert harder == [NONE] * 5


def test_the_table_of_the_page() -> None:
    assert STUDY.text is not None
    assert (
        "| short | 245.0 ± 5.0 | 400.0 ± 0.0 | +155.0 [91.5, 218.5] | 245.2 ± 4.8 | 400.0 ± 0.0 | 399 |"
        in STUDY.text(made_up(PAPER))
    )


def test_the_grid_is_every_combination_of_the_papers_factors() -> None:
    systems = combinations()
    wanted = {
        (ORIGINAL.pole_mass * mass, ORIGINAL.length * length, ORIGINAL.gravity * gravity)
        for mass, length, gravity in product((0.5, 1, 2), (0.5, 1, 2), (0.2, 1, 5))
    }
    assert len(systems) == len(wanted) == 27
    assert {(one.pole_mass, one.length, one.gravity) for one in systems.values()} == wanted
    heavy = systems["2 × 1 × 0.2"]
    assert (heavy.pole_mass, heavy.length) == (2 * ORIGINAL.pole_mass, ORIGINAL.length)
    assert heavy.gravity == 0.2 * ORIGINAL.gravity
