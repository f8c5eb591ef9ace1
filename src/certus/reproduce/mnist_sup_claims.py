"""What the paper says of WRM beside FGM, IFGM and PGM in the sup-norm, and what PGM attacks find of it.

At the small budget WRM *matches* them. At the large one it is better on small attacks and on natural images,
and worse on large attacks. A difference that the images cannot tell from none decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from certus.attacks.outcomes import Interval, wilson
from certus.evidence import Evidence
from certus.reproduce.mnist_families import SHORT_STEPS, of_family
from certus.reproduce.mnist_sweeps import NORM_WORDS, NORMS_SHOWN, curve_of, sweeps_of
from certus.reproduce.reproduction import Comparison, Measured

_OTHERS = ("fgm", "ifgm", "pgm")
_MATCH, _SATURATED = 0.05, 0.95
_ONE_NORM = {
    "2": "The others were trained in the sup-norm, and are stronger in L2 too.",
    "inf": "The others were trained in this norm, WRM in L2.",
}
_UNTOLD = "0 lies in the interval: so many images cannot tell."
_SAYS = {-1: "outperforms", 1: "is worse than"}


def sup_claims(measured: Measured, labels: Mapping[str, str]) -> list[Comparison]:
    """Comparisons for the small budget and the large: name → where the paper shows it."""
    made: list[Comparison] = []
    for name, label in labels.items():
        found = of_family(measured, name)
        if name == "large":
            made.append(_natural_images(found, label))
        for norm in NORMS_SHOWN:
            gaps = error_gaps(found, norm)
            if not gaps:
                made.append(_nothing_to_compare(name, label, norm))
            elif name == "small":
                made.append(_matches(gaps, label, norm))
            else:
                made.append(_ordered(gaps, found, label, norm, min(gaps), -1))
                made.append(_ordered(gaps, found, label, norm, max(gaps), 1))
    return made


def difference_of_shares(one: Interval, other: Interval) -> Interval:
    """``one`` less ``other`` by Newcombe's interval from those of both: as if each had images of its own.

    Both saw the same images, so that what is hard for both would cancel: the interval errs on the wide side.
    """
    value = one.value - other.value
    down = math.hypot(one.value - one.low, other.high - other.value)
    up = math.hypot(one.high - one.value, other.value - other.low)
    return Interval(value, value - down, value + up)


def error_gaps(found: Measured, norm: str, attack: str = "pgm") -> dict[float, Interval]:
    """Strength → the error of WRM less that of the best of FGM, IFGM and PGM under an attack.

    Strengths at which all of them err nearly always are left out: there is nothing to compare.
    """
    curves = {
        method: curve
        for method, ones in sweeps_of(found, ("wrm", *_OTHERS), attack).items()
        if (curve := curve_of(ones, norm, False)) is not None
    }
    gaps: dict[float, Interval] = {}
    if "wrm" not in curves:
        return gaps
    for place, share in enumerate(curves["wrm"].strengths):
        errors = {
            method: Interval(curve.values[place], curve.low[place], curve.high[place])
            for method, curve in curves.items()
        }
        if share > 0 and min(error.value for error in errors.values()) < _SATURATED:
            own = errors.pop("wrm")
            gaps[share] = difference_of_shares(own, min(errors.values(), key=lambda error: error.value))
    return gaps


def _nothing_to_compare(name: str, label: str, norm: str) -> Comparison:
    return Comparison(
        label,
        f"PGM in {NORM_WORDS[norm]}: WRM beside the other techniques, {name} budget.",
        f"All err at {_SATURATED:.0%} or more everywhere.",
        None,
        "there is nothing to compare.",
        Evidence.ATTAINED,
    )


def _matches(gaps: Mapping[float, Interval], label: str, norm: str) -> Comparison:
    at = max(gaps, key=lambda share: gaps[share].value)
    agrees = gaps[at].value <= _MATCH
    return Comparison(
        label,
        f"PGM in {NORM_WORDS[norm]}: WRM matches the other techniques.",
        f"Error of WRM less that of the best of them: at most {_told(gaps[at])} over {len(gaps)} strengths, "
        f"at {at:g} C (a match: {_MATCH:.0%}).",
        agrees,
        reason="" if agrees else _ONE_NORM[norm],
        evidence=Evidence.ATTAINED,
    )


def _natural_images(found: Measured, label: str) -> Comparison:
    errors = {method: found[f"network-{method}-0"] for method in ("wrm", *_OTHERS)}
    shares = {
        method: wilson(round(one["test_error"] * one["test_images"]), one["test_images"])
        for method, one in errors.items()
    }
    own = shares.pop("wrm")
    best = min(shares, key=lambda method: shares[method].value)
    gap = difference_of_shares(own, shares[best])
    agrees = _verdict(gap, -1)
    why = "" if agrees else _UNTOLD if agrees is None else f"{best.upper()} gives up less here."
    return Comparison(
        label,
        "WRM outperforms the others on natural images.",
        f"Error of WRM {own.value:.2%}, of the best other ({best.upper()}) {shares[best].value:.2%}: a "
        f"difference of {gap.low:+.2%} to {gap.high:+.2%} (95%).",
        agrees,
        reason=why,
    )


def _ordered(
    gaps: Mapping[float, Interval], found: Measured, label: str, norm: str, share: float, sign: int
) -> Comparison:
    """WRM is better (sign −1, small attacks) or worse (+1, large ones) than the best of the others."""
    gap, size = gaps[share], "small" if sign < 0 else "large"
    agrees = _verdict(gap, sign)
    why = ""
    if agrees is None:
        why = _UNTOLD
    elif not agrees:
        why = _ONE_NORM[norm] if sign < 0 else _by_short_steps(found, norm, share)
    return Comparison(
        label,
        f"PGM in {NORM_WORDS[norm]}: WRM {_SAYS[sign]} the others on {size} attacks.",
        f"Error of WRM less that of the best other: {_told(gap)} at {share:g} C.",
        agrees,
        reason=why,
        evidence=Evidence.ATTAINED,
    )


def _verdict(gap: Interval, sign: int) -> bool | None:
    """Whether a difference has the sign; None if 0 lies in its interval."""
    if gap.low <= 0 <= gap.high:
        return None
    return gap.value * sign > 0


def _told(gap: Interval) -> str:
    return f"{gap.value:+.1%} (95%: {gap.low:+.1%} to {gap.high:+.1%})"


def _by_short_steps(found: Measured, norm: str, share: float) -> str:
    """What the weaker attack says at the same strength, where it was tried."""
    short = error_gaps(found, norm, SHORT_STEPS).get(share)
    if short is None:
        return "Shorter steps were not tried."
    turns = "turns" if short.low > 0 else "does not turn"
    return (
        f"It {turns} on the attack's start and step, which the paper does not give: from the image itself, "
        f"in steps of ε/15, the difference is {_told(short)}."
    )
