"""What mnist-gamma says of curves that nobody measured: each claim holds, and each can fail."""

from __future__ import annotations

from typing import Any

import pytest

from studies.mnist_gamma import REPRODUCTION, steepness_of_steps
from tests.pictures import line_of, words_of

SHARES = (0.16, 0.08, 0.04, 0.02, 0.01)  # of C₂ = 9.2147; C₂/γ is 6.25, 12.5, 25, 50, 100; γ_adv is the third
STABILITY, SMOOTH, GAINS = range(3)


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


def test_a_curve_that_flattens() -> None:
    found = REPRODUCTION.statements(made_up(0.30, 0.26, 0.20, 0.15, 0.14))
    assert [one.agrees for one in found] == [None, True, True]
    assert [bool(one.reason) for one in found] == [True, False, False]
    assert "from 5 down to 1; it falls at 4 of 4 steps." in found[STABILITY].measured
    assert found[SMOOTH].measured.startswith(
        "Test error by γ of training: 0.16 C₂: 30.0%, 0.08 C₂: 26.0%, 0.04 C₂: 20.0%, 0.02 C₂: 15.0%,"
    )
    # 0.04 over 6.25, beside 0.10 over 18.75
    assert "the steepest step is 1.2 times as steep as the whole way (smooth: no" in found[SMOOTH].measured
    # 10 points over 18.75, then 6 over 75
    assert (
        "lowers the error by 0.53 points for each unit of C₂/γ, the second by 0.08." in found[GAINS].measured
    )


def test_stability_is_of_test_images_and_says_so() -> None:
    found = REPRODUCTION.statements(made_up(0.3, 0.2, 0.1, 0.1, 0.1, levels=(1.0, 2.0, 1.5, 1.5, 0.5)))
    assert found[STABILITY].paper == "(a) Stability: ρ̂_n against 1/γ."
    assert found[STABILITY].measured == (
        "On test images, ρ̂_test at γ_adv: from 1 down to 0.5; it falls at 2 of 4 steps."
    )
    assert "ρ̂_n is of training data" in found[STABILITY].reason
    assert "(a) shows ρ̂_test, of test images; the paper's has ρ̂_n" in REPRODUCTION.pictures[0].caption
    figure = REPRODUCTION.pictures[0].draw(made_up(0.3, 0.2, 0.1, 0.1, 0.1))
    assert "(a) ρ̂ on test images, under the adversary" in words_of(figure)
    assert line_of(figure.axes[1], "under the adversary")[0] == pytest.approx([6.25, 12.5, 25, 50, 100])


@pytest.mark.parametrize(
    ("errors", "times", "agrees"),
    [
        ((0.30, 0.201, 0.15, 0.14, 0.14), "2.0 times", True),  # 0.099 of 0.15, in a third of the way
        ((0.30, 0.19, 0.15, 0.14, 0.14), "2.2 times", False),
        ((0.95, 0.05, 0.05, 0.05, 0.05), "3.0 times", False),
        ((0.05, 0.95, 0.95, 0.05, 0.05), "3.0 times", False),  # a jump upwards
        ((0.015, 0.011, 0.011, 0.01, 0.01), "3.0 times", False),  # however small it is
        ((0.30, 0.29, 0.28, 0.05, 0.04), "1.5 times", True),  # a jump beyond γ_adv is another matter
        ((0.30, 0.30, 0.30, 0.20, 0.20), "1.0 times", True),
    ],
)
def test_a_jump_is_not_smooth(errors: tuple[float, ...], times: str, agrees: bool) -> None:
    found = REPRODUCTION.statements(made_up(*errors))[SMOOTH]
    assert found.agrees is agrees
    assert times in found.measured
    assert found.reason == ("" if agrees else "that step is a jump; why is not known.")


def test_one_step_decides_nothing() -> None:
    few = made_up(0.3, 0.2, 0.1, 0.1, 0.1)
    del few["gamma-0.08"]
    found = REPRODUCTION.statements(few)[SMOOTH]
    assert found.agrees is None
    assert found.reason == "a single step has nothing to be compared with."
    assert "There, over C₂/γ, there is one step (smooth" in found.measured
    assert steepness_of_steps([0.0, 1.0], [1.0, 0.5]) is None


@pytest.mark.parametrize(
    ("errors", "agrees"),
    [
        ((0.30, 0.26, 0.2375, 0.15, 0.01), True),  # 6.25 points over 18.75; 22.75 over 75
        ((0.30, 0.26, 0.2500, 0.15, 0.01), False),  # 5 points over 18.75; 24 over 75
    ],
)
def test_gains_need_not_diminish(errors: tuple[float, ...], agrees: bool) -> None:
    found = REPRODUCTION.statements(made_up(*errors))[GAINS]
    assert found.agrees is agrees
    assert found.reason == ("" if agrees else "they do not, within these γ.")
