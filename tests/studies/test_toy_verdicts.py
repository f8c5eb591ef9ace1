"""What is said of networks on the rings, by made-up numbers: every verdict can be another."""

from __future__ import annotations

from typing import Any

import pytest

from studies.study import Outcome, Verdict
from studies.toy.networks import METHODS
from studies.toy.study import network_verdicts

Numbers = dict[str, Any]
RADII, SYMMETRY, RELUS, CONCAVE, SMOOTH = range(5)
SEEDS = 10


def _networks(radius: float, asymmetry: float) -> list[Numbers]:
    """Seeds differ by 0.01."""
    return [
        {
            "test_error": 0.0,
            "mean_radius": radius + seed / 100,
            "asymmetry": asymmetry + seed / 100,
            "open_rays": 0,
        }
        for seed in range(SEEDS)
    ]


def group(activation: str) -> Numbers:
    """WRM is the outermost, and the most even with ELUs."""
    elu = activation == "elu"
    return {
        "activation": activation,
        "methods": {
            "erm": _networks(1.41, 0.06),
            "fgm": _networks(1.45, 0.04),
            "wrm": _networks(1.53, 0.02 if elu else 0.05),
        },
        "concave": [1.0] * SEEDS if elu else [],
        "curvature": [3.0] * SEEDS if elu else [],
        "evidence": "proven",
    }


@pytest.fixture
def measured() -> Numbers:
    return {name: group(name) for name in ("relu", "elu")}


def claim(measured: Numbers, which: int) -> Verdict:
    return network_verdicts(measured)[which]


def change(measured: Numbers, name: str, method: str, seeds: range, **numbers: float) -> None:
    for seed in seeds:
        measured[name]["methods"][method][seed] |= numbers


def test_made_up_so_that_the_paper_is_right(measured: Numbers) -> None:
    claims = network_verdicts(measured)
    assert [verdict.outcome for verdict in claims] == [Outcome.YES] * 5
    medians = [quantity.value for quantity in claims[RADII].ours.values()]
    assert medians == pytest.approx([1.455, 1.495, 1.575] * 2 + [20, 20])
    assert claims[SYMMETRY].ours["WRM"].value == pytest.approx(0.065)


@pytest.mark.parametrize(("seeds", "outcome"), [(1, "yes"), (2, "partly"), (5, "partly"), (6, "no")])
@pytest.mark.parametrize("rival", ["erm", "fgm"])
def test_another_method_may_be_more_even(seeds: int, outcome: str, rival: str, measured: Numbers) -> None:
    """Seed by seed: on up to a tenth of them the claim stands, and on up to a half partly."""
    change(measured, "elu", rival, range(seeds), asymmetry=0.001)
    assert claim(measured, SYMMETRY).outcome == outcome


@pytest.mark.parametrize(("seeds", "outcome"), [(2, "yes"), (3, "partly"), (10, "partly")])
@pytest.mark.parametrize("activation", ["relu", "elu"])
def test_another_method_may_push_further(
    seeds: int, outcome: str, activation: str, measured: Numbers
) -> None:
    """Of 20 cases, the seeds of both activations."""
    change(measured, activation, "fgm", range(seeds), mean_radius=2.0)
    assert claim(measured, RADII).outcome == outcome


def test_relus_may_be_as_even_as_elus(measured: Numbers) -> None:
    change(measured, "relu", "wrm", range(6), asymmetry=0.001)
    assert claim(measured, RELUS).outcome is Outcome.NO


@pytest.mark.parametrize("numbers", [{"test_error": 0.01}, {"open_rays": 1}])
@pytest.mark.parametrize("method", METHODS)
def test_seeds_that_have_not_learnt_are_not_counted(numbers: Numbers, method: str, measured: Numbers) -> None:
    change(measured, "elu", "wrm", range(5), asymmetry=0.5, mean_radius=0.1)
    change(measured, "elu", method, range(5), **numbers)
    for which, left in ((RADII, 15), (SYMMETRY, 5)):
        verdict = claim(measured, which)
        assert verdict.outcome is Outcome.YES
        assert verdict.ours["seeds"].value == left
    change(measured, "elu", method, range(SEEDS), **numbers)
    assert claim(measured, SYMMETRY).outcome is Outcome.NOT_COMPARABLE


def test_points_may_not_be_concave(measured: Numbers) -> None:
    """By less than half a point of per cent on a seed: it counts as concave; a theorem is stricter."""
    measured["elu"]["concave"][:3] = [0.9951, 0.9996, 0.99]
    verdict = claim(measured, CONCAVE)
    assert verdict.outcome is Outcome.YES
    assert [quantity.value for quantity in verdict.ours.values()] == [10, 9, 7, 0.99]
    assert claim(measured, SMOOTH).outcome is Outcome.NO
    measured["elu"]["concave"][:2] = [0.99, 0.99]
    assert claim(measured, CONCAVE).outcome is Outcome.PARTLY


@pytest.mark.parametrize("bound", [39.002, None])
def test_a_bound_above_the_penalty_says_nothing(bound: float | None, measured: Numbers) -> None:
    measured["elu"]["curvature"][0] = bound
    verdict = claim(measured, SMOOTH)
    assert verdict.outcome is Outcome.NOT_COMPARABLE
    assert verdict.ours["worst seed"].value == bound
    assert verdict.ours["worst seed"].side == "at most"  # which a page rounds up
