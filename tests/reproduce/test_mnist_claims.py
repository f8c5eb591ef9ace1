"""What the MNIST results say of made-up numbers: each claim holds for some, and fails for others."""

from __future__ import annotations

from typing import Any

import pytest

from certus.reproduce import mnist_bounds, mnist_gamma, mnist_inf
from certus.reproduce.mnist_networks import MNIST_METHODS
from certus.reproduce.mnist_sweeps import attack_claims, curve_of
from tests.reproduce.made_up import sweep_of


def test_seeds_become_their_mean_and_range() -> None:
    curve = curve_of([sweep_of("erm", 0, 0.0, 0.2, 0.4), sweep_of("erm", 1, 0.1, 0.4, 0.5)], "2", False)
    assert curve is not None
    assert curve.values == pytest.approx([0.05, 0.3, 0.45])
    assert (curve.low, curve.high) == ([0.0, 0.2, 0.4], [0.1, 0.4, 0.5])


@pytest.mark.parametrize(
    ("changed", "agrees"),
    [
        ({}, True),
        ({"fgm": (0.0, 0.1, 0.1)}, False),
        ({"pgm": (0.0, 0.6, 0.4)}, False),
        ({"erm": (0.0, 0.1, 0.1)}, False),
    ],
)
def test_claims_about_attacks(changed: dict[str, tuple[float, ...]], agrees: bool) -> None:
    errors = dict.fromkeys(MNIST_METHODS, (0.0, 0.3, 0.4)) | {"erm": (0.0, 0.5, 0.9), "wrm": (0.5, 0.2, 0.3)}
    measured = {f"pgm-{name}-0": sweep_of(name, 0, *values) for name, values in (errors | changed).items()}
    claims = attack_claims(measured, {"pgm": "fig:mnist"}, "so.", above=0.05)
    assert [one.agrees for one in claims] == [agrees] * 2


WINS = {"wrm": (0.01, 0.2, 0.8), "fgm": (0.02, 0.3, 0.7), "ifgm": (0.02, 0.4, 0.9), "pgm": (0.02, 0.3, 0.8)}


SATURATED = dict.fromkeys(WINS, (0.02, 0.96, 1.0)) | {"wrm": (0.01, 0.9, 1.0)}


def family_of_errors(name: str, errors: dict[str, tuple[float, float, float]]) -> dict[str, Any]:
    """Made up: the error rates of four networks, clean and under two attacks."""
    sweeps = {f"{name}:pgm-{method}-0": sweep_of(method, 0, *values) for method, values in errors.items()}
    clean = {f"{name}:network-{method}-0": {"test_error": values[0]} for method, values in errors.items()}
    return sweeps | clean


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, ""),
        ({"wrm": (0.01, 0.3, 0.8)}, "So it is not on small attacks."),  # as good as the best is not better
        ({"wrm": (0.03, 0.2, 0.8)}, "So it is not on natural images."),
        ({"wrm": (0.01, 0.2, 0.6)}, "So it is not on large attacks."),
        (SATURATED, "So it is not on large attacks."),
    ],
    ids=["agrees", "small", "clean", "large", "saturated"],
)
def test_the_claim_about_the_large_budget_can_fail(
    changed: dict[str, tuple[float, float, float]], reason: str
) -> None:
    claims = mnist_inf.sup_claims(family_of_errors("large", WINS | changed), {"large": "fig:x"})
    assert [(one.agrees, one.reason) for one in claims] == [(not reason, reason)] * 2


@pytest.mark.parametrize("name", ["small", "large"])
def test_where_all_err_always_there_is_nothing_to_compare(name: str) -> None:
    errors = dict.fromkeys(WINS, (0.9, 0.96, 1.0))
    claims = mnist_inf.sup_claims(family_of_errors(name, errors), {name: "fig:x"})
    assert [(one.agrees, one.reason) for one in claims] == [(None, "there is nothing to compare.")] * 2


@pytest.mark.parametrize(("strongest", "agrees"), [(0.74, True), (0.76, False)])
def test_wrm_matches_only_if_it_does_at_every_strength(strongest: float, agrees: bool) -> None:
    errors = WINS | {"wrm": (0.01, 0.2, strongest)}
    claims = mnist_inf.sup_claims(family_of_errors("small", errors), {"small": "fig:x"})
    assert [one.agrees for one in claims] == [agrees] * 2
    assert all(bool(one.reason) != agrees for one in claims)


@pytest.mark.parametrize(
    ("errors", "agrees"),
    [
        ([0.30, 0.27, 0.25, 0.24], [None, True, True]),
        ([0.95, 0.05, 0.05, 0.05], [None, False, True]),  # a cliff before γ_adv
        ([0.30, 0.29, 0.28, 0.05], [None, True, False]),  # beyond it; but gains do not diminish
    ],
)
def test_claims_about_many_gammas(errors: list[float], agrees: list[bool | None]) -> None:
    measured = {
        f"gamma-{share}": {"gamma": share * 9.2147, "rows": [{"error": error, "rho_test": 1.0}]}
        for share, error in zip((0.16, 0.08, 0.04, 0.01), errors, strict=True)
    }
    assert [one.agrees for one in mnist_gamma.REPRODUCTION.statements(measured)] == agrees


@pytest.mark.parametrize(("bar", "agrees"), [(1.97e6, True), (5e6, True), (1e7, False), (1e5, False)])
def test_the_papers_bound_must_be_alike(bar: float, agrees: bool) -> None:
    errors = {"unclipped": [0.0, 0.5], "clipped": [0.0, 0.5]}
    common = {"table": "tab:mnist-extra1", "errors": errors, "strengths": [0.0, 0.1], "clean_error": 0.0}
    erm = common | {"method": "erm", "gamma": None, "bounds": {"paper": bar}, "needed": bar / 9}
    wrm = common | {"method": "wrm", "gamma": 1.0, "bounds": {"paper": bar}, "needed": bar / 9}
    first, second, *_ = mnist_bounds.REPRODUCTION.statements({"a": erm, "b": wrm})
    assert (first.agrees, second.agrees) == (agrees, False)
    assert second.reason
