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
    small_budget_wrm,
)
from certus.reproduce.mnist_networks import MEAN_LENGTH, MNIST_METHODS
from certus.reproduce.mnist_sweeps import NORM_WORDS, NORMS_SHOWN, curve_of, sweeps_of
from certus.reproduce.reproduction import Comparison, Extent, Measured, Part, Picture, Reproduction

_MATCH, _SATURATED = 0.05, 0.95
_ONE_NORM = {
    "2": "The others were trained in the sup-norm, and are stronger in L2 too.",
    "inf": "The others were trained in this norm, WRM in L2.",
}
LABELS_OF_INF = {"small": "fig:mnist-infwrm2", "large": "fig:mnist-infwrm2big"}


def _parts(extent: Extent) -> list[Part]:
    wrms = {"small": small_budget_wrm(extent), "large": large_budget_wrm(extent)}
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
    return [
        _claim(name, of_family(measured, name), label, norm)
        for name, label in labels.items()
        for norm in NORMS_SHOWN
    ]


def _claim(name: str, found: Measured, label: str, norm: str) -> Comparison:
    gaps = _gaps(found, norm)
    if not gaps:
        words = f"PGM in {NORM_WORDS[norm]}: WRM beside the other techniques, {name} budget."
        reason = "there is nothing to compare."
        return Comparison(
            label, words, f"All err at {_SATURATED:.0%} or more everywhere.", None, reason, Evidence.ATTAINED
        )
    return _matches(gaps, label, norm) if name == "small" else _wins_then_loses(gaps, found, label, norm)


def _gaps(found: Measured, norm: str) -> dict[float, float]:
    """Strength → the error of WRM less that of the best of FGM, IFGM and PGM under PGM attacks.

    Strengths at which all of them err nearly always are left out: there is nothing to compare.
    """
    curves = {
        method: curve_of(ones, norm, False) for method, ones in sweeps_of(found, MNIST_METHODS, "pgm").items()
    }
    known = {method: curve for method, curve in curves.items() if curve is not None and method != "erm"}
    gaps = {}
    for place, share in enumerate(known["wrm"].strengths):
        errors = {method: curve.values[place] for method, curve in known.items()}
        own = errors.pop("wrm")
        if share > 0 and min(own, *errors.values()) < _SATURATED:
            gaps[share] = own - min(errors.values())
    return gaps


def _matches(gaps: Mapping[float, float], label: str, norm: str) -> Comparison:
    at = max(gaps, key=lambda share: gaps[share])
    agrees = gaps[at] <= _MATCH
    return Comparison(
        label,
        f"PGM in {NORM_WORDS[norm]}: WRM matches the other techniques.",
        f"Error of WRM less that of the best of them: at most {gaps[at]:+.1%} over {len(gaps)} strengths, at "
        f"{at:g} C (a match: {_MATCH:.0%}).",
        agrees,
        reason="" if agrees else _ONE_NORM[norm],
        evidence=Evidence.ATTAINED,
    )


def _wins_then_loses(gaps: Mapping[float, float], found: Measured, label: str, norm: str) -> Comparison:
    least, most = min(gaps), max(gaps)
    clean = found["network-wrm-0"]["test_error"]
    others = min(found[f"network-{method}-0"]["test_error"] for method in ("fgm", "ifgm", "pgm"))
    wins = {
        "small attacks": gaps[least] < 0,
        "natural images": clean < others,
        "large attacks": gaps[most] > 0,
    }
    failed = [name for name, won in wins.items() if not won]
    return Comparison(
        label,
        f"PGM in {NORM_WORDS[norm]}: WRM outperforms the others on small attacks and natural images, and is "
        "worse on large attacks.",
        f"Error of WRM less that of the best other: {gaps[least]:+.1%} at {least:g} C, {gaps[most]:+.1%} at "
        f"{most:g} C; clean {clean:.2%} against {others:.2%}.",
        not failed,
        reason=f"So it is not on {' and '.join(failed)}." if failed else "",
        evidence=Evidence.ATTAINED,
    )


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
