"""Verdicts on WRM beside FGM, IFGM and PGM in the sup-norm (sec:infElse-2WRM).

At the small budget WRM *matches* them. At the large one it is better on small attacks and on natural images,
and worse on large attacks, in the sup-norm most of all. A gap is the error of WRM less that of the best of
the others, with its 95% interval. Strengths at which all err nearly always are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from certus.attacks.evaluate import Interval, wilson
from studies.mnist_families import LONGER_EPOCHS, LONGER_WRM, of_family
from studies.mnist_sweeps import NORM_WORDS, NORMS_SHOWN, SWEPT_ATTACKS, curve_of, sweeps_of
from studies.page import markdown_table, quantity_text
from studies.reproduction import Measured, Quantity, Verdict, outcome_of
from studies.shares import clear_sign, difference_of_shares, is_within, points

_OTHERS = ("fgm", "ifgm", "pgm")
_MATCH, _SATURATED = 0.05, 0.95
_SMALL, _LARGE = 0.1, 0.3
_WANTED = {"small": -1, "large": 1}
_MATCH_RULE = (
    f"every gap, with its interval, within ±{100 * _MATCH:g} points; *no* where an interval lies beyond; "
    "shown is the largest gap of each attack"
)
_ORDER_RULES = {
    "small": f"up to {_SMALL:g} C, a gap whose interval lies below 0, and none above 0",
    "large": f"from {_LARGE:g} C on, a gap whose interval lies above 0, and none below 0",
}
_ORDER_CLAIMS = {
    "small": "WRM outperforms the others on small attacks.",
    "large": "WRM is worse than the others on large attacks.",
}
_UNDECIDED = "; intervals that all hold 0 are not comparable"
SUP_RULES = (
    "A gap is the error of WRM less that of the best of FGM, IFGM and PGM, in points with its 95% interval. "
    f"Small attacks are those up to {_SMALL:g} C, large ones those from {_LARGE:g} C: our choice. "
    f"Strengths at which all err in {_SATURATED:.0%} or more are left out. Intervals are of the images only; "
    "three seeds of WRM in `mnist` differ by up to 7 points."
)

Gaps = Mapping[float, Interval]


def sup_claims(measured: Measured, labels: Mapping[str, str], prefix: str = "") -> list[Verdict]:
    """Verdicts on the small budget and the large.

    Args:
        labels: small or large → where the paper shows it.
        prefix: of every claim.
    """
    verdicts: list[Verdict] = []
    for name, label in labels.items():
        found = of_family(measured, name)
        if name == "small":
            verdicts += [_matches(found, label, prefix, norm) for norm in NORMS_SHOWN]
        else:
            verdicts.append(_natural_images(found, label, prefix))
            verdicts += [_order(found, label, prefix, norm, size) for norm in NORMS_SHOWN for size in _WANTED]
            verdicts.append(_sup_norm_most(found, label, prefix))
    return verdicts


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


def _matches(found: Measured, label: str, prefix: str, norm: str) -> Verdict:
    by_attack = _by_attack(found, norm)
    largest = {
        attack: dict([max(gaps.items(), key=lambda item: abs(item[1].value))])
        for attack, gaps in by_attack.items()
    }
    return Verdict(
        name=f"match, {NORM_WORDS[norm]}",
        label=label,
        claim=f"{prefix}Attacks in {NORM_WORDS[norm]}: WRM matches the other techniques.",
        rule=_MATCH_RULE,
        outcome=outcome_of(is_within(_all_gaps(by_attack), _MATCH) if by_attack else None),
        ours=_quantities(largest),
    )


def _all_gaps(by_attack: Mapping[str, Gaps]) -> list[Interval]:
    return [gap for gaps in by_attack.values() for gap in gaps.values()]


def _quantities(by_attack: Mapping[str, Gaps]) -> dict[str, Quantity]:
    return {
        f"{attack.upper()} at {share:g} C": points(gap)
        for attack, gaps in by_attack.items()
        for share, gap in gaps.items()
    }


def _natural_images(found: Measured, label: str, prefix: str) -> Verdict:
    networks = {method: found[f"network-{method}-0"] for method in ("wrm", *_OTHERS)}
    shares = {
        method: wilson(round(one["test_error"] * one["test_images"]), one["test_images"])
        for method, one in networks.items()
    }
    own = shares.pop("wrm")
    best = min(shares, key=lambda method: shares[method].value)
    gap = difference_of_shares(own, shares[best])
    sign = clear_sign(gap)
    return Verdict(
        name="natural images",
        label=label,
        claim=f"{prefix}WRM outperforms the others on natural images: a smaller price of robustness.",
        rule="a gap on all test images whose interval lies below 0; one that holds 0 is not comparable",
        outcome=outcome_of(None if sign == 0 else sign < 0),
        ours={
            "WRM": Quantity(own.value, places=2, percent=True),
            best.upper(): Quantity(shares[best].value, places=2, percent=True),
            "gap": points(gap, 2),
        },
    )


def _order(found: Measured, label: str, prefix: str, norm: str, size: str) -> Verdict:
    """Whether WRM is better on small attacks, or worse on large ones."""
    by_attack = _by_attack(found, norm, size)
    signs = [clear_sign(gap) * _WANTED[size] for gap in _all_gaps(by_attack)]
    return Verdict(
        name=f"{size} attacks, {NORM_WORDS[norm]}",
        label=label,
        claim=f"{prefix}Attacks in {NORM_WORDS[norm]}: {_ORDER_CLAIMS[size]}",
        rule=_ORDER_RULES[size] + _UNDECIDED,
        outcome=outcome_of(_decided(signs)),
        ours=_quantities(by_attack),
    )


def _decided(signs: Iterable[int]) -> bool | None:
    """One sign against a claim refutes it; otherwise one for it makes it hold."""
    known = set(signs)
    return False if -1 in known else True if 1 in known else None


def _sup_norm_most(found: Measured, label: str, prefix: str) -> Verdict:
    """Whether WRM falls behind on large attacks more in the sup-norm than in L2."""
    ours: dict[str, Quantity] = {}
    signs = []
    for attack in SWEPT_ATTACKS:
        in_l2, in_sup = (error_gaps(found, norm, attack).get(_LARGE) for norm in NORMS_SHOWN)
        if in_l2 is not None and in_sup is not None:
            ours |= {f"{attack.upper()}, sup-norm": points(in_sup), f"{attack.upper()}, L2": points(in_l2)}
            signs.append((in_sup.low > in_l2.high) - (in_sup.high < in_l2.low))
    return Verdict(
        name="sup-norm most",
        label=label,
        claim=f"{prefix}WRM is worse on large attacks especially in the sup-norm.",
        rule=f"at {_LARGE:g} C, an interval of the gap in the sup-norm above the one in L2 under some "
        "attack, and below it under none; intervals that all overlap are not comparable",
        outcome=outcome_of(_decided(signs)),
        ours=ours,
    )


def longer_text(measured: Measured, names: Iterable[str]) -> str:
    """Tables of the gaps of a WRM that was trained for longer; empty where none was."""
    tables = []
    for name in names:
        found, rows = of_family(measured, name), []
        shares = sorted(
            {
                share
                for norm in NORMS_SHOWN
                for gaps in _by_attack(found, norm, wrm=LONGER_WRM).values()
                for share in gaps
            }
        )
        for norm in NORMS_SHOWN:
            for attack, gaps in _by_attack(found, norm, wrm=LONGER_WRM).items():
                cells = [_gap_text(gaps[share]) if share in gaps else "–" for share in shares]
                rows.append([f"{attack.upper()}, {NORM_WORDS[norm]}", *cells])
        if rows:
            head = [
                f"gap, {name} budget, WRM of {LONGER_EPOCHS} epochs",
                *(f"{share:g} C" for share in shares),
            ]
            tables.append(markdown_table(head, rows))
    return "\n\n".join(tables)


def _gap_text(gap: Interval) -> str:
    return quantity_text(asdict(points(gap)))
