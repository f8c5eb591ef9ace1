"""Draw the picture of the documentation's front page from a certificate, such as that of ``make demo``.

    python -m tools.front_picture demo/run/certificate/certificate.json

It shows the error rate against the root mean square distance √ρ, between its attained and its proven side.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from certus import Certificate

TARGET = Path(__file__).resolve().parents[1] / "docs" / "certificate.svg"
POINTS = 60
PROVEN, ATTAINED = "#0072B2", "#D55E00"  # the colours of all pictures


def draw(certificate: Certificate, target: Path) -> None:
    """Write the picture of a classifier's certificate as SVG.

    Args:
        certificate: of a classifier; the picture ends at its largest ρ.
        target: the file to write.
    """
    farthest = max(certificate.rhos) ** 0.5
    brackets = certificate.curve([(farthest * step / POINTS) ** 2 for step in range(POINTS + 1)])
    distance = [bracket.distance for bracket in brackets]
    low = [100 * (bracket.error_low or 0.0) for bracket in brackets]
    high = [100 * (bracket.error_high or 0.0) for bracket in brackets]
    figure = Figure(figsize=(6.0, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(distance, high, color=PROVEN, label="at most (proven)")
    axes.plot(distance, low, color=ATTAINED, linestyle="--", label="at least (attained)")
    axes.fill_between(distance, low, high, color=PROVEN, alpha=0.12, linewidth=0)
    axes.set(xlim=(0, farthest), ylim=(0, 1.1 * max(high)))
    axes.set(xlabel="root mean square distance √ρ, pixels in [0, 1]", ylabel="worst error rate, %")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    with mpl.rc_context({"svg.hashsalt": "certus"}):  # the same file at every run
        figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.front_picture", description=__doc__.split("\n")[0])
    parser.add_argument("certificate", type=Path, help="the file certificate.json of a classifier")
    draw(Certificate.load(parser.parse_args().certificate), TARGET)
