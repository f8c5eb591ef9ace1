"""The picture of a certificate by smoothing shows its numbers, and says what each line is."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from certus.certificates.population import Move
from certus.display.canvas import COLOURS
from certus.smoothing.certificate import Quantity, SmoothedCertificate
from tests.pictures import line_of, pixels_of, words_of

MOVES = (Move(0.05, 0.3),)
ALL = (
    Quantity("error", 1.0, {8.0: 0.2, 1.0: 0.4}, 0.1, MOVES),
    Quantity("vote", 1.0, {8.0: 0.25, 1.0: 0.45}, 0.12, MOVES),
    Quantity("ideal_vote", 1.0, {8.0: 0.22, 1.0: 0.42}),
    Quantity("loss", 3.0, {20.0: 0.5, 2.0: 1.2}, 0.3, (Move(0.05, 1.0),)),
)


def smoothed(*quantities: Quantity) -> SmoothedCertificate:
    return SmoothedCertificate(
        (0.01, 0.09), 0.25, 100, 51, 0.001, 0.9, 400, 50, 0, 3.0, quantities, {"units": "metres"}
    )


def test_every_line_is_what_the_certificate_says(drawn: list[Figure], tmp_path: Path) -> None:
    found = smoothed(*ALL)
    found.plot(tmp_path / "a.png", title="A run")
    pixels = pixels_of(tmp_path / "a.png")
    assert all(pixels[colour] > 100 for colour in COLOURS[:3])
    (figure,) = drawn
    assert len(figure.axes) == 3
    for axes, name in zip(figure.axes, ("error", "vote", "loss"), strict=True):
        one = found.quantity(name)
        for label, side in (("at most (stated)", one.high), ("at least (attained)", one.low)):
            distances, values = line_of(axes, label)
            assert distances[0] == 0
            assert distances[-1] == pytest.approx(1.1 * 0.3)
            assert values == pytest.approx([side(distance**2) for distance in distances])
        assert axes.get_ylim()[1] == pytest.approx(1.02 * one.ceiling)
        assert axes.get_ylim()[0] < 0  # a line at 0 is not hidden by the axis
        assert axes.get_xlabel() == "root mean square distance √ρ (metres)"
    distances, values = line_of(figure.axes[1], "at most, ideal vote (stated)")
    ideal = found.quantity("ideal_vote")
    assert values == pytest.approx([ideal.high(distance**2) for distance in distances])
    words = " ".join(words_of(figure))
    for told in ("A run", "noise of sigma 0.25", "confidence 0.9", "vote of 51", "min(loss, 3)"):
        assert told in words


def test_an_ideal_vote_alone_has_no_lower_side(drawn: list[Figure], tmp_path: Path) -> None:
    smoothed(ALL[2]).plot(tmp_path / "a.png")
    (figure,) = drawn
    assert [line.get_label() for line in figure.axes[0].lines] == ["at most (stated)"]
