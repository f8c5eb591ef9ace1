"""Charts of several runs side by side are compared by eye: what they measure has one scale in all of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_AROUND = 0.05


def share_axes(charts: Mapping[str, dict[str, Any]]) -> None:
    """Charts whose names differ in the place of their run alone get the range that holds all of them."""
    alike: dict[str, list[dict[str, Any]]] = {}
    for name, chart in charts.items():
        alike.setdefault(re.sub(r"-\d+", "", name, count=1), []).append(chart)
    for group in alike.values():
        if len(group) > 1:
            axis = "xaxis" if group[0]["data"][0]["type"] == "bar" else "yaxis"
            ranges = [_range(chart, axis) for chart in group]
            both = [min(low for low, _ in ranges), max(high for _, high in ranges)]
            if both[0] < both[1]:
                for chart in group:
                    chart["layout"][axis]["range"] = both


def _range(chart: dict[str, Any], axis: str) -> tuple[float, float]:
    """From 0, unless the axis need not begin there, to a little beyond the largest value."""
    layout = chart["layout"][axis]
    if "range" in layout:
        return layout["range"][0], layout["range"][1]
    ends: list[float] = [0.0] if layout.get("rangemode") == "tozero" else []
    for line in chart["data"]:
        if line["type"] == "bar":
            base = line.get("base", [0.0] * len(line["x"]))
            ends += [*base, *(low + width for low, width in zip(base, line["x"], strict=True))]
        else:
            ends += [value for value in line["y"] if value is not None]
    low, high = min(ends, default=0.0), max(ends, default=0.0)
    around = _AROUND * (high - low)
    return low if low == 0 else low - around, high + around
