"""What mnist-gamma says of made-up curves: each claim holds, and each can fail."""

from __future__ import annotations

from typing import Any

import pytest

from studies.mnist.gamma import STUDY, steepness_of_steps
from studies.study import Outcome, Verdict
from tests.pictures import line_of, words_of

SHARES = (0.16, 0.08, 0.04, 0.02, 0.01)  # of C₂ = 9.2147; C₂/γ is 6.25, 12.5, 25, 50, 100; γ_adv is the third
STABILITY, SMOOTH, GAINS = range(3)
YES, NO, NONE = Outcome.YES, Outcome.NO, Outcome.NOT_COMPARABLE


def made_up(*errors: float, levels: tuple[float, ...] = (5.0, 4.0, 3.0, 2.0, 1.0)) -> dict[str, Any]:
    """In an order of its own, as parts are measured in one."""
    known = {"rho_hat": 0.5, "clean_error": 0.02}
    found = {
        f"gamma-{share}": known
        | {
            "gamma": share * 9.2147,
            "rows": [{"error": error, "low": error, "high": error, "rho_test": level}],
        }
        for share, error, level in zip(SHARES, errors, levels, strict=True)
    }
    return dict(sorted(found.items()))


def values(verdict: Verdict) -> list[float | None]:
    return [one.value for one in verdict.ours.values()]


def test_a_curve_that_flattens() -> None:
    found = STUDY.verdicts(made_up(0.30, 0.26, 0.20, 0.15, 0.14))
    assert [one.outcome for one in found] == [NONE, YES, YES]
    assert values(found[STABILITY]) == [5, 1, 4, 4]
    assert values(found[SMOOTH]) == pytest.approx([1.2])  # 0.04 over 6.25, beside 0.10 over 18.75
    assert values(found[GAINS]) == pytest.approx([10 / 18.75, 6 / 75])


def test_stability_is_of_test_images() -> None:
    found = STUDY.verdicts(made_up(0.3, 0.2, 0.1, 0.1, 0.1, levels=(1.0, 2.0, 1.5, 1.5, 0.5)))
    assert values(found[STABILITY]) == [1, 0.5, 4, 2]
    figure = STUDY.pictures[0].draw(made_up(0.3, 0.2, 0.1, 0.1, 0.1))
    assert "(a) ρ̂ on test images, under the adversary" in words_of(figure)
    assert line_of(figure.axes[1], "under the adversary")[0] == pytest.approx([6.25, 12.5, 25, 50, 100])


@pytest.mark.parametrize(
    ("errors", "times", "outcome"),
    [
        ((0.30, 0.201, 0.15, 0.14, 0.14), 1.98, YES),  # 0.099 of 0.15, in a third of the way
        ((0.30, 0.19, 0.15, 0.14, 0.14), 2.2, NO),
        ((0.95, 0.05, 0.05, 0.05, 0.05), 3.0, NO),
        ((0.05, 0.95, 0.95, 0.05, 0.05), 3.0, NO),  # a jump upwards
        ((0.015, 0.011, 0.011, 0.01, 0.01), 3.0, NO),  # however small it is
        ((0.30, 0.29, 0.28, 0.05, 0.04), 1.5, YES),  # a jump beyond γ_adv is another matter
        ((0.30, 0.30, 0.30, 0.20, 0.20), 1.0, YES),
    ],
)
def test_a_jump_is_not_smooth(errors: tuple[float, ...], times: float, outcome: Outcome) -> None:
    found = STUDY.verdicts(made_up(*errors))[SMOOTH]
    assert found.outcome is outcome
    assert values(found) == pytest.approx([times])


def test_one_step_decides_nothing() -> None:
    few = made_up(0.3, 0.2, 0.1, 0.1, 0.1)
    del few["gamma-0.08"]
    found = STUDY.verdicts(few)[SMOOTH]
    assert found.outcome is NONE
    assert values(found) == [None]
    assert steepness_of_steps([0.0, 1.0], [1.0, 0.5]) is None


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        ((0.30, 0.26, 0.2375, 0.15, 0.01), YES),  # 6.25 points over 18.75; 22.75 over 75
        ((0.30, 0.26, 0.2500, 0.15, 0.01), NO),  # 5 points over 18.75; 24 over 75
    ],
)
def test_gains_need_not_diminish(errors: tuple[float, ...], outcome: Outcome) -> None:
    assert STUDY.verdicts(made_up(*errors))[GAINS].outcome is outcome
