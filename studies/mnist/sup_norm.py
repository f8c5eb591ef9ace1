"""WRM beside FGM, IFGM and PGM in the sup-norm: the studies ``mnist-inf`` and ``mnist-prox``.

mnist-inf    L2-WRM (sec:infElse-2WRM; fig:mnist-infwrm2 and -infwrm2big). The others move by
             ε = E_n‖T(θ_WRM, Z) − Z‖_∞ (eq:inf-from-2), measured on 5,000 random training images.
mnist-prox   sup-norm WRM by the proximal ascent (fig:mnist-proxsmall and -proxbig). The others move by ε = √ρ̂
             of the sup-norm cost. The paper does not give its γ; here γ follows ρ, the square of the ε of
             `mnist-inf`, so that the others are the same networks.

At the small budget WRM *matches* them. At the large one it is better on small attacks and on natural images,
and worse on large attacks, in the sup-norm most of all. A gap is the error of WRM less that of the best of
the others, with its 95% interval. Strengths at which all err nearly always are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from certus.attacks.evaluation import Interval, wilson
from studies.mnist.families import (
    ATTACK_UNITS,
    BY_PAPER,
    FEWER_EPOCHS,
    LONGER_EPOCHS,
    LONGER_WRM,
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
from studies.mnist.networks import MEAN_LENGTH, mnist_training, recipe
from studies.mnist.sweeps import (
    NORM_WORDS,
    NORMS_SHOWN,
    SWEPT_ATTACKS,
    clear_sign,
    curve_of,
    difference_of_proportions,
    is_within,
    points,
    sweeps_of,
)
from studies.page import markdown_table, quantity_text
from studies.study import Measured, Part, Picture, Quantity, Scale, Study, Verdict, outcome_of

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
    "A gap is the error of WRM minus that of the best of FGM, IFGM and PGM, in points, with its 95% "
    f"interval. Small attacks are those up to {_SMALL:g} C, large ones those from {_LARGE:g} C: our choice. "
    f"Strengths at which every error is {_SATURATED:.0%} or more are omitted. Intervals are over the images "
    "only; three seeds of WRM in `mnist` differ by up to 7 points."
)

Gaps = Mapping[float, Interval]


def sup_norm_verdicts(measured: Measured, labels: Mapping[str, str], prefix: str = "") -> list[Verdict]:
    """Judge the claims about the small budget and the large.

    Args:
        labels: small or large → where the paper shows it.
        prefix: of every claim.
    """
    verdicts: list[Verdict] = []
    for name, label in labels.items():
        family = of_family(measured, name)
        if name == "small":
            verdicts += [_matches(family, label, prefix, norm) for norm in NORMS_SHOWN]
        else:
            verdicts.append(_natural_images(family, label, prefix))
            verdicts += [
                _order(family, label, prefix, norm, size) for norm in NORMS_SHOWN for size in _WANTED
            ]
            verdicts.append(_sup_norm_most(family, label, prefix))
    return verdicts


def error_gaps(family: Measured, norm: str, attack: str, wrm: str = "wrm") -> dict[float, Interval]:
    """Return strength → the error of a WRM less that of the best of FGM, IFGM and PGM under an attack.

    Strengths at which all of them err nearly always are left out: there is nothing to compare.
    """
    curves = {
        method: curve
        for method, ones in sweeps_of(family, (wrm, *_OTHERS), attack).items()
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
            gaps[share] = difference_of_proportions(own, min(errors.values(), key=lambda error: error.value))
    return gaps


def _by_attack(family: Measured, norm: str, size: str = "any", wrm: str = "wrm") -> dict[str, Gaps]:
    """Return attack → gaps, of small or large strengths only if ``size`` says so."""
    by_attack: dict[str, Gaps] = {}
    for attack in SWEPT_ATTACKS:
        gaps = error_gaps(family, norm, attack, wrm)
        if size != "any":
            small = size == "small"
            gaps = {s: gap for s, gap in gaps.items() if (s <= _SMALL if small else s >= _LARGE)}
        if gaps:
            by_attack[attack] = gaps
    return by_attack


def _matches(family: Measured, label: str, prefix: str, norm: str) -> Verdict:
    by_attack = _by_attack(family, norm)
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


def _natural_images(family: Measured, label: str, prefix: str) -> Verdict:
    networks = {method: family[f"network-{method}-0"] for method in ("wrm", *_OTHERS)}
    shares = {
        method: wilson(round(entry["test_error"] * entry["test_images"]), entry["test_images"])
        for method, entry in networks.items()
    }
    own = shares.pop("wrm")
    best = min(shares, key=lambda method: shares[method].value)
    gap = difference_of_proportions(own, shares[best])
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


def _order(family: Measured, label: str, prefix: str, norm: str, size: str) -> Verdict:
    """Judge whether WRM is better on small attacks, or worse on large ones."""
    by_attack = _by_attack(family, norm, size)
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
    """Decide a claim: one sign against it refutes it; otherwise one for it makes it hold."""
    signs_seen = set(signs)
    return False if -1 in signs_seen else True if 1 in signs_seen else None


def _sup_norm_most(family: Measured, label: str, prefix: str) -> Verdict:
    """Judge whether WRM falls behind on large attacks more in the sup-norm than in L2."""
    ours: dict[str, Quantity] = {}
    signs = []
    for attack in SWEPT_ATTACKS:
        in_l2, in_sup = (error_gaps(family, norm, attack).get(_LARGE) for norm in NORMS_SHOWN)
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
    """Return tables of the gaps of a WRM with more epochs; empty where none was measured."""
    tables = []
    for name in names:
        family, rows = of_family(measured, name), []
        shares = sorted(
            {
                share
                for norm in NORMS_SHOWN
                for gaps in _by_attack(family, norm, wrm=LONGER_WRM).values()
                for share in gaps
            }
        )
        for norm in NORMS_SHOWN:
            for attack, gaps in _by_attack(family, norm, wrm=LONGER_WRM).items():
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


_BARS = "Dotted: √ρ̂ of WRM in L2, ε of the others in the sup-norm; shaded: 95% intervals."
_LABELS = {"small": "fig:mnist-infwrm2", "large": "fig:mnist-infwrm2big"}


def _parts(scale: Scale) -> list[Part]:
    wrms = {"small": small_budget_wrm(scale), "large": large_budget_wrm(scale)}
    parts = []
    for name, wrm in wrms.items():
        parts += sup_family_parts(scale, name, family_of(scale, wrm, "inf"))
    return parts if scale is Scale.QUICK else parts + other_wrm_parts()


def _marks(family: Measured) -> Mapping[str, float | None]:
    """Return √ρ̂ of an L2-WRM in units of C₂, and the others' ε in units of C_∞ = 1."""
    return {
        "2": family["network-wrm-0"]["rho_hat"] ** 0.5 / MEAN_LENGTH,
        "inf": family["network-fgm-0"]["epsilon"],
    }


def by_paper_text(measured: Measured) -> str:
    """Compare WRM by the paper's ascent with this library's, where it was measured."""
    family, rows = of_family(measured, "small"), []
    if f"network-{BY_PAPER}-0" not in family:
        return ""
    networks = [family[f"network-{kind}-0"] for kind in ("wrm", BY_PAPER)]
    clean, reached = (
        " / ".join(words)
        for words in (
            [f"{network['test_error']:.2%}" for network in networks],
            [f"{network['rho_hat'] ** 0.5:.4f}" for network in networks],
        )
    )
    for attack in SWEPT_ATTACKS:
        for norm in NORMS_SHOWN:
            curves = [curve_of([family[f"{attack}-{kind}-0"]], norm, False) for kind in ("wrm", BY_PAPER)]
            ours, theirs = (curve.values for curve in curves if curve is not None)
            cells = [f"{100 * own:.1f} / {100 * other:.1f}" for own, other in zip(ours, theirs, strict=True)]
            rows.append([f"{attack.upper()}, {NORM_WORDS[norm]}", *cells])
    shares = [row["share"] for row in family["pgm-wrm-0"]["rows"] if row["norm"] == "2"]
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


STUDY = Study(
    name="mnist-inf",
    title="MNIST: L2-WRM beside methods trained in the sup-norm",
    labels=("sec:infElse-2WRM", "eq:inf-from-2", "fig:mnist-infwrm2", "fig:mnist-infwrm2big"),
    minutes={Scale.QUICK: 1.5, Scale.FULL: 120},
    parts=_parts,
    pictures=tuple(
        Picture(name, f"{words} ({_LABELS[name]}). {_BARS}", draw_family(name, _marks))
        for name, words in (("small", "Small budget, γ = 0.04 C₂"), ("large", "Large budget, γ = 0.02 C₂"))
    ),
    verdicts=lambda measured: sup_norm_verdicts(measured, _LABELS),
    text=_text,
    scope={Scale.QUICK: QUICK_FAMILY, Scale.FULL: SHORTER},
    datasets=("mnist",),
    training=mnist_training,
)

_PROX_BARS = "Dotted, in the sup-norm: √ρ̂ of WRM; shaded: 95% intervals."
_PROX_LABELS = {"small": "fig:mnist-proxsmall", "large": "fig:mnist-proxbig"}


def _prox_parts(scale: Scale) -> list[Part]:
    budgets = {"small": small_budget_wrm(scale), "large": large_budget_wrm(scale)}
    parts = []
    for name, like in budgets.items():
        wrm = recipe(scale, "wrm", FEWER_EPOCHS, cost="linf", norm="inf", as_far_as=like)
        parts += sup_family_parts(scale, name, family_of(scale, wrm, "inf", budget=like))
    return parts


def _prox_marks(family: Measured) -> Mapping[str, float | None]:
    return {"2": None, "inf": family["network-wrm-0"]["rho_hat"] ** 0.5}


def _prox_text(measured: Measured) -> str:
    budgets = []
    for name in _PROX_LABELS:
        family = of_family(measured, name)
        epsilon, reached = family["network-fgm-0"]["epsilon"], family["network-wrm-0"]["rho_hat"] ** 0.5
        budgets.append(f"{reached:.4f} for {epsilon:.4f} ({reached / epsilon - 1:+.1%})")
    words = (
        "The paper gives no γ for the sup-norm cost, and trains the other methods with ε = √ρ̂. Here ε is "
        "that of `mnist-inf` (eq:inf-from-2), so that the other methods share its networks, and WRM finds "
        f"the γ at which √ρ̂ is ε. It reached {' and '.join(budgets)}."
    )
    return "\n\n".join(
        [
            ATTACK_UNITS,
            SUP_RULES,
            words,
            *(family_text(measured, name, "inf", "inf") for name in _PROX_LABELS),
        ]
    )


PROX_STUDY = Study(
    name="mnist-prox",
    title="MNIST: all methods in the sup-norm",
    labels=("eqn:sup-cost", "fig:mnist-proxsmall", "fig:mnist-proxbig"),
    minutes={Scale.QUICK: 1.5, Scale.FULL: 60},
    parts=_prox_parts,
    pictures=(
        Picture(
            "small", f"Small budget (fig:mnist-proxsmall). {_PROX_BARS}", draw_family("small", _prox_marks)
        ),
        Picture(
            "large", f"Large budget (fig:mnist-proxbig). {_PROX_BARS}", draw_family("large", _prox_marks)
        ),
    ),
    verdicts=lambda measured: sup_norm_verdicts(measured, _PROX_LABELS, "Similar trends: "),
    text=_prox_text,
    scope={Scale.QUICK: QUICK_FAMILY, Scale.FULL: SHORTER},
    datasets=("mnist",),
    training=mnist_training,
)
