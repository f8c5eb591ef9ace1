"""What is said of the certificate of WRM with ELUs on the rings (fig:loss-bound (a))."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from certus.evidence import Evidence
from studies.reproduction import Comparison
from studies.toy_networks import TOY_GAMMA

_TIGHT = 0.1  # a certificate within 10% of the worst case is almost tight
_SAME = 1e-9  # of two losses that are equal but for rounding


def certificate_claims(found: Mapping[str, Any]) -> list[Comparison]:
    """Of what ``measure_toy_certificate`` found."""
    attained = _attained(found)
    line = [found["intercept"] + TOY_GAMMA * rho for rho, _ in attained]
    short = {
        rho: 1 - bound / value
        for (rho, value), bound in zip(attained, line, strict=True)
        if bound < value - _SAME
    }
    worst = max(short, key=lambda rho: short[rho], default=0.0)
    level = found["rho_hat"]
    nearest = min(found["adversary"], key=lambda one: abs(one["rho"] - level))
    above = found["intercept"] + TOY_GAMMA * nearest["rho"]
    gap = above / nearest["worst_case"] - 1
    near, tight = level / 2 <= nearest["rho"] <= 2 * level, abs(gap) < _TIGHT
    difference = f"{gap:+.1%}".replace("-", "−")
    side = "above what is attained" if gap > 0 else "below what is attained, so no bound there"
    return [
        Comparison(
            "fig:loss-bound",
            "(a) The certificate bounds the worst case on the test data at every ρ.",
            f"It is below what is attained on the test data at {len(short)} of {len(line)} ρ, by "
            f"{short[worst]:.1%} at most (ρ = {worst:.3f})."
            if short
            else f"It is above what is attained on the test data at all {len(line)} ρ that were tried.",
            not short,
            _why_short(found) if short else "",
            Evidence.ATTAINED,
        ),
        Comparison(
            "fig:loss-bound",
            "(a) It is almost tight near ρ̂_n(θ_WRM).",
            f"At ρ = {nearest['rho']:.3f}, where ρ̂_n is {level:.3f}, it is {above:.3f} against "
            f"{nearest['worst_case']:.3f}, which is attained: {difference}.",
            tight if near else None,
            "no γ that was tried moves the test data by about ρ̂_n."
            if not near
            else ""
            if tight
            else f"not known; it is {side}.",
        ),
    ]


def _attained(found: Mapping[str, Any]) -> list[tuple[float, float]]:
    """ρ and a loss that test data within ρ attain: by the search for a bracket, and by the paper's worst
    case, the mean loss at T_γ of the test data."""
    searched = [(one["rho"], one["at_least"]) for one in found["bracket"]]
    return searched + [(one["rho"], one["worst_case"]) for one in found["adversary"]]


def _why_short(found: Mapping[str, Any]) -> str:
    """Whether the mean of φ over the test data, in place of the training data, would make it a bound."""
    words = "it is about the training data, and ε_n is left out."
    same = [one for one in found["adversary"] if one["gamma"] == TOY_GAMMA]
    if not same:
        return words
    own = same[0]["worst_case"] - TOY_GAMMA * same[0]["rho"]
    holds = all(own + TOY_GAMMA * rho >= value - _SAME for rho, value in _attained(found))
    return (
        f"{words} With the test data's own mean of φ, {own:.4f} in place of {found['intercept']:.4f}, it "
        f"would {'nowhere' if holds else 'still'} be below."
    )
