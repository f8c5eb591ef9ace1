"""Charts side by side have one scale, which holds all that each of them draws."""

from __future__ import annotations

from typing import Any

from certus.display.report.page import share_axes


def _lines(*values: float | None, **axis: Any) -> dict[str, Any]:
    line = {"type": "scatter", "x": list(range(len(values))), "y": list(values)}
    return {"data": [line], "layout": {"xaxis": {}, "yaxis": {"rangemode": "tozero", **axis}}}


def _bars(base: list[float] | None, *widths: float, mode: str = "tozero") -> dict[str, Any]:
    bar = {"type": "bar", "x": list(widths), "y": ["a", "b"]} | ({} if base is None else {"base": base})
    return {"data": [bar], "layout": {"xaxis": {"rangemode": mode}, "yaxis": {}}}


def test_lines_share_the_upright_axis_and_bars_the_level_one() -> None:
    charts = {
        "bracket-0-loss": _lines(0.5, 1.0, None),
        "bracket-1-loss": _lines(0.25, 2.0),
        "bracket-0-error": _lines(0.5),
        "layers-0": _bars(None, 1.0, 3.0),
        "layers-1": _bars(None, 2.0, 4.0),
        "fragile-0": _bars([2.0, 3.0], 1.0, 1.0, mode="normal"),
        "fragile-1": _bars([4.0, 5.0], 1.0, 2.0, mode="normal"),
        "attacks": _lines(9.0),
    }
    share_axes(charts)
    ranges = {
        name: {axis: one["range"] for axis, one in chart["layout"].items() if "range" in one}
        for name, chart in charts.items()
    }
    assert ranges == {
        "bracket-0-loss": {"yaxis": [0.0, 2.1]},
        "bracket-1-loss": {"yaxis": [0.0, 2.1]},
        "bracket-0-error": {},
        "layers-0": {"xaxis": [0.0, 4.2]},
        "layers-1": {"xaxis": [0.0, 4.2]},
        "fragile-0": {"xaxis": [1.9, 7.15]},
        "fragile-1": {"xaxis": [1.9, 7.15]},
        "attacks": {},
    }


def test_a_range_that_leaves_out_hopeless_bounds_still_does() -> None:
    """Of two, the larger is taken."""
    charts = {"bracket-0-loss": _lines(90.0, range=[0, 1.5]), "bracket-1-loss": _lines(1.0, range=[0, 1.05])}
    share_axes(charts)
    assert [chart["layout"]["yaxis"]["range"] for chart in charts.values()] == [[0, 1.5]] * 2


def test_nothing_but_zeros_is_left_to_the_browser() -> None:
    charts = {"noise-0-error": _lines(0.0, 0.0), "noise-1-error": _lines(None, 0.0)}
    share_axes(charts)
    assert all("range" not in chart["layout"]["yaxis"] for chart in charts.values())
