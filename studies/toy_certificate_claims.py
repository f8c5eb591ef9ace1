"""What is said of the certificate of WRM with ELUs on the rings (fig:loss-bound (a))."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from certus.evidence import Evidence
from studies.reproduction import Quantity, Verdict, outcome_of
from studies.toy_networks import TOY_GAMMA

_TIGHT = 0.1  # a certificate within 10% of the worst case is almost tight
_SAME = 1e-9  # of two losses that are equal but for rounding


def certificate_claims(found: Mapping[str, Any]) -> list[Verdict]:
    """Of what ``measure_toy_certificate`` found."""
    attained = _attained(found)
    line = [found["intercept"] + TOY_GAMMA * rho for rho, _ in attained]
    short = [
        1 - bound / value for (_, value), bound in zip(attained, line, strict=True) if bound < value - _SAME
    ]
    level = found["rho_hat"]
    nearest = min(found["adversary"], key=lambda one: abs(one["rho"] - level))
    above = found["intercept"] + TOY_GAMMA * nearest["rho"]
    gap = above / nearest["worst_case"] - 1
    near = level / 2 <= nearest["rho"] <= 2 * level
    return [
        Verdict(
            name="bound",
            label="fig:loss-bound",
            claim="(a) The certificate bounds the worst case on the test data at every ρ.",
            rule="a certificate nowhere below a loss that test data attain",
            outcome=outcome_of(not short),
            ours={
                "values of ρ": Quantity(len(line), places=0),
                "below at": Quantity(len(short), places=0),
                "by up to": Quantity(max(short, default=0.0), places=1, percent=True),
            },
            evidence=Evidence.ATTAINED,
        ),
        Verdict(
            name="tightness",
            label="fig:loss-bound",
            claim="(a) It is almost tight near ρ̂_n(θ_WRM).",
            rule=f"within {_TIGHT:.0%} of the attained loss, at the ρ nearest to ρ̂_n; not comparable where "
            "that is not within a factor 2",
            outcome=outcome_of(abs(gap) < _TIGHT if near else None),
            ours={
                "ρ̂_n": Quantity(level, places=3),
                "nearest ρ": Quantity(nearest["rho"], places=3),
                "certificate": Quantity(above, places=3),
                "attained": Quantity(nearest["worst_case"], places=3),
                "difference": Quantity(gap, places=1, percent=True),
            },
        ),
    ]


def _attained(found: Mapping[str, Any]) -> list[tuple[float, float]]:
    """ρ and a loss that test data within ρ attain: by the search for a bracket, and by the paper's worst
    case, the mean loss at T_γ of the test data."""
    searched = [(one["rho"], one["at_least"]) for one in found["bracket"]]
    return searched + [(one["rho"], one["worst_case"]) for one in found["adversary"]]
