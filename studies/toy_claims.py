"""What is said of networks on the rings: their boundaries (fig:toy), and where f is concave (sec:toy)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Any

from certus.decimals import at_most
from certus.evidence import Evidence
from studies.reproduction import Comparison, Measured
from studies.toy_networks import METHOD_NAMES, TOY_GAMMA, TOY_MODELS

NOT_LEARNT = 0.01
"""An error from which on a network of the rings has not learnt them."""

_SPOKEN = {"relu": "ReLU", "elu": "ELU"}


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


def network_claims(measured: Measured) -> list[Comparison]:
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


def _words(values: Mapping[str, float], places: int) -> str:
    shown = {
        name: "has not learnt" if math.isnan(one) else f"{one:.{places}f}" for name, one in values.items()
    }
    return ", ".join(f"{METHOD_NAMES[name]} {one}" for name, one in shown.items())


def _among(measured: Measured, *activations: str) -> str:
    """What the medians are of: seeds, and fewer where networks have not learnt."""
    seeds = len(networks_of(measured, "elu"))
    if seeds == 1:
        return "one seed"
    fewer = [
        f", for {METHOD_NAMES[name]} with {_SPOKEN[activation]} of the {len(found)} that learnt"
        for activation in activations
        for name in METHOD_NAMES
        if len(found := _values(measured, activation, name, "asymmetry")) < seeds
    ]
    return f"medians of {seeds} seeds{''.join(fewer)}"


def _on_seeds(low: Mapping[int, float], *others: Mapping[int, float]) -> str:
    """On how many seeds, of those that all have learnt, the first is below all others."""
    both = [seed for seed in low if all(seed in other for other in others)]
    count = sum(all(low[seed] < other[seed] for other in others) for seed in both)
    return f"{count} of {len(both)} seeds"


def _verdict(known: bool, holds: bool, differs: str) -> tuple[bool | None, str]:
    """Whether it agrees, and why not. Of medians that are not known, nothing is said."""
    if not known:
        return None, "a method has no network that has learnt."
    return holds, "" if holds else differs


def _about_radii(measured: Measured) -> Comparison:
    radii = {name: _medians(measured, name, "mean_radius") for name in TOY_MODELS}
    known = not any(math.isnan(one) for found in radii.values() for one in found.values())
    pushed = all(found["wrm"] > max(found["erm"], found["fgm"]) for found in radii.values())
    counts = []
    for activation in TOY_MODELS:
        minus = [
            {seed: -one for seed, one in _values(measured, activation, name, "mean_radius").items()}
            for name in ("wrm", "erm", "fgm")
        ]
        counts.append(f"{_on_seeds(*minus)} with {_SPOKEN[activation]}")
    differs = f"not known; WRM's is the largest on {' and '.join(counts)}."
    return Comparison(
        "fig:toy",
        "With both activations WRM pushes the boundary further outwards than ERM and FGM.",
        f"Mean radius of the boundary, ReLU: {_words(radii['relu'], 3)}; ELU: {_words(radii['elu'], 3)} "
        f"({_among(measured, *TOY_MODELS)}).",
        *_verdict(known, pushed, differs),
    )


def _about_symmetry(measured: Measured) -> Comparison:
    uneven = _medians(measured, "elu", "asymmetry")
    known = not any(math.isnan(one) for one in uneven.values())
    steadier = uneven["wrm"] < min(uneven["erm"], uneven["fgm"])
    return Comparison(
        "fig:toy",
        "WRM with ELUs has an axisymmetric boundary; ERM and FGM lack symmetry.",
        f"Asymmetry with ELU: {_words(uneven, 4)} ({_among(measured, 'elu')}).",
        *_verdict(known, steadier, _why_uneven(measured) if known else ""),
    )


def _why_uneven(measured: Measured) -> str:
    """How the seeds differ; a constant step may be a cause, so another was tried."""
    found = {name: _values(measured, "elu", name, "asymmetry") for name in ("fgm", "wrm")}
    settled = {name: _values(measured, "elu", name, "asymmetry", "cosine") for name in ("fgm", "wrm")}
    words = (
        f"not known. WRM's is below FGM's on {_on_seeds(found['wrm'], found['fgm'])}, and lies between "
        f"{min(found['wrm'].values()):.3f} and {max(found['wrm'].values()):.3f}."
    )
    if not (settled["wrm"].keys() & settled["fgm"].keys()):
        return words
    return (
        f"{words} With a step that falls to 0: "
        f"{_words(_medians(measured, 'elu', 'asymmetry', 'cosine'), 4)}; WRM's is below FGM's on "
        f"{_on_seeds(settled['wrm'], settled['fgm'])}."
    )


def _about_relus(measured: Measured) -> Comparison:
    sharp, smooth = (_values(measured, name, "wrm", "asymmetry") for name in ("relu", "elu"))
    known = bool(sharp and smooth)
    relu, elu = (_medians(measured, name, "asymmetry")["wrm"] for name in ("relu", "elu"))
    worse = relu > elu
    shown = {"ReLU": relu, "ELU": elu}
    words = ", ".join(
        f"{name} {'has not learnt' if math.isnan(one) else f'{one:.4f}'}" for name, one in shown.items()
    )
    differs = f"not known; with ELU it is below that with ReLU on {_on_seeds(smooth, sharp)}."
    return Comparison(
        "fig:toy",
        "WRM with ReLUs still suffers from radial asymmetry.",
        f"Asymmetry of WRM: {words} ({_among(measured, *TOY_MODELS)}).",
        *_verdict(known, worse, differs),
    )


def _about_concavity(measured: Measured) -> list[Comparison]:
    chosen = networks_of(measured, "elu")
    shares = [one["concave_share"] for one in chosen]
    bounds = [math.inf if one["proven_curvature"] is None else one["proven_curvature"] for one in chosen]
    whole, smooth = sum(share == 1 for share in shares), sum(bound < 2 * TOY_GAMMA for bound in bounds)
    least = f"{100 * min(shares):.6g}%"
    wrong = [
        share for share, bound in zip(shares, bounds, strict=True) if bound < 2 * TOY_GAMMA and share < 1
    ]
    at_data = "all training points" if whole == len(shares) else f"{least} of the training points or more"
    above = (
        f"2γ is above this bound with {smooth} of {len(bounds)} seeds; at the data f is concave at {at_data}."
    )
    agrees = False if wrong else True if smooth == len(bounds) else None
    reasons = {True: "", None: above, False: "a proven bound is below 2γ, and f is not concave at a point."}
    return [
        Comparison(
            "sec:toy",
            "With ELUs γ = 2 makes the inner problem strongly concave over the training data.",
            f"At all training points with {whole} of {len(shares)} seeds"
            + (f"; at {least} of them with the worst." if whole < len(shares) else "."),
            whole == len(shares),
            ""
            if whole == len(shares)
            else "it depends on the seed; the paper has one network, and does not say which.",
        ),
        Comparison(
            "section:examples",
            "γ above a bound on the smoothness makes it concave everywhere.",
            f"Proven curvature at most {at_most(min(bounds), 1)} with the best seed and "
            f"{at_most(max(bounds), 1)} with the worst, against 2γ = {2 * TOY_GAMMA:g}.",
            agrees,
            reasons[agrees],
            Evidence.PROVEN,
        ),
    ]
