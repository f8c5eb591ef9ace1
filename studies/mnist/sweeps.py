"""Attacks of rising strength on the MNIST networks: the measurements and panels that several figures share.

Strengths are shares of C_p = E‖X‖_p, the paper's axis. The paper does not say whether its attacks stay in the
box of pixels [0, 1]; as far as its tables tell they do not, so the figures in its order are not clipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus._names import NORMS
from certus.attacks.evaluation import Interval, Trial, paired_errors, sweep, typical_length, wilson
from certus.data import Samples
from certus.display.figures import Curve, Panel
from certus.losses import ModelLoss
from certus.runs.loaded_run import LoadedRun
from studies.mnist.networks import MNIST_METHODS, NetworkRecipe, mnist_network, random_images
from studies.page import markdown_table
from studies.strictness import is_below, outcome_of_cases
from studies.study import Measured, Part, Quantity, Verdict, subscripted
from studies.workspace import Workspace


def difference_of_proportions(entry: Interval, other: Interval) -> Interval:
    """Return ``one`` less ``other`` with Newcombe's interval, as if each had independent images.

    Both saw the same images, so that what is hard for both would cancel: the interval errs on the wide side.
    It knows nothing of other seeds, nor of a choice of the best among several.
    """
    value = entry.value - other.value
    down = math.hypot(entry.value - entry.low, other.high - other.value)
    up = math.hypot(entry.high - entry.value, other.value - other.low)
    return Interval(value, value - down, value + up)


def packed_outcomes(wrong: Tensor) -> str:
    """Return (n,) outcomes as hexadecimal digits, a bit for each image; ``unpacked_outcomes`` reads them."""
    return np.packbits(wrong.cpu().numpy()).tobytes().hex()


def unpacked_outcomes(text: str, count: int) -> Tensor:
    """Return the (count,) outcomes of ``packed_outcomes``.

    >>> unpacked_outcomes(packed_outcomes(torch.tensor([True, False, True])), 3).tolist()
    [True, False, True]
    """
    return torch.from_numpy(np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8), count=count)).bool()


def difference_at(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]], norm: str, share: float
) -> Interval:
    """Return the error of one method less that of another at a strength, not clipped, over seeds.

    The interval is paired, image by image, where both have one seed whose outcomes were stored; without them
    it is that of ``difference_of_proportions``.
    """
    rows = [_row_at(sweeps[0], norm, share) for sweeps in (first, second)]
    samples = first[0]["samples"]
    if len(first) == len(second) == 1 and all("wrong" in row for row in rows):
        wrong = [unpacked_outcomes(row["wrong"], samples) for row in rows]
        difference = paired_errors(wrong[0], wrong[1])
        return Interval(difference.value, difference.low, difference.high)
    errors = (error_at(sweeps, norm, share) for sweeps in (first, second))
    return difference_of_proportions(*(wilson(round(error * samples), samples) for error in errors))


def _row_at(sweep_of_seed: Mapping[str, Any], norm: str, share: float) -> Mapping[str, Any]:
    (row,) = (
        row
        for row in sweep_of_seed["rows"]
        if row["norm"] == norm and not row["clipped"] and row["share"] == share
    )
    chosen: Mapping[str, Any] = row
    return chosen


def clear_sign(gap: Interval) -> int:
    """Return the sign of a difference; 0 if its interval contains 0."""
    return (gap.low > 0) - (gap.high < 0)


def is_within(gaps: list[Interval], limit: float) -> bool | None:
    """Return False if an interval lies beyond ±limit, True if all lie inside, None if that is undecided."""
    if any(gap.low > limit or gap.high < -limit for gap in gaps):
        return False
    return True if all(-limit <= gap.low and gap.high <= limit for gap in gaps) else None


def points(gap: Interval, places: int = 1) -> Quantity:
    """Express a difference of error rates in percentage points, with its interval."""
    return Quantity(100 * gap.value, 100 * gap.low, 100 * gap.high, places)


SWEPT_ATTACKS = ("pgm", "fgm", "ifgm")
NORMS_SHOWN = ("2", "inf")
NORM_WORDS = {"2": "L2", "inf": "the sup-norm"}
_SIGNS = {"2": "₂", "inf": "_∞"}
Sweeps = Mapping[str, Sequence[Mapping[str, Any]]]
"""Method → the sweeps of its seeds."""


def sweep_part(
    name: str,
    how: NetworkRecipe,
    attack: str,
    shares: Mapping[str, Sequence[float]],
    samples: int,
    clipped: Sequence[bool] = (False,),
) -> Part:
    """Return a part that attacks one network in both norms.

    Args:
        shares: norm → strengths in units of C_p; 0 is added.
        samples: test images, chosen at random.
    """
    strengths = {norm: [0.0, *values] for norm, values in shares.items()}
    settings = {"network": how, "attack": attack, "shares": strengths, "samples": samples}
    gradients = (1 if attack == "fgm" else 15) * sum(len(values) for values in shares.values())
    effort = gradients * samples * len(clipped) * 1e-3 / 60
    return Part(name, settings | {"clipped": list(clipped)}, _measure_sweep, effort)


def _measure_sweep(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    trained = mnist_network(workspace, settings["network"])
    data = random_images(trained, "test", settings["samples"])
    rows = []
    for norm, shares in settings["shares"].items():
        unit = typical_length(trained.data.train, NORMS[norm])
        for clipped in settings["clipped"]:
            trials = [
                Trial(settings["attack"], NORMS[norm], share * unit, clipped=clipped) for share in shares
            ]
            done = sweep(trained.loss, data, trials, domain=trained.data.domain)
            for share, (trial, outcome) in zip(shares, done, strict=True):
                error = outcome.error
                assert error is not None
                assert trial.epsilon is not None
                about = {"norm": norm, "clipped": clipped, "share": share, "epsilon": trial.epsilon}
                assert outcome.errors is not None
                about |= {"wrong": packed_outcomes(outcome.errors)}
                rows.append(about | {"error": error.value, "low": error.low, "high": error.high})
    network = {"method": trained.settings.method, "seed": trained.settings.seed}
    return network | {"attack": settings["attack"], "samples": len(data), "rows": rows}


def error_at_strengths(
    trained: LoadedRun, data: Samples, strengths: Sequence[float], clipped: bool
) -> list[float]:
    """Return errors under sup-norm PGM on plain cross-entropy: a smoothed one misleads the attack."""
    trials = [Trial("pgm", NORMS["inf"], epsilon, clipped=clipped) for epsilon in strengths]
    done = sweep(ModelLoss(trained.model), data, trials, domain=trained.data.domain)
    return [float(outcome.errors.double().mean()) for _, outcome in done if outcome.errors is not None]


def sweeps_of(measured: Measured, names: Iterable[str], attack: str) -> dict[str, list[Mapping[str, Any]]]:
    """Return method → the sweeps of its seeds, of the parts ``attack-METHOD-…``."""
    by_method: dict[str, list[Mapping[str, Any]]] = {}
    for method in names:
        begin = f"{attack}-{method}-"
        sweeps = [entry for part, entry in measured.items() if part.startswith(begin)]
        if sweeps:
            by_method[method] = sweeps
    return by_method


def curve_of(sweeps: Sequence[Mapping[str, Any]], norm: str, clipped: bool) -> Curve | None:
    """Return error against strength: with the 95% interval of one network, or mean and range of several."""
    rows = [
        [row for row in sweep["rows"] if row["norm"] == norm and row["clipped"] == clipped]
        for sweep in sweeps
    ]
    rows = [selected for selected in rows if selected]
    if not rows:
        return None
    shares = [row["share"] for row in rows[0]]
    if len(rows) == 1:
        columns = [[row[what] for row in rows[0]] for what in ("error", "low", "high")]
        return Curve(shares, *columns)
    errors = [[selected[place]["error"] for selected in rows] for place in range(len(shares))]
    return Curve(
        shares,
        [fmean(error) for error in errors],
        [min(error) for error in errors],
        [max(error) for error in errors],
    )


def attack_panels(
    measured: Measured,
    marks: Mapping[str, float | None],
    attacks: Sequence[str] = SWEPT_ATTACKS,
    clipped: bool = False,
) -> list[Panel]:
    """Return one panel in L2 and one in the sup-norm for each attack, as in the paper.

    Args:
        marks: norm → the share of C_p that the methods were trained for; None draws no bar.
    """
    panels: list[Panel] = []
    for attack in attacks:
        sweeps = sweeps_of(measured, MNIST_METHODS, attack)
        for norm in NORMS_SHOWN:
            curves = {
                MNIST_METHODS[method]: curve
                for method, ones in sweeps.items()
                if (curve := curve_of(ones, norm, clipped)) is not None
            }
            if not curves:
                continue
            letter = "abcdef"[len(panels)]
            title = f"({letter}) {attack.upper()}, ‖·‖{_SIGNS[norm]}" + (", clipped" if clipped else "")
            strength = subscripted(f"ε_adv / C{_SIGNS[norm]}")
            panels.append(
                Panel(subscripted(title), strength, "test error", curves, marks.get(norm), towards=1)
            )
    return panels


def error_at(sweeps: Sequence[Mapping[str, Any]], norm: str, share: float, clipped: bool = False) -> float:
    """Return the mean error over seeds at one strength."""
    curve = curve_of(sweeps, norm, clipped)
    assert curve is not None
    return curve.values[curve.strengths.index(share)]


def error_table(measured: Measured, attack: str, norm: str, clipped: bool) -> str:
    """Return a Markdown table of errors in percent, a row for each method."""
    sweeps = sweeps_of(measured, MNIST_METHODS, attack)
    curves = {method: curve_of(ones, norm, clipped) for method, ones in sweeps.items()}
    measured_curves = {method: curve for method, curve in curves.items() if curve is not None}
    shares = next(iter(measured_curves.values())).strengths
    where = "in [0, 1]" if clipped else "not clipped"
    head = [f"{attack.upper()}, ‖·‖{_SIGNS[norm]}, {where}", *(f"{share:g} C" for share in shares)]
    rows = [
        [MNIST_METHODS[method], *(f"{100 * value:.1f}" for value in curve.values)]
        for method, curve in measured_curves.items()
    ]
    return markdown_table(head, rows)


def attack_verdicts(measured: Measured, labels: Mapping[str, str]) -> list[Verdict]:
    """Judge for each attack and norm whether all methods err less than ERM, and WRM least, at all strengths.

    Args:
        labels: attack → where the paper shows it.
    """
    return [
        _attack_verdict(sweeps_of(measured, MNIST_METHODS, attack), attack, norm, label)
        for attack, label in labels.items()
        for norm in NORMS_SHOWN
    ]


def _attack_verdict(sweeps: Sweeps, attack: str, norm: str, label: str) -> Verdict:
    own = curve_of(sweeps["wrm"], norm, False)
    assert own is not None
    strengths = [share for share in own.strengths if share > 0]
    cases = [case for share in strengths for case in _cases(sweeps, norm, share)]
    decided = [case for case in cases if case is not None]
    return Verdict(
        name=f"{attack.upper()}, {NORM_WORDS[norm]}",
        label=label,
        claim=f"{attack.upper()} attacks in {NORM_WORDS[norm]}: all methods outperform ERM, and WRM offers "
        "the most robustness.",
        rule="of all pairs (a method below ERM; WRM below a method) at all strengths, nine tenths of those "
        "whose interval excludes 0; *partly*: half",
        outcome=outcome_of_cases(cases),
        ours={
            **{f"gap at {share:g} C": points(_lead(sweeps, norm, share)) for share in strengths},
            "pairs": Quantity(len(cases), places=0),
            "decided": Quantity(len(decided), places=0),
            "as claimed": Quantity(sum(decided), places=0),
        },
    )


def _cases(sweeps: Sweeps, norm: str, share: float) -> list[bool | None]:
    """Return, at one strength, whether each method errs less than ERM, and WRM less than each other one."""

    def below(low: str, high: str) -> bool | None:
        gap = difference_at(sweeps[low], sweeps[high], norm, share)
        return is_below(gap.low, gap.high)

    others = [method for method in sweeps if method not in ("erm", "wrm")]
    return [
        *(below(method, "erm") for method in (*others, "wrm")),
        *(below("wrm", method) for method in others),
    ]


def _lead(sweeps: Sweeps, norm: str, share: float) -> Interval:
    """Return the error of WRM less the smallest of the others."""
    others = [method for method in sweeps if method != "wrm"]
    best = min(others, key=lambda method: error_at(sweeps[method], norm, share))
    return difference_at(sweeps["wrm"], sweeps[best], norm, share)
