"""What makes trees hold up? Certified error against accuracy, over leaves, depth, steps and monotone scores.

Gradient boosting of scikit-learn on measurements of tumours. From 100 trees of at most 8 leaves, with steps
of .1, the models change in one way at a time. Monotone scores rise or fall in each measurement, with the sign
of its correlation with the label. Every model is certified on rows that it has not seen: attained and proven
error within ρ, where a standard deviation of a column costs 1.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

import certus
from certus._format import at_least, at_most
from certus.costs import SquaredL2
from certus.data import random_order
from certus.display.canvas import COLOURS, MARKERS, legend_below, new_figure, title_above
from certus.kernel.evidence import Evidence
from studies.page import markdown_table
from studies.study import (
    Measured,
    Part,
    Picture,
    Quantity,
    Scale,
    Study,
    Verdict,
    outcome_of,
    recorded_evidence,
)
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BASE = {"max_iter": 100, "max_leaf_nodes": 8, "learning_rate": 0.1}
_MONOTONE = "monotone scores"
VARIANTS: dict[str, dict[str, Any]] = {
    "2 leaves": {"max_leaf_nodes": 2},
    "4 leaves": {"max_leaf_nodes": 4},
    "8 leaves": {},
    "16 leaves": {"max_leaf_nodes": 16},
    "31 leaves": {"max_leaf_nodes": 31},
    "depth 2": {"max_leaf_nodes": None, "max_depth": 2},
    "depth 5": {"max_leaf_nodes": None, "max_depth": 5},
    "steps of .03": {"learning_rate": 0.03},
    "steps of .3": {"learning_rate": 0.3},
    "30 trees": {"max_iter": 30},
    "300 trees": {"max_iter": 300},
    _MONOTONE: {"monotonic_cst": "signs"},
    f"{_MONOTONE}, steps of .03": {"monotonic_cst": "signs", "learning_rate": 0.03},
}
"""Options of scikit-learn; "signs" are those of the correlations with the label."""

_USUAL = "8 leaves"
_KINDS = {"leaves": 0, "depth": 1, "steps": 2, "trees": 3, _MONOTONE: 4}
_PAIRS = {
    "leaves": ("4 leaves", "31 leaves", "fewer leaves"),
    "depth": ("depth 2", "depth 5", "shallow trees"),
    "steps": ("steps of .03", "steps of .3", "smaller steps"),
    "trees": ("30 trees", "300 trees", "fewer trees"),
    "monotone": (_MONOTONE, _USUAL, "monotone scores"),
}
_RHOS, _JUDGED = (0.001, 0.01, 0.1), "0.01"
_WIDER = 1.1

_HEAD = """
A model is changed in one way at a time from 100 trees of at most 8 leaves, fitted with steps (learning rate)
of 0.1. Errors in percent: *clean* on all test rows (**attained**), and in the worst case over all
distributions within ρ of {rows} of them, *at least* (**attained**) – *at most* (**proven**). A move by a
standard deviation of its column costs 1. Numbers are those of one split of the table.

Monotone scores rise or fall in every measurement, with the sign of its correlation with the label in the
training rows.
"""


def _median(splits: list[Mapping[str, Any]], variant: str, *path: str) -> float:
    values: list[Any] = [split["models"][variant] for split in splits]
    for key in path:
        values = [value[key] for value in values]
    return 100 * float(median(values))


def trees_text(measured: Measured) -> str:
    """Return the table of the models."""
    splits, rows = list(measured.values()), []
    for variant in splits[0]["models"]:
        cells = [variant, f"{_median(splits, variant, 'clean'):.1f}"]
        for rho in map(str, _RHOS):
            low = at_least(_median(splits, variant, "worst", rho, "error_low"), 1)
            cells.append(f"{low} – {at_most(_median(splits, variant, 'worst', rho, 'error_high'), 1)}")
        rows.append([*cells, f"{_median(splits, variant, 'seconds a row') / 100:.2f}"])
    head = ["", "clean", *(f"ρ = {rho:g}" for rho in _RHOS), "seconds a row"]
    opening = _HEAD.format(rows=splits[0]["rows"]).strip()
    return f"{opening}\n\n{markdown_table(head, rows)}"


def trees_verdicts(measured: Measured) -> list[Verdict]:
    """Compare the worst errors of pairs of models, at one ρ, where their brackets do not overlap."""
    splits, verdicts = list(measured.values()), []
    for name, (better, other, words) in _PAIRS.items():
        low, high = (
            {each: _median(splits, each, "worst", _JUDGED, f"error_{side}") / 100 for each in (better, other)}
            for side in ("low", "high")
        )
        word = recorded_evidence(*(splits[0]["models"][each] for each in (better, other)))
        holds = True if high[better] < low[other] else False if high[other] < low[better] else None
        verdicts.append(
            Verdict(
                name=name,
                label="",
                claim=f"Do {words} lower the worst error within ρ = {_JUDGED}?",
                rule=f"the error that is proven for {better} is below the one that is attained for {other}",
                outcome=outcome_of(holds),
                ours={
                    better: Quantity(high[better], places=1, percent=True, side="at most"),
                    other: Quantity(low[other], places=1, percent=True, side="at least"),
                },
                evidence=f"{word} and {Evidence.ATTAINED}",
            )
        )
    return verdicts


def draw_trees(measured: Measured) -> Figure:
    """Draw the bracket of the worst error of each model against its clean error."""
    splits, figure = list(measured.values()), new_figure(8, 4.6)
    axes = figure.subplots()
    names: dict[tuple[float, float], list[str]] = {}
    for variant in splits[0]["models"]:
        kind = next(kind for kind in reversed(_KINDS) if kind in variant)
        colour, marker = COLOURS[_KINDS[kind]], MARKERS[_KINDS[kind]]
        x = _median(splits, variant, "clean")
        low, high = (_median(splits, variant, "worst", _JUDGED, f"error_{side}") for side in ("low", "high"))
        axes.vlines(x, low, high, color=colour, linewidth=4, alpha=0.4)
        axes.plot(x, high, color=colour, marker=marker, markersize=6, linestyle="none", label=kind)
        near = (place for place in names if place[0] == x and abs(place[1] - high) < 0.15)
        names.setdefault(next(near, (x, high)), []).append(variant.removeprefix(f"{_MONOTONE}, "))
    for place, own in names.items():
        axes.annotate(", ".join(own), place, xytext=(6, 3), textcoords="offset points", fontsize=7)
    axes.set(xlabel="clean error, per cent", ylabel="worst error, per cent")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.15)
    handles, kinds = axes.get_legend_handles_labels()
    legend = dict(zip(kinds, handles, strict=True))
    legend_below(figure, list(legend.values()), list(legend))
    title_above(figure, f"Breast cancer, within ρ = {_JUDGED}: attained (lower end) to proven (mark)", 11)
    return figure


def _measure(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and certify every model on one split of a table."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    data = certus.datasets.load(settings["table"], seed=settings["seed"])
    chosen = data.test[random_order(len(data.test), settings["seed"])[: settings["rows"]]]
    rows, models = (chosen.inputs.double().numpy(), chosen.targets.numpy()), {}
    inputs, labels = data.train.inputs.double().numpy(), data.train.targets.numpy()
    tested, answers = data.test.inputs.double().numpy(), data.test.targets.numpy()
    for name in settings["variants"]:
        options = _BASE | VARIANTS[name]
        if "monotonic_cst" in options:
            options["monotonic_cst"] = _signs(inputs, labels)
        model = HistGradientBoostingClassifier(random_state=settings["seed"], **options)
        model.fit(inputs, labels)
        began = time.process_time()
        certificate = certus.certify(model, rows, rho=_RHOS, cost=SquaredL2(), width=_WIDER, progress=False)
        seconds = (time.process_time() - began) / len(chosen)
        worst = {
            str(rho): {side: getattr(certificate.bracket(rho), side) for side in ("error_low", "error_high")}
            for rho in _RHOS
        }
        models[name] = {
            "clean": float((model.predict(tested) != answers).mean()),
            "worst": worst,
            "seconds a row": seconds,
            "evidence": str(certificate.evidence),
        }
    return {"models": models, "rows": len(chosen)}


def _signs(inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> list[int]:
    """(columns,) the sign of the correlation of each column with the label."""
    return [int(np.sign(np.corrcoef(column, labels)[0, 1])) for column in inputs.T]


def _parts(scale: Scale) -> list[Part]:
    quick = scale is Scale.QUICK
    return [
        Part(
            f"{table}-{seed}",
            {"table": table, "seed": seed, "rows": 20 if quick else 80, "variants": list(VARIANTS)},
            _measure,
            packages=("scikit-learn", "numba"),
        )
        for table in ("breast-cancer",)
        for seed in range(1)
    ]


STUDY = Study(
    name="trees",
    title="What makes trees hold up?",
    labels=(),
    minutes={Scale.QUICK: 1, Scale.FULL: 4},
    parts=_parts,
    pictures=(Picture("trees", "Worst error against clean error of gradient boosting.", draw_trees),),
    verdicts=trees_verdicts,
    text=trees_text,
    scope={Scale.QUICK: "20 rows certified instead of 80."},
    beyond=True,
)
