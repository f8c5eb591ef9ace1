"""What the paper says of WRM beside FGM, IFGM and PGM in the sup-norm, and what the attacks find of it.

At the small budget WRM *matches* them. At the large one it is better on small attacks and on natural images,
and worse on large attacks, in the sup-norm most of all. A difference that the images cannot tell from none
decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from certus.attacks.evaluate import Interval, wilson
from studies.mnist_families import (
    FEWER_EPOCHS,
    LONGER_EPOCHS,
    LONGER_WRM,
    moved_beyond,
    of_family,
)
from studies.mnist_sweeps import (
    NORM_WORDS,
    NORMS_SHOWN,
    SWEPT_ATTACKS,
    curve_of,
    error_at,
    sweeps_of,
)
from studies.reproduction import Comparison, Measured
from studies.shares import UNTOLD, clear_sign, difference_of_shares, gap_words, is_within

_OTHERS = ("fgm", "ifgm", "pgm")
_MATCH, _SATURATED = 0.05, 0.95
_SMALL, _LARGE = 0.1, 0.3
_WANTED = {"small": -1, "large": 1}
_NOTHING = f"there is nothing to compare: all err at {_SATURATED:.0%} or more."
_SHORT = f"WRM had {FEWER_EPOCHS} epochs"
_LEAD = "Error of WRM less that of the best other, in points (95%): "
SUP_RULES = (
    f"Small attacks are those up to {_SMALL:g} C, large ones those from {_LARGE:g} C: our choice. "
    f"Strengths at which all err in {_SATURATED:.0%} or more are left out. One clear difference against a "
    "statement makes it a no; else one for it makes it a yes. Intervals are of the images only; "
    "three seeds of WRM in `mnist` differ by up to 7 points."
)

Gaps = Mapping[float, Interval]


def sup_claims(measured: Measured, labels: Mapping[str, str], trained_in: str) -> list[Comparison]:
    """Comparisons for the small budget and the large.

    Args:
        labels: small or large → where the paper shows it.
        trained_in: the norm of WRM's cost, "2" or "inf"; the others' is the sup-norm. Of "inf" the paper says
            only that similar trends hold.
    """
    made: list[Comparison] = []
    prefix = "Similar trends: " if trained_in == "inf" else ""
    for name, label in labels.items():
        found = of_family(measured, name)
        why = _why(measured, name, trained_in)
        if name == "small":
            made += [_matches(found, label, prefix, norm, why) for norm in NORMS_SHOWN]
        else:
            made.append(_natural_images(found, label, prefix, why))
            made += [
                _order(found, label, prefix, norm, size, why) for norm in NORMS_SHOWN for size in _WANTED
            ]
            made.append(_sup_norm_most(found, label, prefix, why))
    return made


def error_gaps(found: Measured, norm: str, attack: str, wrm: str = "wrm") -> dict[float, Interval]:
    """Strength → the error of a WRM less that of the best of FGM, IFGM and PGM under an attack.

    Strengths at which all of them err nearly always are left out: there is nothing to compare.
    """
    curves = {
        method: curve
        for method, ones in sweeps_of(found, (wrm, *_OTHERS), attack).items()
        if (curve := curve_of(ones, norm, False)) is not None
    }
    gaps: dict[float, Interval] = {}
    if wrm not in curves:
        return gaps
    for place, share in enumerate(curves[wrm].strengths):
        errors = {
            method: Interval(curve.values[place], curve.low[place], curve.high[place])
            for method, curve in curves.items()
        }
        if share > 0 and min(error.value for error in errors.values()) < _SATURATED:
            own = errors.pop(wrm)
            gaps[share] = difference_of_shares(own, min(errors.values(), key=lambda error: error.value))
    return gaps


def _by_attack(found: Measured, norm: str, size: str = "any", wrm: str = "wrm") -> dict[str, Gaps]:
    """Attack → differences; at small or large strengths only, where asked for."""
    made: dict[str, Gaps] = {}
    for attack in SWEPT_ATTACKS:
        gaps = error_gaps(found, norm, attack, wrm)
        if size != "any":
            small = size == "small"
            gaps = {s: gap for s, gap in gaps.items() if (s <= _SMALL if small else s >= _LARGE)}
        if gaps:
            made[attack] = gaps
    return made


def _matches(found: Measured, label: str, prefix: str, norm: str, why: str) -> Comparison:
    words = f"{prefix}Attacks in {NORM_WORDS[norm]}: WRM matches the other techniques."
    by_attack = _by_attack(found, norm)
    if not by_attack:
        return Comparison(label, words, "Nothing.", None, _NOTHING)
    agrees = is_within([gap for gaps in by_attack.values() for gap in gaps.values()], _MATCH)
    longer = _by_attack(found, norm, wrm=LONGER_WRM)
    if longer:
        matches = all(abs(gap.value) <= _MATCH for gaps in longer.values() for gap in gaps.values())
        why = _with_more_epochs(_SHORT + "." if matches else why, _largest(longer))
    largest = _told(_largest(by_attack))
    return Comparison(
        label,
        words,
        f"{_LEAD}{largest}, each the largest of its strengths (a match: within {100 * _MATCH:g}).",
        agrees,
        reason="" if agrees else UNTOLD.format("the limit") if agrees is None else why,
    )


def _largest(by_attack: Mapping[str, Gaps]) -> dict[str, Gaps]:
    """Of each attack the largest difference."""
    made: dict[str, Gaps] = {}
    for attack, gaps in by_attack.items():
        at = max(gaps, key=lambda share: abs(gaps[share].value))
        made[attack] = {at: gaps[at]}
    return made


def _natural_images(found: Measured, label: str, prefix: str, why: str) -> Comparison:
    networks = {method: found[f"network-{method}-0"] for method in ("wrm", *_OTHERS)}
    shares = {
        method: wilson(round(one["test_error"] * one["test_images"]), one["test_images"])
        for method, one in networks.items()
    }
    own = shares.pop("wrm")
    best = min(shares, key=lambda method: shares[method].value)
    gap = difference_of_shares(own, shares[best])
    sign = clear_sign(gap)
    return Comparison(
        label,
        f"{prefix}WRM outperforms the others on natural images: a smaller price of robustness.",
        f"Error of WRM {own.value:.2%}, of the best other ({best.upper()}) {shares[best].value:.2%}: "
        f"{gap_words(gap, 2)} points (95%).",
        None if sign == 0 else sign < 0,
        reason="" if sign < 0 else UNTOLD.format(0) if sign == 0 else why,
    )


def _order(found: Measured, label: str, prefix: str, norm: str, size: str, why: str) -> Comparison:
    """Whether WRM is better on small attacks, or worse on large ones.

    No if at one strength it is clearly not, yes if at one it clearly is; else the images cannot tell.
    """
    claim = "outperforms" if size == "small" else "is worse than"
    words = f"{prefix}Attacks in {NORM_WORDS[norm]}: WRM {claim} the others on {size} attacks."
    by_attack = _by_attack(found, norm, size)
    if not by_attack:
        return Comparison(label, words, "Nothing.", None, _NOTHING)
    signs = {
        attack: {clear_sign(gap) * _WANTED[size] for gap in gaps.values()}
        for attack, gaps in by_attack.items()
    }
    every = set().union(*signs.values())
    agrees = False if -1 in every else True if 1 in every else None
    as_said = [attack.upper() for attack, found_signs in signs.items() if found_signs - {0} == {1}]
    longer = _by_attack(found, norm, size, wrm=LONGER_WRM)
    if agrees is False and longer:
        against = [
            gap for gaps in longer.values() for gap in gaps.values() if clear_sign(gap) * _WANTED[size] < 0
        ]
        why = _with_more_epochs(why if against else f"{_SHORT}, and with more it cannot be told.", longer)
    if agrees is False and as_said:
        why = f"it depends on the attack: it is so under {' and '.join(as_said)}."
    reason = "" if agrees else UNTOLD.format(0) if agrees is None else why
    return Comparison(label, words, f"{_LEAD}{_told(by_attack)}.", agrees, reason)


def _sup_norm_most(found: Measured, label: str, prefix: str, why: str) -> Comparison:
    """Whether WRM falls behind on large attacks more in the sup-norm than in L2."""
    words = f"{prefix}WRM is worse on large attacks especially in the sup-norm."
    told, clear = [], set()
    for attack in SWEPT_ATTACKS:
        in_l2, in_sup = (error_gaps(found, norm, attack).get(_LARGE) for norm in NORMS_SHOWN)
        if in_l2 is not None and in_sup is not None:
            told.append(f"{attack.upper()} {gap_words(in_sup)} beside {gap_words(in_l2)}")
            clear.add((in_sup.low > in_l2.high) - (in_sup.high < in_l2.low))
    if not told:
        return Comparison(label, words, "Nothing.", None, _NOTHING)
    agrees = False if -1 in clear else True if 1 in clear else None
    return Comparison(
        label,
        words,
        f"{_LEAD}at {_LARGE:g} C, in the sup-norm beside L2: {'; '.join(told)}.",
        agrees,
        reason="" if agrees else "the images cannot tell: the intervals overlap." if agrees is None else why,
    )


def _told(by_attack: Mapping[str, Gaps]) -> str:
    return "; ".join(
        f"{attack.upper()} " + ", ".join(f"{gap_words(gap)} at {share:g} C" for share, gap in gaps.items())
        for attack, gaps in by_attack.items()
    )


def _with_more_epochs(cause: str, longer: Mapping[str, Gaps]) -> str:
    """A cause, and what a longer training of WRM brings."""
    return f"{cause} After {LONGER_EPOCHS}, beside the same others: {_told(longer)}."


def _why(measured: Measured, name: str, trained_in: str) -> str:
    """Of a disagreement: nothing is known, but how far a sup-norm WRM goes, and what that does to PGM."""
    if trained_in == "2":
        return "not known; one seed."
    small, large = (of_family(measured, one) for one in ("small", "large"))
    moved = moved_beyond(of_family(measured, name))
    cause = f"likely, WRM trains for larger attacks: {moved}."
    if not (small and large):
        return cause
    epsilons = [found["network-pgm-0"]["epsilon"] for found in (small, large)]
    clean = [found["network-pgm-0"]["test_error"] for found in (small, large)]
    curves = [curve_of([found["pgm-pgm-0"]], "inf", False) for found in (small, large)]
    strengths = [set(curve.strengths) for curve in curves if curve is not None]
    share = max(set.intersection(*strengths))
    errors = [error_at([found["pgm-pgm-0"]], "inf", share) for found in (small, large)]
    return (
        f"{cause} Larger ones do that to PGM, too: with ε = {epsilons[1]:.3f} in place of {epsilons[0]:.3f} "
        f"it errs in {errors[1]:.1%} in place of {errors[0]:.1%} at {share:g} C in the sup-norm, and in "
        f"{clean[1]:.2%} in place of {clean[0]:.2%} of natural images."
    )
