"""Pictures of sweeps: what is drawn is what was given, and a name has one colour in all panels."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from certus.errors import ArgumentError, UnsupportedError
from certus.figures import sweeps
from certus.figures.sweeps import Curve, Panel, draw_sweeps

CURVE = Curve([0.0, 1.0], [0.1, 0.5], [0.0, 0.4], [0.2, 0.6])
PANELS = [
    Panel("norm 2", "epsilon", "error", {"fgm": CURVE, "pgm": CURVE}, marked=0.5),
    Panel("wrm", "gamma", "error", {"wrm": CURVE, "pgm": CURVE}),
]


def test_every_name_is_in_the_legend_with_one_colour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Figure] = []
    monkeypatch.setattr(sweeps, "save_figure", lambda figure, path: kept.append(figure))
    draw_sweeps(PANELS, tmp_path / "a.png")
    figure = kept[0]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fgm", "pgm", "wrm"]
    colours: dict[object, set[object]] = {}
    for axes in figure.axes:
        for line in axes.lines:
            if line.get_label() in ("fgm", "pgm", "wrm"):
                colours.setdefault(line.get_label(), set()).add(line.get_color())
                assert list(line.get_ydata()) == [0.1, 0.5]  # type: ignore[arg-type]
    assert [len(used) for used in colours.values()] == [1, 1, 1]
    assert len(set().union(*colours.values())) == 3


@pytest.mark.parametrize("count", [1, 3, 4, 5])
def test_any_number_of_panels(count: int, tmp_path: Path) -> None:
    draw_sweeps([PANELS[0]] * count, tmp_path / "deep/a.svg", title="many")
    assert (tmp_path / "deep/a.svg").stat().st_size > 1000


def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="`panels` must not be empty"):
        draw_sweeps([], tmp_path / "a.png")
    with pytest.raises(UnsupportedError, match=r"Cannot draw .*a\.what"):
        draw_sweeps(PANELS, tmp_path / "a.what")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match=r"Pictures need matplotlib: pip install 'certus\[report\]'"):
        draw_sweeps(PANELS, tmp_path / "a.png")
