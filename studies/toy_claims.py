"""What is said of networks on the rings: their boundaries (fig:toy), and where f is concave (sec:toy)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Any

from certus.evidence import Evidence
from studies.reproduction import Measured, Quantity, Verdict, outcome_of
from studies.toy_networks import METHOD_NAMES, TOY_GAMMA, TOY_MODELS

NOT_LEARNT = 0.01
"""An error from which on a network of the rings has not learnt them."""

_ACTIVATIONS = {"relu": "ReLU", "elu": "ELU"}


def networks_of(measured: Measured, activation: str, schedule: str = "constant") -> list[Mapping[str, Any]]:
    """One for each seed, in their order."""
    return [
        one
        for one in measured.values()
        if one.get("activation") == activation and one.get("schedule", "constant") == schedule
    ]


def has_learnt(network: Mapping[str, Any]) -> bool:
    """A boundary that is not closed has no radius, and one in the wrong place says nothing of a method."""
    return bool(network["open_rays"] == 0 and network["test_error"] < NOT_LEARNT)


def network_claims(measured: Measured) -> list[Verdict]:
    """Of all seeds; a median is of those that have learnt."""
    boundaries = [_about_radii(measured), _about_symmetry(measured), _about_relus(measured)]
    return [*boundaries, *_about_concavity(measured)]


def _values(
    measured: Measured, activation: str, name: str, what: str, schedule: str = "constant"
) -> dict[int, float]:
    """Seed → the number of a method's network, of those that have learnt."""
    found = [one["methods"][name] for one in networks_of(measured, activation, schedule)]
    return {seed: float(one[what]) for seed, one in enumerate(found) if has_learnt(one)}


def _medians(measured: Measured, activation: str, what: str, schedule: str = "constant") -> dict[str, float]:
    """NaN where none has learnt."""
    found = {name: _values(measured, activation, name, what, schedule) for name in METHOD_NAMES}
    return {name: median(ones.values()) if ones else math.nan for name, ones in found.items()}


def _known(*numbers: float) -> bool:
    """Of a median over no network nothing is said."""
    return not any(math.isnan(number) for number in numbers)


def _radius(value: float) -> Quantity:
    return Quantity(value, places=3)


def _asymmetry(value: float) -> Quantity:
    return Quantity(value, places=4)


def _about_radii(measured: Measured) -> Verdict:
    radii = {name: _medians(measured, name, "mean_radius") for name in TOY_MODELS}
    known = _known(*(radius for medians in radii.values() for radius in medians.values()))
    pushed = all(medians["wrm"] > max(medians["erm"], medians["fgm"]) for medians in radii.values())
    return Verdict(
        name="radius",
        label="fig:toy",
        claim="With both activations WRM pushes the boundary further outwards than ERM and FGM.",
        rule="with both activations, the largest median over seeds of the boundary's mean radius",
        outcome=outcome_of(pushed if known else None),
        ours={
            f"{METHOD_NAMES[name]}, {_ACTIVATIONS[activation]}": _radius(radius)
            for activation, medians in radii.items()
            for name, radius in medians.items()
        },
    )


def _about_symmetry(measured: Measured) -> Verdict:
    uneven = _medians(measured, "elu", "asymmetry")
    steadier = uneven["wrm"] < min(uneven["erm"], uneven["fgm"])
    return Verdict(
        name="symmetry",
        label="fig:toy",
        claim="WRM with ELUs has an axisymmetric boundary; ERM and FGM lack symmetry.",
        rule="the smallest median over seeds of the boundary's asymmetry",
        outcome=outcome_of(steadier if _known(*uneven.values()) else None),
        ours={METHOD_NAMES[name]: _asymmetry(value) for name, value in uneven.items()},
    )


def _about_relus(measured: Measured) -> Verdict:
    relu, elu = (_medians(measured, name, "asymmetry")["wrm"] for name in ("relu", "elu"))
    return Verdict(
        name="ReLU",
        label="fig:toy",
        claim="WRM with ReLUs still suffers from radial asymmetry.",
        rule="a larger median asymmetry of WRM with ReLUs than with ELUs",
        outcome=outcome_of(relu > elu if _known(relu, elu) else None),
        ours={"ReLU": _asymmetry(relu), "ELU": _asymmetry(elu)},
    )


def _about_concavity(measured: Measured) -> list[Verdict]:
    networks = networks_of(measured, "elu")
    shares = [one["concave_share"] for one in networks]
    bounds = [math.inf if one["proven_curvature"] is None else one["proven_curvature"] for one in networks]
    whole, smooth = sum(share == 1 for share in shares), sum(bound < 2 * TOY_GAMMA for bound in bounds)
    contradicted = any(
        bound < 2 * TOY_GAMMA and share < 1 for share, bound in zip(shares, bounds, strict=True)
    )
    proven = {"best seed": min(bounds), "worst seed": max(bounds)}
    return [
        Verdict(
            name="concave",
            label="sec:toy",
            claim="With ELUs γ = 2 makes the inner problem strongly concave over the training data.",
            rule="strong concavity at every training point, on every seed",
            outcome=outcome_of(whole == len(shares)),
            ours={
                "seeds": Quantity(len(shares), places=0),
                "concave at all points": Quantity(whole, places=0),
                "smallest share of points": Quantity(min(shares), places=2, percent=True),
            },
        ),
        Verdict(
            name="threshold",
            label="section:examples",
            claim="γ above a bound on the smoothness makes it concave everywhere.",
            rule=f"on every seed, a proven curvature below 2γ = {2 * TOY_GAMMA:g}; *no* where it is below "
            "and f is not concave at a point",
            outcome=outcome_of(False if contradicted else True if smooth == len(bounds) else None),
            ours={name: Quantity(bound, places=1, side="at most") for name, bound in proven.items()},
            evidence=Evidence.PROVEN,
        ),
    ]
