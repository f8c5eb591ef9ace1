"""One colour and marker for each training method, in every figure of the paper; logarithmic error axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from certus.display.canvas import COLOURS, MARKERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHOD_COLOURS = {  # ERM, FGM and WRM in the paper's yellow, purple and green
    "ERM": COLOURS[4],
    "FGM": COLOURS[3],
    "IFGM": COLOURS[5],
    "PGM": COLOURS[1],
    "WRM": COLOURS[2],
}
METHOD_STYLES: dict[str, dict[str, Any]] = {
    name: {"color": colour, "marker": marker}
    for (name, colour), marker in zip(METHOD_COLOURS.items(), MARKERS, strict=False)
}


def with_logarithmic_errors(figure: Figure) -> Figure:
    """Show error rates on logarithmic axes from half a per cent, where small strengths differ visibly."""
    for axes in figure.axes:
        if axes.get_visible():
            axes.set_yscale("log")
            axes.set_ylim(0.005, 1.8)  # room for the label of the bar
            axes.set_yticks([0.01, 0.03, 0.1, 0.3, 1.0], ["1%", "3%", "10%", "30%", "100%"])
            axes.minorticks_off()
    return figure
