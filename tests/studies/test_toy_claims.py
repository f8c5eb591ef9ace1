"""What is said of networks on the rings, by made-up numbers: every verdict can be another."""

from __future__ import annotations

from typing import Any

import pytest

from studies.reproduction import Comparison
from studies.toy_claims import network_claims

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


def claim(measured: Numbers, which: int) -> Comparison:
    """A reason stands exactly where the two do not agree."""
    found = network_claims(measured)[which]
    assert bool(found.reason) != (found.agrees is True)
    return found


def change(measured: Numbers, place: str, name: str, **numbers: float) -> None:
    """Of one method's network of a part."""
    measured[place]["methods"][name] |= numbers


def test_made_up_so_that_the_paper_is_right(measured: Numbers) -> None:
    claims = network_claims(measured)
    assert [one.agrees for one in claims] == [True] * 5
    assert [one.reason for one in claims] == [""] * 5
    assert claims[RADII].measured == (
        "Mean radius of the boundary, ReLU: ERM 1.415, FGM 1.455, WRM 1.535; ELU: ERM 1.415, FGM 1.455, WRM "
        "1.535 (medians of 2 seeds)."
    )
    assert claims[SYMMETRY].measured == (
        "Asymmetry with ELU: ERM 0.0650, FGM 0.0450, WRM 0.0250 (medians of 2 seeds)."
    )
    assert claims[RELUS].measured == "Asymmetry of WRM: ReLU 0.0550, ELU 0.0250 (medians of 2 seeds)."
    assert claims[CONCAVE].measured == "At all training points with 2 of 2 seeds."
    assert claims[SMOOTH].measured == (
        "Proven curvature at most 3.0 with the best seed and 3.5 with the worst, against 2γ = 4."
    )


@pytest.mark.parametrize("activation", ["relu", "elu"])
@pytest.mark.parametrize("rival", ["erm", "fgm"])
def test_another_method_may_push_further(activation: str, rival: str, measured: Numbers) -> None:
    """By its median; WRM is still the outermost on one seed, or on both with the other activation."""
    change(measured, f"{activation}-1", rival, mean_radius=2.0)
    found = claim(measured, RADII)
    counts = {"relu": "1 of 2 seeds with ReLU and 2 of 2", "elu": "2 of 2 seeds with ReLU and 1 of 2"}
    assert found.agrees is False
    assert found.reason == f"not known; WRM's is the largest on {counts[activation]} seeds with ELU."


@pytest.mark.parametrize("rival", ["erm", "fgm"])
def test_another_method_may_be_more_even(rival: str, measured: Numbers) -> None:
    change(measured, "elu-0", rival, asymmetry=0.001)
    change(measured, "elu-1", rival, asymmetry=0.031)
    change(measured, "settled-1", "wrm", asymmetry=0.051)
    found = claim(measured, SYMMETRY)
    assert found.agrees is False
    assert found.reason == (
        f"not known. WRM's is below FGM's on {1 if rival == 'fgm' else 2} of 2 seeds, and lies between 0.020 "
        "and 0.030. With a step that falls to 0: ERM 0.0650, FGM 0.0450, WRM 0.0355; WRM's is below FGM's on "
        "1 of 2 seeds."
    )


def test_without_another_step_nothing_is_said_of_it(measured: Numbers) -> None:
    change(measured, "elu-0", "fgm", asymmetry=0.001)
    change(measured, "elu-1", "fgm", asymmetry=0.001)
    plain = {name: one for name, one in measured.items() if not name.startswith("settled")}
    assert claim(plain, SYMMETRY).reason == (
        "not known. WRM's is below FGM's on 0 of 2 seeds, and lies between 0.020 and 0.030."
    )


def test_relus_may_be_as_even_as_elus(measured: Numbers) -> None:
    change(measured, "relu-0", "wrm", asymmetry=0.019)
    change(measured, "relu-1", "wrm", asymmetry=0.031)
    found = claim(measured, RELUS)
    assert found.agrees is False
    assert found.reason == "not known; with ELU it is below that with ReLU on 1 of 2 seeds."


@pytest.mark.parametrize("numbers", [{"test_error": 0.01}, {"open_rays": 1}])
def test_medians_are_of_networks_that_learnt(numbers: Numbers, measured: Numbers) -> None:
    """And their number is said."""
    change(measured, "elu-1", "wrm", mean_radius=3.0, asymmetry=0.5, **numbers)
    for which, words in ((RADII, "WRM 1.530 "), (SYMMETRY, "WRM 0.0200 "), (RELUS, "ELU 0.0200 ")):
        found = claim(measured, which)
        assert found.agrees
        assert f"{words}(medians of 2 seeds, for WRM with ELU of the 1 that learnt)." in found.measured


@pytest.mark.parametrize("name", ["erm", "fgm", "wrm"])
def test_of_what_nobody_learnt_nothing_is_said(name: str, measured: Numbers) -> None:
    for seed in range(2):
        change(measured, f"elu-{seed}", name, test_error=0.3)
    for which in (RADII, SYMMETRY) if name != "wrm" else (RADII, SYMMETRY, RELUS):
        found = claim(measured, which)
        assert found.agrees is None
        assert found.reason == "a method has no network that has learnt."
        assert "has not learnt" in found.measured


def test_one_seed_is_no_median(measured: Numbers) -> None:
    one = {name: found for name, found in measured.items() if not name.endswith("-1")}
    assert "(one seed)." in claim(one, RADII).measured


def test_a_point_may_not_be_concave(measured: Numbers) -> None:
    """Then γ above a proven bound on the curvature is a contradiction, on the same seed."""
    measured["elu-1"]["concave_share"] = 0.9996
    found, smooth = claim(measured, CONCAVE), claim(measured, SMOOTH)
    assert found.agrees is False
    assert found.measured == "At all training points with 1 of 2 seeds; at 99.96% of them with the worst."
    assert found.reason == "it depends on the seed; the paper has one network, and does not say which."
    assert smooth.agrees is False
    assert smooth.reason == "a proven bound is below 2γ, and f is not concave at a point."
    measured["elu-1"]["proven_curvature"] = 4.0
    assert claim(measured, SMOOTH).agrees is None


@pytest.mark.parametrize(
    ("bound", "share", "shown", "at"),
    [
        (39.002, 1.0, "39.1", "all training points"),
        (39.002, 0.9996, "39.1", "99.96% of the training points or more"),
        (None, 1.0, "inf", "all training points"),
    ],
)
def test_a_bound_above_the_penalty_says_nothing(
    bound: float | None, share: float, shown: str, at: str, measured: Numbers
) -> None:
    """Rounded up; and what is said of the data is what was found there."""
    measured["elu-1"] |= {"proven_curvature": bound, "concave_share": share}
    found = claim(measured, SMOOTH)
    assert found.agrees is None
    assert f"and {shown} with the worst, against 2γ = 4." in found.measured
    assert found.reason == f"2γ is above this bound with 1 of 2 seeds; at the data f is concave at {at}."
