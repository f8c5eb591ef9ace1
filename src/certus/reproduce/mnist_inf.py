"""L2-WRM beside FGM, IFGM and PGM in the sup-norm (sec:infElse-2WRM): fig:mnist-infwrm2 and -infwrm2big.

The others move by ε = E_n‖T(θ_WRM, Z) − Z‖_∞ (eq:inf-from-2), measured on 5,000 random training images.
"""

from __future__ import annotations

from collections.abc import Mapping

from certus.evidence import Evidence
from certus.reproduce.mnist_families import (
    QUICK_FAMILY,
    SHORTER,
    draw_family,
    family_of,
    family_parts,
    family_text,
    large_budget_wrm,
    of_family,
)
from certus.reproduce.mnist_methods import small_budget_network
from certus.reproduce.mnist_networks import MEAN_LENGTH, MNIST_METHODS
from certus.reproduce.mnist_sweeps import NORMS_SHOWN, curve_of, sweeps_of
from certus.reproduce.reproduction import Comparison, Extent, Measured, Part, Picture, Reproduction

LABELS_OF_INF = {"small": "fig:mnist-infwrm2", "large": "fig:mnist-infwrm2big"}


def _parts(extent: Extent) -> list[Part]:
    wrms = {"small": small_budget_network(extent, "wrm"), "large": large_budget_wrm(extent)}
    return [
        part
        for name, wrm in wrms.items()
        for part in family_parts(extent, name, family_of(extent, wrm, "inf"))
    ]


def inf_marks(found: Measured) -> Mapping[str, float | None]:
    """√ρ̂ of an L2-WRM in units of C₂; the others' ε in units of C_∞ = 1."""
    return {
        "2": found["network-wrm-0"]["rho_hat"] ** 0.5 / MEAN_LENGTH,
        "inf": found["network-fgm-0"]["epsilon"],
    }


def sup_claims(measured: Measured, labels: Mapping[str, str]) -> list[Comparison]:
    """What the paper says of WRM beside sup-norm methods, at the small budget and at the large."""
    made = []
    for name, label in labels.items():
        found = of_family(measured, name)
        sweeps = sweeps_of(found, MNIST_METHODS, "pgm")
        clean = found["network-wrm-0"]["test_error"]
        others = min(found[f"network-{method}-0"]["test_error"] for method in ("fgm", "ifgm", "pgm"))
        for norm in NORMS_SHOWN:
            curves = {method: curve_of(ones, norm, False) for method, ones in sweeps.items()}
            least, most = 1, -1
            rivals = {
                place: min(
                    curve.values[place]
                    for method, curve in curves.items()
                    if curve is not None and method not in ("erm", "wrm")
                )
                for place in (least, most)
            }
            own = curves["wrm"]
            assert own is not None
            gaps = {place: own.values[place] - rivals[place] for place in (least, most)}
            where = f"PGM in {'L2' if norm == '2' else 'the sup-norm'}"
            said = (
                f"{where}: WRM matches the other techniques."
                if name == "small"
                else f"{where}: WRM outperforms the others on small attacks and natural images, and is worse "
                "on large attacks."
            )
            told = (
                f"Error of WRM less that of the best other: {gaps[least]:+.1%} at {own.strengths[least]:g} C"
                f", {gaps[most]:+.1%} at {own.strengths[most]:g} C; clean {clean:.2%} against {others:.2%}."
            )
            agrees = (
                gaps[least] <= 0.03 if name == "small" else gaps[least] <= 0 <= gaps[most] and clean <= others
            )
            made.append(Comparison(label, said, told, agrees, evidence=Evidence.ATTAINED))
    return made


REPRODUCTION = Reproduction(
    name="mnist-inf",
    title="MNIST: L2-WRM beside methods trained in the sup-norm",
    shows=("sec:infElse-2WRM", "eq:inf-from-2", "fig:mnist-infwrm2", "fig:mnist-infwrm2big"),
    minutes={Extent.QUICK: 1.5, Extent.PAPER: 75},
    parts=_parts,
    pictures=(
        Picture("small", "Small budget, γ = 0.04 C₂ (fig:mnist-infwrm2).", draw_family("small", inf_marks)),
        Picture(
            "large", "Large budget, γ = 0.02 C₂ (fig:mnist-infwrm2big).", draw_family("large", inf_marks)
        ),
    ),
    statements=lambda measured: sup_claims(measured, LABELS_OF_INF),
    text=lambda measured: "\n\n".join(family_text(measured, name) for name in LABELS_OF_INF),
    smaller={Extent.QUICK: QUICK_FAMILY, Extent.PAPER: SHORTER},
    needs=("mnist",),
)
