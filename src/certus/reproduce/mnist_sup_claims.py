"""What the paper says of WRM beside FGM, IFGM and PGM in the sup-norm, and what PGM attacks find of it.

At the small budget WRM *matches* them. At the large one it is better on small attacks and on natural images,
and worse on large attacks. The paper does not say how small and how large; here it is up to 0.1 C and from
0.3 C. A difference that the images cannot tell from none decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from certus.attacks.outcomes import Interval, wilson
from certus.reproduce.mnist_families import SHORT_STEPS, moved_beyond, of_family
from certus.reproduce.mnist_sweeps import NORM_WORDS, NORMS_SHOWN, curve_of, sweeps_of
from certus.reproduce.reproduction import Comparison, Measured
from certus.reproduce.shares import UNTOLD, clear_sign, difference_of_shares, gap_words, is_within

_OTHERS = ("fgm", "ifgm", "pgm")
_MATCH, _SATURATED = 0.05, 0.95
_SMALL, _LARGE = 0.1, 0.3
_SIGNS = {"small": -1, "large": 1}
_NOTHING = f"there is nothing to compare: all err at {_SATURATED:.0%} or more."

Gaps = Mapping[float, Interval]


def sup_claims(measured: Measured, labels: Mapping[str, str], trained_in: str) -> list[Comparison]:
    """Comparisons for the small budget and the large.

    Args:
        labels: small or large → where the paper shows it.
        trained_in: the norm of WRM's cost, "2" or "inf"; the others' is the sup-norm.
    """
    made: list[Comparison] = []
    for name, label in labels.items():
        found = of_family(measured, name)
        if name == "large":
            made.append(_natural_images(found, label))
        for norm in NORMS_SHOWN:
            made += (_matches if name == "small" else _orders)(found, label, norm, trained_in)
    return made


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


def _matches(found: Measured, label: str, norm: str, trained_in: str) -> list[Comparison]:
    words, gaps = f"PGM in {NORM_WORDS[norm]}: WRM matches the other techniques.", error_gaps(found, norm)
    if not gaps:
        return [Comparison(label, words, "Nothing.", None, _NOTHING)]
    at = max(gaps, key=lambda share: abs(gaps[share].value))
    agrees = is_within(list(gaps.values()), _MATCH)
    reason = "" if agrees else UNTOLD.format("the limit")
    if agrees is False:
        reason = _larger(found) if gaps[at].value < 0 else _why_worse(found, norm, trained_in)
    measured = (
        f"Error of WRM less that of the best of them: {gap_words(gaps[at])} at {at:g} C, the largest of "
        f"{len(gaps)} strengths (a match: within {_MATCH:.0%})."
    )
    return [Comparison(label, words, measured, agrees, reason)]


def _natural_images(found: Measured, label: str) -> Comparison:
    networks = {method: found[f"network-{method}-0"] for method in ("wrm", *_OTHERS)}
    shares = {
        method: wilson(round(one["test_error"] * one["test_images"]), one["test_images"])
        for method, one in networks.items()
    }
    own = shares.pop("wrm")
    best = min(shares, key=lambda method: shares[method].value)
    gap = difference_of_shares(own, shares[best])
    agrees = None if gap.low <= 0 <= gap.high else gap.value < 0
    reason = UNTOLD.format(0) if agrees is None else _larger(found)
    return Comparison(
        label,
        "WRM outperforms the others on natural images.",
        f"Error of WRM {own.value:.2%}, of the best other ({best.upper()}) {shares[best].value:.2%}: a "
        f"difference of {gap.low:+.2%} to {gap.high:+.2%} (95%).",
        agrees,
        reason="" if agrees else reason,
    )


def _orders(found: Measured, label: str, norm: str, trained_in: str) -> list[Comparison]:
    return [_order(found, label, norm, size, trained_in) for size in _SIGNS]


def _order(found: Measured, label: str, norm: str, size: str, trained_in: str) -> Comparison:
    """Whether WRM is better on small attacks, or worse on large ones.

    No if at one strength it is clearly not, yes if at one it clearly is; else the images are too few.
    """
    claim = "outperforms" if size == "small" else "is worse than"
    words = f"PGM in {NORM_WORDS[norm]}: WRM {claim} the others on {size} attacks."
    gaps = _of_size(error_gaps(found, norm), size)
    if not gaps:
        return Comparison(label, words, "Nothing.", None, _NOTHING)
    signs = {clear_sign(gap) * _SIGNS[size] for gap in gaps.values()}
    agrees = False if -1 in signs else True if 1 in signs else None
    reason = "" if agrees else UNTOLD.format(0)
    if agrees is False:
        small = size == "small"
        reason = _why_worse(found, norm, trained_in) if small else _why_better(found, norm, trained_in)
    measured = f"Error of WRM less that of the best other: {_listed(gaps)}."
    return Comparison(label, words, measured, agrees, reason)


def _of_size(gaps: Gaps, size: str) -> Gaps:
    """Those of small or of large attacks."""
    return {
        share: gap for share, gap in gaps.items() if (share <= _SMALL if size == "small" else share >= _LARGE)
    }


def _listed(gaps: Gaps) -> str:
    return "; ".join(f"{gap_words(gap)} at {share:g} C" for share, gap in gaps.items())


def _larger(found: Measured) -> str:
    return f"WRM trains for larger attacks: {moved_beyond(found)}."


def _why_worse(found: Measured, norm: str, trained_in: str) -> str:
    """On small attacks."""
    if trained_in == "2":
        return "the others were trained in this norm, WRM in L2." if norm == "inf" else "not known; one seed."
    return _larger(found)


def _why_better(found: Measured, norm: str, trained_in: str) -> str:
    """On large attacks: whether shorter steps say the same."""
    gaps = _of_size(error_gaps(found, norm, SHORT_STEPS), "large")
    if not gaps:
        return "not known; shorter steps were not tried."
    signs = {clear_sign(gap) for gap in gaps.values()}
    why = "not known." if trained_in == "2" else _larger(found)
    if 1 in signs and -1 not in signs:
        why = "it depends on the attack."
    return f"{why} With the shorter steps of SHORT-IFGM: {_listed(gaps)}."
