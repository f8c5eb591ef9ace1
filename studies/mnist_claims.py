"""Verdicts on the paper's five methods on MNIST (sec:mnist-real)."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from certus.evidence import Evidence
from studies.mnist_networks import MNIST_METHODS
from studies.mnist_surface import certificate_claim, unresolved
from studies.mnist_sweeps import attack_claims
from studies.reproduction import Measured, Outcome, Quantity, Verdict, outcome_of

_ACCURATE = 0.99
_MOSTLY = 0.96
_LABELS = {"pgm": "fig:mnist", "fgm": "fig:mnist-fgm", "ifgm": "fig:mnist-fgm"}
_ORDERS = 100.0  # two of magnitude
_PAPER_EIGHT = {"erm": 3, "fgm": 3, "ifgm": 2, "pgm": 0, "wrm": 3}


def trained_as(measured: Measured, method: str) -> list[Mapping[str, Any]]:
    """The networks of a method, seed by seed."""
    return [one for part, one in measured.items() if part.startswith(f"network-{method}-")]


def method_claims(measured: Measured) -> list[Verdict]:
    """Verdicts on the networks, on attacks, and on the loss around the images."""
    return [
        _about_accuracy(measured),
        _about_concavity([one for part, one in measured.items() if part.startswith("concavity-")]),
        *attack_claims(measured, _LABELS, above=0.05),
        _about_stability(measured),
        *_about_digits(measured["digits"]["methods"]),
        certificate_claim(measured["surface-wrm"], "fig:loss-bound", "(b) "),
    ]


def _about_accuracy(measured: Measured) -> Verdict:
    errors = {name: fmean(one["test_error"] for one in trained_as(measured, name)) for name in MNIST_METHODS}
    return Verdict(
        name="accuracy",
        label="sec:mnist-real",
        claim="All methods achieve over 99% test accuracy.",
        rule=f"an accuracy above {_ACCURATE:.0%} of every method, in the mean over its seeds",
        outcome=outcome_of(max(errors.values()) < 1 - _ACCURATE),
        ours={
            words: Quantity(1 - errors[name], places=2, percent=True) for name, words in MNIST_METHODS.items()
        },
    )


def _about_concavity(shares: list[Mapping[str, Any]]) -> Verdict:
    concave = {
        (where, seed): one[where]["concave"] / one["count"]
        for where in ("image", "halfway")
        for seed, one in enumerate(shares)
    }
    least = min(share for (where, _), share in concave.items() if where == "image")
    return Verdict(
        name="concavity",
        label="sec:mnist-real",
        claim="φ_γ is strongly concave for 98% of the training data.",
        rule=f"strong concavity at {_MOSTLY:.0%} or more of random training images, on every seed",
        outcome=outcome_of(least >= _MOSTLY),
        paper={"concave": 0.98},
        ours={
            "images": Quantity(shares[0]["count"], places=0),
            **{
                f"{where}, seed {seed}": Quantity(share, places=1, percent=True)
                for (where, seed), share in concave.items()
            },
            "undecided points": Quantity(unresolved(shares), places=0),
        },
    )


def _about_stability(measured: Measured) -> Verdict:
    levels = {
        name: [row["rho_test"] for row in measured[f"surface-{name}"]["rows"]] for name in MNIST_METHODS
    }
    ratio = max(high / low for high, low in zip(levels["erm"], levels["wrm"], strict=True))
    steadiest = [own <= min(others) for own, *others in zip(levels["wrm"], *levels.values(), strict=True)]
    return Verdict(
        name="stability",
        label="fig:mnist2",
        claim="(a) ρ̂_test differs by orders of magnitude between methods; WRM is the most stable.",
        rule=f"at every γ_adv the smallest ρ̂_test is WRM's, and at some ERM's is {_ORDERS:g} times as large",
        outcome=outcome_of(all(steadiest) and ratio >= _ORDERS),
        ours={
            "ERM's over WRM's, largest": Quantity(ratio, places=0),
            "values of γ_adv": Quantity(len(steadiest), places=0),
            "WRM's smallest at": Quantity(sum(steadiest), places=0),
        },
        evidence=Evidence.ATTAINED,
    )


def _about_digits(digits: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    """The mean length is over the digits for which an error was found."""
    lengths = {
        name: [far for far, gamma in zip(one["distance"], one["gamma"], strict=True) if gamma != 0]
        for name, one in digits.items()
    }
    missed = sum(len(one["distance"]) for one in digits.values()) - sum(map(len, lengths.values()))
    eights = {name: one["read_as"][8] for name, one in digits.items()}
    return [
        Verdict(
            name="digits",
            label="fig:mnist3",
            claim="(and fig:mnist2 b) WRM's smallest misclassified perturbations look like another digit.",
            rule="",
            outcome=Outcome.NOT_COMPARABLE,
            ours={
                **{
                    f"mean L2 length, {MNIST_METHODS[name]}": Quantity(fmean(far) if far else None, places=2)
                    for name, far in lengths.items()
                },
                "none found": Quantity(missed, places=0),
            },
            evidence=Evidence.ATTAINED,
        ),
        Verdict(
            name="an 8",
            label="fig:mnist2",
            claim="(b) An 8 is misread as these digits.",
            rule="the same digits; others are not comparable",
            outcome=outcome_of(True if eights == _PAPER_EIGHT else None),
            paper={MNIST_METHODS[name]: digit for name, digit in _PAPER_EIGHT.items()},
            ours={MNIST_METHODS[name]: Quantity(digit, places=0) for name, digit in eights.items()},
            evidence=Evidence.ATTAINED,
        ),
    ]
