"""Pictures of sweeps: what is drawn is what was given, and a name has one colour in all panels."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists, tuples
from matplotlib.figure import Figure

from certus.display.canvas import COLOURS, save_figure
from certus.display.figures import FAILED, Curve, Panel, failed_attacks, sweep_figure
from certus.errors import ArgumentError, UnsupportedError
from tests.pictures import pixels_of

CURVE = Curve([0.0, 1.0], [0.1, 0.5], [0.0, 0.4], [0.2, 0.6])


def draw_sweeps(panels: list[Panel], path: Path, title: str = "") -> None:
    save_figure(sweep_figure(panels, title), path)


PANELS = [
    Panel("norm 2", "epsilon", "error", {"fgsm": CURVE, "pgd": CURVE}, marked=0.5),
    Panel("wrm", "gamma", "error", {"wrm": CURVE, "pgd": CURVE}),
]


def test_every_name_is_in_the_legend_with_one_colour(drawn: list[Figure], tmp_path: Path) -> None:
    draw_sweeps(PANELS, tmp_path / "a.png")
    (figure,) = drawn
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fgsm", "pgd", "wrm"]
    colours: dict[object, set[object]] = {}
    for axes in figure.axes:
        for line in axes.lines:
            if line.get_label() in ("fgsm", "pgd", "wrm"):
                colours.setdefault(line.get_label(), set()).add(line.get_color())
                assert list(line.get_ydata()) == [0.1, 0.5]  # type: ignore[arg-type]
    assert [len(used) for used in colours.values()] == [1, 1, 1]
    assert len(set().union(*colours.values())) == 3


@pytest.mark.parametrize("count", [1, 3, 4, 5])
def test_any_number_of_panels(count: int, drawn: list[Figure], tmp_path: Path) -> None:
    panels = [replace(PANELS[0], title=f"panel {number}") for number in range(count)]
    draw_sweeps(panels, tmp_path / "deep/a.svg", title="many")
    shown = [axes for axes in drawn[0].axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == [panel.title for panel in panels]
    # Nothing lies on top of anything else, and the picture has all of it: every text is a comment, too.
    corners = {tuple(axes.get_position().p0) for axes in shown}
    assert len(corners) == count
    picture = (tmp_path / "deep/a.svg").read_text()
    for words in ("many", "epsilon", "error", "fgsm", "pgd", *(panel.title for panel in panels)):
        assert f"<!-- {words} -->" in picture


def test_the_title_is_not_repeated(drawn: list[Figure], tmp_path: Path) -> None:
    for panels in ([PANELS[0]], PANELS):
        draw_sweeps(panels, tmp_path / "a.png", title="8 samples; norm 2, 15 steps")
    alone, *both = (axes.get_title() for figure in drawn for axes in figure.axes)
    assert (alone, both) == ("", ["norm 2", "wrm"])


def test_bands_marks_and_single_points(drawn: list[Figure], tmp_path: Path) -> None:
    """Intervals are drawn from low to high; a single value has a stroke for a band."""
    single = Curve([2.0], [0.3], [0.1], [0.4])
    draw_sweeps(
        [PANELS[0], Panel("one", "gamma", "error", {"wrm": single}, logarithmic=True)], tmp_path / "a.png"
    )
    first, second = drawn[0].axes
    for band in first.collections:
        heights = np.asarray(band.get_paths()[0].vertices)[:, 1]
        assert (heights.min(), heights.max()) == (0.0, 0.6)
    assert [list(line.get_xdata()) for line in first.lines if line.get_linestyle() == ":"] == [[0.5, 0.5]]  # type: ignore[arg-type]
    strokes = [np.asarray(path.vertices).tolist() for path in second.collections[0].get_paths()]
    assert strokes == [[[2.0, 0.1], [2.0, 0.4]]]
    assert (first.get_xscale(), second.get_xscale()) == ("linear", "log")
    pixels = pixels_of(tmp_path / "a.png")
    assert all(pixels[colour] > 100 for colour in COLOURS[:2])


def test_failed_attacks_are_marked(drawn: list[Figure], tmp_path: Path) -> None:
    """More room and less found: the attack failed. What falls as it should is not marked."""
    odd = Curve([0.0, 1.0, 2.0, 3.0], [0.1, 0.5, 0.4, 0.5], [0.1] * 4, [0.6] * 4)
    falling = Curve([1.0, 2.0], [0.5, 0.2], [0.1] * 2, [0.6] * 2)
    draw_sweeps([Panel("", "epsilon", "error", {"pgd": odd, "fgsm": falling}, towards=1)], tmp_path / "a.png")
    hollow = [line for line in drawn[0].axes[0].lines if line.get_label() == FAILED]
    assert [np.asarray(line.get_xydata()).tolist() for line in hollow] == [[[2.0, 0.4]], [[2.0, 0.2]]]
    assert all(line.get_markerfacecolor() == "white" for line in hollow)
    named = [" ".join(text.get_text().split()) for text in drawn[0].legends[0].get_texts()]
    assert named == ["pgd", "fgsm", FAILED]
    for towards in (0, -1):  # no attack; an attack that is stronger on the left
        draw_sweeps([Panel("", "gamma", "error", {"wrm": falling}, towards=towards)], tmp_path / "a.png")
        assert [text.get_text() for text in drawn[-1].legends[0].get_texts()] == ["wrm"]


def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="`panels` must not be empty"):
        draw_sweeps([], tmp_path / "a.png")
    with pytest.raises(UnsupportedError, match=r"Cannot draw .*a\.what"):
        draw_sweeps(PANELS, tmp_path / "a.what")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match=r"Pictures need matplotlib: pip install 'certus\[report\]'"):
        draw_sweeps(PANELS, tmp_path / "a.png")


@pytest.mark.parametrize(("marked", "logarithmic"), [(0.1, False), (0.9, False), (0.05, True), (0.9, True)])
def test_the_words_of_a_mark_stay_within_the_axes(marked: float, logarithmic: bool) -> None:
    curve = Curve([0.01, 0.1, 1.0], [0.1, 0.2, 0.3], [0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    figure = sweep_figure(
        [Panel("", "epsilon", "error", {"fgsm": curve}, marked=marked, logarithmic=logarithmic)]
    )
    figure.canvas.draw()
    (axes,) = figure.axes
    (words,) = axes.texts
    said, room = words.get_window_extent(), axes.get_window_extent()
    assert room.x0 <= said.x0
    assert said.x1 <= room.x1


def test_labels_of_small_strengths_do_not_overlap() -> None:
    curve = Curve([0.0, 0.00025, 0.004], [0.1, 0.2, 0.3], [0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    figure = sweep_figure([Panel("", r"ε$_{\mathrm{adv}}$ / C$_∞$", "error", {"fgsm": curve})] * 2)
    figure.canvas.draw()
    for axes in figure.axes:
        shown = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert all(left.x1 < right.x0 for left, right in pairwise(shown))


@given(lists(tuples(integers(0, 20), integers(0, 6)), max_size=8, unique_by=lambda pair: pair[0]))
def test_an_attack_failed_where_a_weaker_one_did_more(points: list[tuple[int, int]]) -> None:
    """All of several in a row, in whatever order they come."""
    strengths, values = [float(point[0]) for point in points], [float(point[1]) for point in points]
    for towards in (1, -1):
        expected = [
            place
            for place, value in enumerate(values)
            if any(
                towards * strengths[weaker] < towards * strengths[place] and values[weaker] > value
                for weaker in range(len(values))
            )
        ]
        assert failed_attacks(strengths, values, towards) == expected
