"""What is said of networks on the rings, by made-up numbers: every verdict can be another."""

from __future__ import annotations

from typing import Any

import pytest

from studies.study import Outcome, Verdict
from studies.toy import network_verdicts

Numbers = dict[str, Any]
RADII, SYMMETRY, RELUS, CONCAVE, SMOOTH = range(5)


def method(radius: float, asymmetry: float, error: float = 0.0, rays: int = 0) -> Numbers:
    return {
        "test_error": error,
        "mean_radius": radius,
        "asymmetry": asymmetry,
        "open_rays": rays,
        "lines": None,
    }


def part(activation: str, seed: int, **more: Any) -> Numbers:
    """WRM is the outermost, and the most even with ELUs; seeds differ by 0.01."""
    away = seed / 100
    uneven = 0.02 if activation == "elu" else 0.05
    found = {
        "erm": method(1.41 + away, 0.06 + away),
        "fgm": method(1.45 + away, 0.04 + away),
        "wrm": method(1.53 + away, uneven + away),
    }
    return {
        "activation": activation,
        "methods": found,
        "rho_hat": 0.09,
        "concave_share": 1.0 if activation == "elu" else None,
        "proven_curvature": 3.0 + seed / 2 if activation == "elu" else None,
        **more,
    }


@pytest.fixture
def measured() -> Numbers:
    """Two seeds, in the order in which they are measured."""
    found = {f"{name}-{seed}": part(name, seed) for seed in range(2) for name in ("relu", "elu")}
    found |= {f"settled-{seed}": part("elu", seed, schedule="cosine") for seed in range(2)}
    return found


def claim(measured: Numbers, which: int) -> Verdict:
    return network_verdicts(measured)[which]


def values(verdict: Verdict) -> list[float | None]:
    return [one.value for one in verdict.ours.values()]


def change(measured: Numbers, place: str, name: str, **numbers: float) -> None:
    """Of one method's network of a part."""
    measured[place]["methods"][name] |= numbers


def test_made_up_so_that_the_paper_is_right(measured: Numbers) -> None:
    claims = network_verdicts(measured)
    assert [one.outcome for one in claims] == [Outcome.YES] * 5
    assert values(claims[RADII]) == pytest.approx([1.415, 1.455, 1.535] * 2)
    assert values(claims[SYMMETRY]) == pytest.approx([0.065, 0.045, 0.025])
    assert values(claims[RELUS]) == pytest.approx([0.055, 0.025])
    assert values(claims[CONCAVE]) == [2, 2, 1.0]
    assert values(claims[SMOOTH]) == [3.0, 3.5]


@pytest.mark.parametrize("activation", ["relu", "elu"])
@pytest.mark.parametrize("rival", ["erm", "fgm"])
def test_another_method_may_push_further(activation: str, rival: str, measured: Numbers) -> None:
    """By its median; WRM is still the outermost on one seed, or on both with the other activation."""
    change(measured, f"{activation}-1", rival, mean_radius=2.0)
    assert claim(measured, RADII).outcome is Outcome.NO


@pytest.mark.parametrize("rival", ["erm", "fgm"])
def test_another_method_may_be_more_even(rival: str, measured: Numbers) -> None:
    change(measured, "elu-0", rival, asymmetry=0.001)
    change(measured, "elu-1", rival, asymmetry=0.031)
    assert claim(measured, SYMMETRY).outcome is Outcome.NO


def test_relus_may_be_as_even_as_elus(measured: Numbers) -> None:
    change(measured, "relu-0", "wrm", asymmetry=0.019)
    change(measured, "relu-1", "wrm", asymmetry=0.031)
    assert claim(measured, RELUS).outcome is Outcome.NO


@pytest.mark.parametrize("numbers", [{"test_error": 0.01}, {"open_rays": 1}])
def test_medians_are_of_networks_that_learnt(numbers: Numbers, measured: Numbers) -> None:
    change(measured, "elu-1", "wrm", mean_radius=3.0, asymmetry=0.5, **numbers)
    for which, name, value in (
        (RADII, "WRM, ELU", 1.53),
        (SYMMETRY, "WRM", 0.02),
        (RELUS, "ELU", 0.02),
    ):
        found = claim(measured, which)
        assert found.outcome is Outcome.YES
        assert found.ours[name].value == value


@pytest.mark.parametrize("name", ["erm", "fgm", "wrm"])
def test_failed_trainings_are_not_compared(name: str, measured: Numbers) -> None:
    for seed in range(2):
        change(measured, f"elu-{seed}", name, test_error=0.3)
    for which in (RADII, SYMMETRY) if name != "wrm" else (RADII, SYMMETRY, RELUS):
        found = claim(measured, which)
        assert found.outcome is Outcome.NOT_COMPARABLE
        assert None in values(found)


def test_a_point_may_not_be_concave(measured: Numbers) -> None:
    """Then γ above a proven bound on the curvature is a contradiction, on the same seed."""
    measured["elu-1"]["concave_share"] = 0.994
    found = claim(measured, CONCAVE)
    assert found.outcome is Outcome.PARTLY
    assert values(found) == [2, 1, 0.994]
    assert claim(measured, SMOOTH).outcome is Outcome.NO
    measured["elu-1"]["proven_curvature"] = 4.0
    assert claim(measured, SMOOTH).outcome is Outcome.NOT_COMPARABLE


@pytest.mark.parametrize(("bound", "share"), [(39.002, 1.0), (39.002, 0.9996), (None, 1.0)])
def test_a_bound_above_the_penalty_says_nothing(bound: float | None, share: float, measured: Numbers) -> None:
    measured["elu-1"] |= {"proven_curvature": bound, "concave_share": share}
    found = claim(measured, SMOOTH)
    assert found.outcome is Outcome.NOT_COMPARABLE
    assert found.ours["worst seed"].value == bound
    assert found.ours["worst seed"].side == "at most"  # which a page rounds up
