"""Verdicts on section:dogs, measured on photographs that stand in for the paper's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from certus.evidence import Evidence
from studies.dog_ascent import PAPER_STEPS
from studies.dog_attacks import TITLES, farthest_behind
from studies.dog_heads import HEADS, PAPER_GAMMA
from studies.dog_pixels import PIXEL_GAMMAS, PIXEL_METHODS
from studies.reproduction import Measured, Outcome, Quantity, Verdict, outcome_of

_PAPER_BOUND = 822.5
_COMPETITIVE = 0.05  # of the error
_STANDS_STILL = 0.05  # of the whole rise, in the last half of the steps


def dog_statements(measured: Measured) -> list[Verdict]:
    """All of them, in the paper's order."""
    erm, paper, proven = (measured[f"head-{name}"] for name in HEADS)
    return [
        _about_features(measured["features"]),
        *_about_gamma(erm, paper, proven, measured["features"]["mean_length"]),
        _about_steps(measured["ascent"]["printed"], measured["ascent"]["divided"]),
        _about_convergence(measured["ascent"]["proven"]),
        _about_heads(measured),
        _about_pixels(measured),
    ]


def _count(number: float) -> Quantity:
    return Quantity(number, places=0)


def _error(share: float) -> Quantity:
    return Quantity(share, places=1, percent=True)


def _about_features(found: Mapping[str, Any]) -> Verdict:
    return Verdict(
        name="features",
        label="section:dogs",
        claim="ResNet-50, pre-trained on ImageNet, gives 7 × 7 × 2048 semantic features in [0, 1].",
        rule="",
        outcome=Outcome.NOT_COMPARABLE,
        ours={
            "training photographs": _count(found["train"]),
            "test photographs": _count(found["test"]),
            "dogs": _count(found["dogs"]),
            "dogs called a breed": Quantity(found["dogs_as_breeds"], places=0, percent=True),
            "others called a breed": Quantity(found["others_as_breeds"], places=0, percent=True),
        },
    )


def _about_gamma(
    erm: Mapping[str, Any], paper: Mapping[str, Any], proven: Mapping[str, Any], length: float
) -> list[Verdict]:
    return [
        Verdict(
            name="γ = 10⁵",
            label="section:dogs",
            claim="γ = 10⁵ satisfies the smoothness bound.",
            rule="2γ = 2·10⁵ above the curvature L⁺ that is proven of the head trained so here",
            outcome=outcome_of(paper["curvature"] < 2 * PAPER_GAMMA),
            paper={"bound": _PAPER_BOUND},
            ours={
                "the paper's bound": Quantity(paper["printed_bound"], places=1, side="at most"),
                "L⁺": Quantity(paper["curvature"], places=2, side="at most"),
                "smallest γ that would do": Quantity(paper["curvature"] / 2, places=2, side="at most"),
            },
            evidence=Evidence.PROVEN,
        ),
        Verdict(
            name="moved features",
            label="section:dogs",
            claim="WRM is trained at γ = 10⁵.",
            rule="",
            outcome=Outcome.NOT_COMPARABLE,
            ours={
                "mean length of the features": Quantity(length, digits=3),
                "moved by": Quantity(paper["slope"] / (2 * PAPER_GAMMA), places=6, side="at most"),
                "test error": _error(paper["test_error"]),
                "ERM's": _error(erm["test_error"]),
            },
            evidence=Evidence.PROVEN,
        ),
        Verdict(
            name="proven γ",
            label="section:dogs",
            claim="γ is chosen by a bound on the smoothness.",
            rule="2γ above the curvature L⁺ that is proven of the head trained with this γ",
            outcome=outcome_of(proven["curvature"] < 2 * proven["gamma"]),
            ours={
                "L⁺ of ERM's head": Quantity(erm["curvature"], places=2, side="at most"),
                "γ": Quantity(proven["gamma"], places=2, side="at least"),
                "tries": _count(len(proven["tried"])),
                "L⁺": Quantity(proven["curvature"], places=2, side="at most"),
                "ρ̂": Quantity(proven["rho_hat"]),
                "test error": _error(proven["test_error"]),
            },
            evidence=Evidence.PROVEN,
        ),
    ]


def _about_steps(printed: list[float], divided: list[float]) -> Verdict:
    """An ascent is shorter than asked where f is not finite any more."""
    return Verdict(
        name="steps",
        label="section:dogs",
        claim="20 inner steps of size η = 10.",
        rule="f no smaller after the steps than before, as printed or divided by γ",
        outcome=outcome_of(printed[-1] >= printed[0] or divided[-1] >= divided[0]),
        ours={
            "f before": Quantity(printed[0], digits=3),
            "last finite f": Quantity(printed[-1], digits=1),
            "after steps": _count(len(printed) - 1),
            "divided by γ": Quantity(divided[-1], digits=1),
            "after steps, divided by γ": _count(len(divided) - 1),
        },
        evidence=Evidence.ATTAINED,
    )


def _about_convergence(trace: Mapping[str, Any]) -> Verdict:
    last, earlier = trace["gain"][-1], trace["gain"][PAPER_STEPS // 2]
    share = abs(last - earlier) / last if last > 0 else math.inf
    return Verdict(
        name="convergence",
        label="fig:supremum",
        claim="The inner problem is solved: the curve of f converges.",
        rule=f"with steps of 1/(2γ√t), a mean of f that rises, by less than {_STANDS_STILL:.0%} of the whole "
        "rise in the last ten of 20 steps",
        outcome=outcome_of(share < _STANDS_STILL),
        ours={
            "γ": Quantity(trace["gamma"], places=2, side="at least"),
            "rise": Quantity(last),
            "share of the last ten steps": _error(share),
        },
    )


def _about_heads(measured: Measured) -> Verdict:
    return Verdict(
        name="attacked features",
        label="fig:dogs-theory",
        claim="Classification errors under PGM and WRM attacks on the features.",
        rule="",
        outcome=Outcome.NOT_COMPARABLE,
        ours={
            f"strongest {attack.upper()}, {words}": _error(measured[f"attack-{name}"][attack][-1]["error"])
            for attack in TITLES
            for name, words in HEADS.items()
        },
        evidence=Evidence.ATTAINED,
    )


def _about_pixels(measured: Measured) -> Verdict:
    pixels = {name: measured[f"pixels-{name}"] for name in PIXEL_METHODS}
    rivals = {name: found for name, found in pixels.items() if name not in PIXEL_GAMMAS}
    behind, gentle = (farthest_behind({name: pixels[name], **rivals}, name) for name in ("wrm", "gentle"))
    samples, moves = pixels["wrm"]["samples"], measured["moves"]
    return Verdict(
        name="pixels",
        label="fig:dogs-hacky",
        claim="On pixels, γ = 1, WRM is competitive with the other baselines at all strengths.",
        rule=f"at every strength, an error at most {100 * _COMPETITIVE:.0f} points above that of the best of "
        "ERM, FGM and PGM",
        outcome=outcome_of(behind <= _COMPETITIVE),
        ours={
            "farthest behind, in points": Quantity(100 * behind, places=1),
            f"at γ = {PIXEL_GAMMAS['gentle']:g}": Quantity(100 * gentle, places=1),
            "photographs": _count(samples),
            "standard error, up to": _count(50 / math.sqrt(samples)),
            "ρ before training": Quantity(moves["start"]["rho"]),
            "ρ of the others": Quantity(measured["pixels-fgm"]["epsilon"] ** 2),
            "φ after training": Quantity(moves["end"]["phi"], places=2),
        },
        evidence=Evidence.ATTAINED,
    )
