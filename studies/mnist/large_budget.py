"""MNIST at the paper's large budget, γ = 0.02 C₂: fig:mnist_bound_big and fig:mnist-big."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from certus.attacks.evaluation import Interval
from studies.mnist.families import (
    ATTACK_UNITS,
    QUICK_FAMILY,
    SHORTER,
    attacks_in,
    draw_family,
    family_of,
    family_parts,
    family_text,
    large_budget_wrm,
    of_family,
)
from studies.mnist.networks import MEAN_LENGTH, MNIST_METHODS, mnist_training
from studies.mnist.small_budget import STUDY as SMALL
from studies.mnist.small_budget import small_budget_sweeps
from studies.mnist.surface import (
    certificate_verdict,
    concavity_part,
    draw_paper_certificate,
    share_not_concave,
    surface_part,
    unresolved,
)
from studies.mnist.sweeps import (
    NORM_WORDS,
    NORMS_SHOWN,
    clear_sign,
    curve_of,
    difference_of_proportions,
    error_table,
    points,
    sweeps_of,
)
from studies.study import Measured, Part, Picture, Quantity, Scale, Study, Verdict, outcome_of

_ADVERSARIAL = [method for method in MNIST_METHODS if method != "erm"]


def _parts(scale: Scale) -> list[Part]:
    quick = scale is Scale.QUICK
    wrm = large_budget_wrm(scale)
    gammas = [0.08, 0.04, 0.02] if quick else [0.12, 0.08, 0.06, 0.04, 0.03, 0.025, 0.02, 0.015]
    return [
        *family_parts(scale, "large", family_of(scale, wrm, "2")),
        concavity_part("concavity-0", wrm, 100 if quick else 2000),
        surface_part("surface-wrm", wrm, gammas, 50 if quick else 1000),
        *(
            replace(part, name=f"small:{part.name}", home=(SMALL, part.name))
            for part in small_budget_sweeps(scale, _ADVERSARIAL)
        ),
    ]


def _marks(family: Measured) -> Mapping[str, float | None]:
    return {"2": family["network-wrm-0"]["rho_hat"] ** 0.5 / MEAN_LENGTH, "inf": None}


def concavity_verdict(share: Mapping[str, Any]) -> Verdict:
    """Judge concavity at the images, as in `mnist`; halfway to T_γ it may be otherwise."""
    fails = {where: share_not_concave(share, where) for where in ("image", "halfway")}
    return Verdict(
        name="concavity",
        label="sec:large-adversary",
        claim="The inner problem is no longer strongly concave for over 10% of the data.",
        rule="no strong concavity at over 10% of random training images; where that is so only halfway to "
        "where the ascent takes them, it is not comparable",
        outcome=outcome_of(True if fails["image"] > 0.1 else None if fails["halfway"] > 0.1 else False),
        ours={
            "images": Quantity(share["count"], places=0),
            "not concave at": Quantity(fails["image"], places=1, percent=True),
            "halfway": Quantity(fails["halfway"], places=1, percent=True),
            "undecided points": Quantity(unresolved([share]), places=0),
        },
    )


def _verdicts(measured: Measured) -> list[Verdict]:
    large = of_family(measured, "large")
    return [
        concavity_verdict(measured["concavity-0"]),
        certificate_verdict(measured["surface-wrm"], "fig:mnist_bound_big"),
        *(
            distinction_verdict(measured, attack, norm)
            for attack in attacks_in(large)
            for norm in NORMS_SHOWN
        ),
    ]


def distinction_verdict(measured: Measured, attack: str, norm: str) -> Verdict:
    """Judge whether the adversarial methods differ less than at the small budget, each at its farthest."""
    spreads = {name: _largest_spread(of_family(measured, name), attack, norm) for name in ("small", "large")}
    change = difference_of_proportions(spreads["large"][2], spreads["small"][2])
    sign = clear_sign(change)
    return Verdict(
        name=f"{attack.upper()}, {NORM_WORDS[norm]}",
        label="fig:mnist-big",
        claim=f"{attack.upper()} attacks in {NORM_WORDS[norm]}: distinctions between methods are less "
        "apparent.",
        rule="a change of the largest difference between FGM, IFGM, PGM and WRM, from the small budget to "
        "the large, whose interval lies below 0; one that holds 0 is not comparable",
        outcome=outcome_of(None if sign == 0 else sign < 0),
        ours={
            **{
                f"{name} budget, {MNIST_METHODS[best]} least, at {share:g} C": Quantity(
                    100 * gap.value, places=1
                )
                for name, (share, best, gap) in spreads.items()
            },
            "change": points(change),
        },
    )


def _largest_spread(family: Measured, attack: str, norm: str) -> tuple[float, str, Interval]:
    """Return the strength at which the methods differ most, the best method there, and the difference."""
    curves = {
        method: curve
        for method, ones in sweeps_of(family, _ADVERSARIAL, attack).items()
        if (curve := curve_of(ones, norm, False)) is not None
    }
    spreads = []
    for place, share in enumerate(curves["wrm"].strengths):
        errors = {
            method: Interval(curve.values[place], curve.low[place], curve.high[place])
            for method, curve in curves.items()
        }
        best, worst = (choose(errors, key=lambda method: errors[method].value) for choose in (min, max))
        spreads.append((share, best, difference_of_proportions(errors[worst], errors[best])))
    return max(spreads, key=lambda entry: entry[2].value)


def _text(measured: Measured) -> str:
    small = of_family(measured, "small")
    images = small["pgm-wrm-0"]["samples"]
    words = (
        "**The small budget**, for comparison, is that of `mnist`: trained and attacked as there, not "
        f"clipped, the first seed, on {images:,} images. Each budget is judged at the strength at which its "
        "methods differ most."
    )
    tables = [error_table(small, attack, norm, False) for attack in attacks_in(small) for norm in NORMS_SHOWN]
    return "\n\n".join([ATTACK_UNITS, family_text(measured, "large", "2", "2"), words, *tables])


STUDY = Study(
    name="mnist-large",
    title="MNIST with a larger budget",
    labels=("sec:large-adversary", "fig:mnist_bound_big", "fig:mnist-big"),
    minutes={Scale.QUICK: 1, Scale.FULL: 50},
    parts=_parts,
    pictures=(
        Picture(
            "certificate",
            "WRM at γ = 0.02 C₂: the paper's certificate and what is attained (fig:mnist_bound_big).",
            draw_paper_certificate,
        ),
        Picture("attacks", "Test error under attacks (fig:mnist-big).", draw_family("large", _marks)),
    ),
    verdicts=_verdicts,
    text=_text,
    scope={Scale.QUICK: QUICK_FAMILY, Scale.FULL: SHORTER},
    datasets=("mnist",),
    training=mnist_training,
)
