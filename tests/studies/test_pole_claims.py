"""What cartpole says of agents that nobody trained: each claim holds, and each can fail."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from certus.mdp.cartpole import ORIGINAL
from studies.pole_agents import REPRODUCTION, combinations
from studies.pole_claims import RULE, pole_statements

SYSTEMS = ("original", "light", "long", "soft g", "heavy", "short", "strong g")
LEARNING, WORST = 7, 8
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
    found = pole_statements(made_up(PAPER))
    assert [one.agrees for one in found] == [True] * 8 + [None]
    assert [bool(one.reason) for one in found] == [False] * 8 + [True]
    assert found[0].paper == "Original: nominal 399.7, robust 400 of 400 steps; both are alike."
    assert found[5].paper == "Short: nominal 245.2, robust 400 of 400 steps; the robust agent is better."
    assert (
        found[5].measured == "Nominal 245.0, robust 400.0, paired gain +155.0 [91.5, 218.5] (2 agents each)."
    )
    assert "longer by +9.5 [3.1, 15.9] steps" in found[LEARNING].measured
    assert (
        found[WORST].measured == "Worst of 27 systems: nominal 105, robust 340 steps; the optimum of the "
        "robust MDP on the cells 377 at ρ = 0.1."
    )


@pytest.mark.parametrize(
    ("system", "gains", "agrees", "reason"),
    [
        # The paper's agents are alike.
        ("light", (-0.1, 0.1), True, ""),  # ± 1.27
        ("light", (-0.7, 0.7), True, ""),  # ± 8.9
        ("light", (-0.9, 0.9), None, "the interval is too wide to tell."),  # ± 11.4
        ("light", (5.9, 6.1), False, "the robust agents are better. In 25% of the nominal agents' trials"),
        ("original", (0.1, 0.1), False, "the robust agents are better."),
        ("long", (30.0, 31.0), False, "the robust agents are better."),
        ("soft g", (-3.0, -3.1), False, "the nominal agents are better; why is not known."),
        # Its robust agent is better: by 154.8 steps on short, by 183.9 on heavy.
        ("short", (96.0, 97.0), True, ""),
        ("short", (1.0, 1.1), True, ""),
        ("short", (0.0, 20.0), False, "the interval holds 0; why is not known."),  # to 137
        ("short", (0.0, 25.0), None, "the interval is too wide to tell."),  # to 171
        ("short", (-20.0, -21.0), False, "the nominal agents are better; why is not known."),
        (
            "heavy",
            (0.0, 2.0),
            False,
            "gymnasium's pole weighs a tenth of its cart; doubling it hurts nobody.",
        ),
        ("heavy", (20.0, 24.0), False, "the interval holds 0; why is not known."),  # 378 < 0.95 · 400
        ("strong g", (-0.1, 0.1), False, "the interval holds 0"),
    ],
)
def test_each_system_can_disagree(
    system: str, gains: tuple[float, float], agrees: bool | None, reason: str
) -> None:
    found = pole_statements(made_up(PAPER | {system: gains}))
    one = found.pop(SYSTEMS.index(system))
    assert one.agrees is agrees
    assert one.reason.startswith(reason)
    assert bool(one.reason) != bool(one.agrees)
    assert [other.agrees for other in found] == [True] * 7 + [None]


@pytest.mark.parametrize(
    ("gains", "agrees", "reason"),
    [
        ((9.0, 10.0), True, ""),
        ((1.0, 9.0), None, "the interval holds 0."),  # 5 ± 51
        ((-9.0, -10.0), False, "its episodes are shorter; why is not known."),
    ],
)
def test_learning_can_be_no_quicker(gains: tuple[float, float], agrees: bool | None, reason: str) -> None:
    found = pole_statements(made_up(PAPER, gains))[LEARNING]
    assert (found.agrees, found.reason) == (agrees, reason)


def test_one_seed_decides_nothing() -> None:
    measured = made_up(PAPER)
    del measured["seed-1"]
    assert [one.agrees for one in pole_statements(measured)] == [None] * 9


def test_the_page_says_how_it_judges() -> None:
    assert REPRODUCTION.text is not None
    page = REPRODUCTION.text(made_up(PAPER))
    assert RULE in page
    assert "its harder systems: heavy, short, strong g" in RULE
    assert "within ±10 steps" in RULE
    assert (
        "| short | 245.0 ± 5.0 | 400.0 ± 0.0 | +155.0 [91.5, 218.5] | 245.2 ± 4.8 | 400.0 ± 0.0 | 399 |"
        in page
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
