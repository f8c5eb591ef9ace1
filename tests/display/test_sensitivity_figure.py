"""A bar for each feature goes from what is attained to what is proven."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure

from certus.display.figures import sensitivity_figure
from tests.pictures import line_of, words_of


def moved(name: str, **bracket: float | None) -> Any:
    known = {"error_low": None, "error_high": None} | bracket
    feature, ends_of = SimpleNamespace(name=name), SimpleNamespace(**known)
    return SimpleNamespace(feature=feature, bracket=ends_of, evidence="proven")


def ends(figure: Figure) -> dict[str, tuple[float, float]]:
    names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    bars: list[Any] = list(figure.axes[0].patches)
    return {name: (bar.get_x(), bar.get_x() + bar.get_width()) for name, bar in zip(names, bars, strict=True)}


def test_bars_of_errors() -> None:
    found = [
        moved("income", error_low=0.3, error_high=0.7, loss_low=9.0, loss_high=9.5),
        moved("age", error_low=0.2, error_high=0.25, loss_low=9.0, loss_high=9.5),
    ]
    figure = sensitivity_figure(found, {"accuracy": 0.9, "loss": 5.0}, 0.25)
    assert list(ends(figure)) == ["2. age", "1. income"]  # from below: the most fragile is on top
    assert ends(figure)["1. income"] == pytest.approx((0.3, 0.7))
    assert ends(figure)["2. age"] == pytest.approx((0.2, 0.25))
    assert line_of(figure.axes[0], "unmoved data")[0] == pytest.approx([0.1, 0.1])
    assert "error: at least (attained, left end), at most (proven, right end)" in words_of(figure)
    assert any("one feature moves by 0.25 of its" in words for words in words_of(figure))


def test_a_regression_has_losses_and_twenty_are_shown() -> None:
    found = [moved(f"f{place}", loss_low=1.0, loss_high=2.0 + place) for place in range(22)]
    figure = sensitivity_figure(found, {"loss": 0.5}, 1.0)
    assert list(ends(figure)) == [f"{place + 1}. f{place}" for place in range(19, -1, -1)]
    assert ends(figure)["4. f3"] == pytest.approx((1.0, 5.0))
    assert line_of(figure.axes[0], "unmoved data")[0] == pytest.approx([0.5, 0.5])
