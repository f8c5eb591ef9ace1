"""L2-WRM beside FGM, IFGM and PGM in the sup-norm (sec:infElse-2WRM): fig:mnist-infwrm2 and -infwrm2big.

The others move by ε = E_n‖T(θ_WRM, Z) − Z‖_∞ (eq:inf-from-2), measured on 5,000 random training images.
"""

from __future__ import annotations

from collections.abc import Mapping

from studies.mnist_families import (
    ATTACK_UNITS,
    BY_PAPER,
    QUICK_FAMILY,
    SHORTER,
    draw_family,
    family_of,
    family_text,
    large_budget_wrm,
    of_family,
    other_wrm_parts,
    small_budget_wrm,
    sup_family_parts,
)
from studies.mnist_networks import MEAN_LENGTH, mnist_training
from studies.mnist_sup_claims import SUP_RULES, longer_text, sup_claims
from studies.mnist_sweeps import NORM_WORDS, NORMS_SHOWN, SWEPT_ATTACKS, curve_of
from studies.page import markdown_table
from studies.reproduction import Extent, Measured, Part, Picture, Reproduction

_BARS = "Dotted: √ρ̂ of WRM in L2, ε of the others in the sup-norm; shaded: 95% intervals."
_LABELS = {"small": "fig:mnist-infwrm2", "large": "fig:mnist-infwrm2big"}


def _parts(extent: Extent) -> list[Part]:
    wrms = {"small": small_budget_wrm(extent), "large": large_budget_wrm(extent)}
    parts = []
    for name, wrm in wrms.items():
        parts += sup_family_parts(extent, name, family_of(extent, wrm, "inf"))
    return parts if extent is Extent.QUICK else parts + other_wrm_parts()


def _marks(found: Measured) -> Mapping[str, float | None]:
    """√ρ̂ of an L2-WRM in units of C₂; the others' ε in units of C_∞ = 1."""
    return {
        "2": found["network-wrm-0"]["rho_hat"] ** 0.5 / MEAN_LENGTH,
        "inf": found["network-fgm-0"]["epsilon"],
    }


def by_paper_text(measured: Measured) -> str:
    """WRM of the small budget by the paper's ascent beside this library's, where it was measured."""
    found, rows = of_family(measured, "small"), []
    if f"network-{BY_PAPER}-0" not in found:
        return ""
    networks = [found[f"network-{kind}-0"] for kind in ("wrm", BY_PAPER)]
    clean, reached = (
        " / ".join(words)
        for words in (
            [f"{one['test_error']:.2%}" for one in networks],
            [f"{one['rho_hat'] ** 0.5:.4f}" for one in networks],
        )
    )
    for attack in SWEPT_ATTACKS:
        for norm in NORMS_SHOWN:
            curves = [curve_of([found[f"{attack}-{kind}-0"]], norm, False) for kind in ("wrm", BY_PAPER)]
            ours, theirs = (curve.values for curve in curves if curve is not None)
            cells = [f"{100 * one:.1f} / {100 * other:.1f}" for one, other in zip(ours, theirs, strict=True)]
            rows.append([f"{attack.upper()}, {NORM_WORDS[norm]}", *cells])
    shares = [row["share"] for row in found["pgm-wrm-0"]["rows"] if row["norm"] == "2"]
    return (
        "**The ascent.** The paper takes 15 steps for every inner problem of WRM; this library stops when it "
        f"is solved well enough. At the small budget, ours / the paper's: test error {clean}; √ρ̂ {reached}, "
        "each by its own ascent; errors under attack:\n\n"
        + markdown_table(["attack", *(f"{share:g} C" for share in shares)], rows)
    )


def _text(measured: Measured) -> str:
    families = [family_text(measured, name, "2", "inf") for name in _LABELS]
    parts = [ATTACK_UNITS, SUP_RULES, *families, longer_text(measured, _LABELS), by_paper_text(measured)]
    return "\n\n".join(part for part in parts if part)


REPRODUCTION = Reproduction(
    name="mnist-inf",
    title="MNIST: L2-WRM beside methods trained in the sup-norm",
    shows=("sec:infElse-2WRM", "eq:inf-from-2", "fig:mnist-infwrm2", "fig:mnist-infwrm2big"),
    minutes={Extent.QUICK: 1.5, Extent.PAPER: 120},
    parts=_parts,
    pictures=tuple(
        Picture(name, f"{words} ({_LABELS[name]}). {_BARS}", draw_family(name, _marks))
        for name, words in (("small", "Small budget, γ = 0.04 C₂"), ("large", "Large budget, γ = 0.02 C₂"))
    ),
    statements=lambda measured: sup_claims(measured, _LABELS),
    text=_text,
    smaller={Extent.QUICK: QUICK_FAMILY, Extent.PAPER: SHORTER},
    needs=("mnist",),
    training=mnist_training,
)
