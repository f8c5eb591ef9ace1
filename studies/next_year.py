"""Will it hold next year? Who is employed, learnt from 2015 and asked in 2016, 2017 and 2018.

Four models of the same rows: logistic regression and gradient boosting of scikit-learn, a small network
trained by WRM, and one whose training is certified. Each is asked three questions: how often does it err on
2015; how often on the years that came; and how often in the worst case within ρ of 2015, where ρ is small,
or the most that the years may have moved by the estimate of ``certus distance``. Seconds are the processor's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

import certus
from certus._format import at_least, at_most
from certus.certificates.certificate import Certificate
from certus.certificates.transport import estimated_distance
from certus.costs import Cost, LabelCost, SquaredL2, WeightedL2
from certus.data import Samples, random_order
from certus.datasets import SplitDataset
from certus.display.canvas import COLOURS, MARKERS, legend_below, new_figure, title_above
from certus.runs.loaded_run import named_split
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
    outcome_of_several,
    recorded_evidence,
)
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL_LEVEL = "small"
"""The ρ that WRM trains for; the other level is what the years may have moved by."""

_LINEAR, _ROBUST = "logistic regression", ("WRM", "certified")
_YEARS = ("2015", "2016", "2017", "2018")
_HEAD = """
The task is to predict who is employed in Massachusetts. Models are trained on three fifths of the people of
2015, and tested on others of 2015 and on all of 2016, 2017 and 2018, for {seeds} splits of 2015, each with
its own initial weights. Numbers are medians, with the range over the splits in brackets.

## What moved

Ŵ is the transport cost between the two populations, *estimated*
([how](../../docs/certificates.md#how-far-do-my-data-move)), ± its standard error over {draws} draws of
people. A change of one answer costs 1, and so does a standard deviation of age. An estimate within two
standard errors of 0 does not show a shift.

"""
_LABELS = """
**The label cost.** A certificate with fixed labels is about people who change their answers and keep their
jobs. Most shifts of tables are different: the answers keep their distribution, and the *relation* between
answers and jobs changes. With a label cost of 1, a change of the label costs as much as a change of one
answer: at ρ = 0.01, one label in a hundred may change if nothing else moves. Where a move of the inputs
already reaches an error at a cost below 1, the label cost changes little.

## Errors of the models

Error in percent; processor time in seconds. Logistic regression and gradient boosting are those of
scikit-learn, with their defaults. The networks have 16 hidden units (softplus), and {epochs} epochs of Adam.
WRM was trained for ρ = {rho:g}, the certified network for γ = {gamma:g}. Nothing was tuned; γ = 2, tried once
on one split, gave about the same error.

"""
_WORST = """
## The worst case

The worst error (in percent) and loss over all distributions within ρ of {rows} people of 2015: *at least*
(**attained**, by a distribution that was found) – *at most* (**proven**); medians. Gradient boosting is
certified on the first {trees} of these people, by a search that ends where both sides are within a tenth of
each other ([how](../../docs/boosting.md)). The larger ρ is the largest estimated distance of a year, at a
label cost of 1, plus two standard errors. It is not proven that a year lies within it.

"""


def next_year_text(measured: Measured) -> str:
    """Return the page's sections and tables."""
    splits, about = _models(measured), measured["split-0"]
    moved = []
    for year, shift in measured["shifts"]["shifts"].items():
        cells = [
            f"{mean:.3f} ± {spread:.3f}" for mean, spread in (shift["inputs alone"], shift["with labels"])
        ]
        before, after = shift["share employed"]
        moved.append([year, *cells, f"{before:.1%} → {after:.1%}"])
    met = [_met(splits, name) for name in splits[0]]
    parts = [
        _HEAD.format(seeds=len(splits), draws=measured["shifts"]["draws"]),
        markdown_table(["from 2015 to", "Ŵ, inputs alone", "Ŵ, a changed label costs 1", "employed"], moved),
        _LABELS.format(**about),
        markdown_table(["", *_YEARS, "training, s", "certifying, s"], met),
        _WORST.format(**about, trees=about["rows of trees"]),
    ]
    for level, rho in measured["shifts"]["levels"].items():
        head = [f"ρ = {rho:.2g}", *(f"{what}{also}" for what, also in _KINDS)]
        parts.append(markdown_table(head, [_worst(splits, name, level) for name in splits[0]]))
    return "\n\n".join(part.strip() for part in parts)


def _models(measured: Measured) -> list[Mapping[str, Any]]:
    """Return the models of every split."""
    return [entry["models"] for name, entry in measured.items() if name.startswith("split-")]


_KINDS = (("error", ""), ("loss", ""), ("error", ", labels too"), ("loss", ", labels too"))


def _met(splits: list[Mapping[str, Any]], name: str) -> list[str]:
    cells = [name]
    for year in _YEARS:
        values = [100 * split[name]["errors"][year] for split in splits]
        cells.append(f"{median(values):.1f} ({min(values):.1f} – {max(values):.1f})")
    for what in ("training", "certifying"):
        seconds = [split[name].get(f"seconds of {what}") for split in splits]
        cells.append("–" if None in seconds else f"{median(seconds):.1f}")
    return cells


def _worst(splits: list[Mapping[str, Any]], name: str, level: str) -> list[str]:
    worst = [split[name]["worst"][level] for split in splits]
    return [name, *(_bracket(worst, what, labels=bool(also)) for what, also in _KINDS)]


def _bracket(worst: list[Mapping[str, Any]], what: str, *, labels: bool) -> str:
    """Format attained – proven; an attained value with fixed labels also counts where labels may move."""
    scale, digits = (100, 1) if what == "error" else (1, 3)
    kinds = [[entry, entry["with labels"]] if labels else [entry] for entry in worst]
    low = [max(each[f"{what}_low"] for each in kind) for kind in kinds]
    high = [kind[-1][f"{what}_high"] for kind in kinds]
    return f"{at_least(scale * median(low), digits)} – {at_most(scale * median(high), digits)}"


def _real(splits: list[Mapping[str, Any]], name: str) -> float:
    """Return the median error in the worst of the later years."""
    return float(max(median(split[name]["errors"][year] for split in splits) for year in _YEARS[1:]))


def _proven(splits: list[Mapping[str, Any]]) -> dict[str, float]:
    """Return the median proven worst case at the small level."""
    return {
        name: median(split[name]["worst"][SMALL_LEVEL]["error_high"] for split in splits)
        for name in splits[0]
    }


def next_year_verdicts(measured: Measured) -> list[Verdict]:
    """Judge the later years and the proven worst cases."""
    splits, rho = _models(measured), measured["shifts"]["levels"][SMALL_LEVEL]
    real, proven = {name: _real(splits, name) for name in splits[0]}, _proven(splits)
    best = min(real, key=lambda name: real[name])
    return [
        Verdict(
            name="years",
            label="",
            claim="Does a robust model err least in 2016 to 2018, learnt from 2015?",
            rule="the smallest error in its worst year, in the median over splits, is that of one of ours",
            outcome=outcome_of(best in _ROBUST),
            ours={name: Quantity(error, places=1, percent=True) for name, error in real.items()},
        ),
        Verdict(
            name="proven",
            label="",
            claim=f"Is less error of them proven for every shift within ρ = {rho:g} than of logistic "
            "regression?",
            rule="a smaller proven error of both, in the median over splits; *partly*: of one",
            outcome=outcome_of_several([proven[name] < proven[_LINEAR] for name in _ROBUST]),
            ours={
                name: Quantity(high, places=1, percent=True, side="at most") for name, high in proven.items()
            },
            evidence=recorded_evidence(
                *(split[name]["worst"][SMALL_LEVEL] for split in splits for name in proven)
            ),
        ),
    ]


def draw_years(measured: Measured) -> Figure:
    """Draw errors by year, and the brackets of the worst case."""
    splits, levels, figure = _models(measured), measured["shifts"]["levels"], new_figure(11, 4)
    left, right = figure.subplots(1, 2)
    names = list(splits[0])
    for place, name in enumerate(names):
        colour, marker, aside = COLOURS[place], MARKERS[place], 0.15 * (place - 1.5)
        for spot, year in enumerate(_YEARS):
            values = [100 * split[name]["errors"][year] for split in splits]
            left.vlines(spot + aside, min(values), max(values), color=colour)
            left.plot(spot + aside, median(values), color=colour, marker=marker, markersize=6, label=name)
        for spot, level in enumerate(levels):
            _draw_bracket(
                right, spot + aside, [split[name]["worst"][level] for split in splits], colour, marker
            )
    left.set_xticks(range(len(_YEARS)), _YEARS)
    left.set(ylabel="error, per cent", title="What came")
    right.set_xticks(range(len(levels)), [f"ρ = {rho:.2g}" for rho in levels.values()])
    right.set(
        ylabel="error, per cent", ylim=(0, 100), title="The worst case: attained (mark) to proven (bar)"
    )
    left.set_ylim(0, None)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    legend = dict(zip(*reversed(left.get_legend_handles_labels()), strict=True))
    legend_below(figure, list(legend.values()), list(legend))
    title_above(figure, "Learnt from 2015: medians, and ranges over splits", 11)
    return figure


def _draw_bracket(axes: Any, at: float, worst: list[Mapping[str, Any]], colour: str, marker: str) -> None:
    low = median(100 * entry["error_low"] for entry in worst)
    axes.plot(at, low, color=colour, marker=marker, markersize=6)
    high = median(100 * entry["error_high"] for entry in worst)
    axes.vlines(at, low, high, color=colour, linewidth=4, alpha=0.5)
    axes.hlines(high, at - 0.06, at + 0.06, color=colour, linewidth=2)


_LATER_YEARS = ("2016", "2017", "2018")
_LABEL_PRICE = 1.0
_WIDTH, _BATCH, _RATE = 16, 256, 4e-3
_WIDER = 1.1  # both sides of a certificate of trees, at most, where its searches end early
_BOOSTING = "gradient boosting"
Predict = Callable[[Tensor], Tensor]
"""(n, features) → (n,) labels."""


@dataclass(frozen=True)
class _Trained:
    """A trained model, its prediction function, and the seconds of its training."""

    model: Any
    says: Predict
    seconds: float


def _measure_shifts(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Estimate the distance of each year from 2015: [mean, standard error] over draws of 500 people."""
    data, cost = _people(0)
    here, shifts, draws = named_split(data, "all"), {}, settings["draws"]
    for year in _LATER_YEARS:
        there, shift = data.later[year], {}
        for words, price in (("inputs alone", None), ("with labels", _LABEL_PRICE)):
            values = torch.tensor(
                [
                    estimated_distance(here, there, cost, label_cost=price, seed=seed, rounds=1)
                    for seed in range(draws)
                ],
                dtype=torch.float64,
            )
            shift[words] = [float(values.mean()), float(values.std() / draws**0.5)]
        employed = [float(part.targets.double().mean()) for part in (here, there)]
        shifts[year] = shift | {"share employed": employed}
    largest = max(mean + 2 * error for mean, error in (shift["with labels"] for shift in shifts.values()))
    levels = {SMALL_LEVEL: settings["rho"], "measured": max(largest, settings["rho"])}
    return {"shifts": shifts, "levels": levels, "draws": draws}


def _measure_split(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train and certify every model on one split of 2015."""
    about = {"draws": settings["draws"], "rho": settings["rho"]}
    moved = workspace.cached_number(
        {"how far the years moved": about}, lambda: _measure_shifts(workspace, about)["levels"]["measured"]
    )
    levels, seed = {SMALL_LEVEL: settings["rho"], "measured": moved}, settings["seed"]
    data, cost = _people(seed)
    rows, models = data.test[random_order(len(data.test), seed)[: settings["rows"]]], {}
    for name, trained in _train(data, cost, settings).items():
        result: dict[str, Any] = {"seconds of training": trained.seconds}
        result["errors"] = {"2015": _error(trained.says, data.test)}
        result["errors"] |= {year: _error(trained.says, data.later[year]) for year in _LATER_YEARS}
        result["error of the rows"] = _error(trained.says, rows)
        some = rows[: settings["rows of trees"]]
        own = (cell_rows(data, some.inputs), some.targets) if name == _BOOSTING else rows
        began = time.process_time()
        plain, priced = (_certify(trained.model, own, cost, levels, price) for price in (None, _LABEL_PRICE))
        result["seconds of certifying"] = time.process_time() - began
        result["worst"] = {
            level: _sides(plain, rho) | {"with labels": _sides(priced, rho)} for level, rho in levels.items()
        }
        models[name] = result
    return {
        "models": models,
        **{name: settings[name] for name in ("rho", "gamma", "epochs", "rows", "rows of trees")},
    }


def _people(seed: int) -> tuple[SplitDataset, WeightedL2]:
    """Return the table and its cost: another answer costs 1, a standard deviation of age 1."""
    data = certus.datasets.load("employment", seed=seed)
    assert data.weights is not None
    return data, WeightedL2(data.weights)


def _train(data: SplitDataset, cost: Cost, settings: Mapping[str, Any]) -> dict[str, _Trained]:
    """Train four models on the same rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    seed, targets = settings["seed"], data.train.targets.numpy()

    def theirs(model: Any, cells: Callable[[Tensor], Any]) -> _Trained:
        began = time.process_time()
        model.fit(cells(data.train.inputs), targets)
        seconds = time.process_time() - began
        return _Trained(model, lambda rows: torch.from_numpy(np.asarray(model.predict(cells(rows)))), seconds)

    def ours(method: certus.WRM, certified: bool) -> _Trained:
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Linear(data.train.inputs.shape[1], _WIDTH), nn.Softplus(), nn.Linear(_WIDTH, 2)
        )
        began = time.process_time()
        certus.fit(
            network,
            data.train,
            method=method,
            epochs=settings["epochs"],
            batch_size=_BATCH,
            optimizer=torch.optim.Adam(network.parameters(), lr=_RATE),
            certified=certus.training.CertifiedTraining() if certified else None,
            seed=seed,
        )
        seconds = time.process_time() - began
        return _Trained(network, lambda rows: network(rows).argmax(1), seconds)

    return {
        "logistic regression": theirs(LogisticRegression(max_iter=1000), Tensor.numpy),
        _BOOSTING: theirs(
            one_hot(data, HistGradientBoostingClassifier(random_state=seed)),
            lambda rows: cell_rows(data, rows),
        ),
        "WRM": ours(certus.WRM(rho=settings["rho"], cost=cost), False),
        "certified": ours(certus.WRM(gamma=settings["gamma"], cost=cost), True),
    }


def _groups(data: SplitDataset) -> dict[str, list[int]]:
    """Return the places of the inputs of each column of the table: a number, or one for each answer."""
    assert data.feature_names is not None
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(data.feature_names):
        groups.setdefault(name.partition("=")[0], []).append(place)
    return groups


def cell_rows(data: SplitDataset, inputs: Tensor) -> np.ndarray[Any, Any]:
    """(n, features) encoded inputs → (n, columns) numbers, and codes of answers."""
    cells = [
        inputs[:, places].argmax(1) if len(places) > 1 else inputs[:, places[0]]
        for places in _groups(data).values()
    ]
    return torch.stack([cell.double() for cell in cells], 1).numpy()


def one_hot(data: SplitDataset, model: Any) -> Any:
    """Return a model of ``cell_rows``, that is fitted on answers as one-hot columns."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    sizes = [len(places) for places in _groups(data).values()]
    answers = [place for place, size in enumerate(sizes) if size > 1]
    if not answers:
        return model
    numbers = [place for place, size in enumerate(sizes) if size == 1]
    encoder = OneHotEncoder(
        categories=[np.arange(float(sizes[place])) for place in answers], sparse_output=False
    )
    steps = [("numbers", "passthrough", numbers), ("answers", encoder, answers)]
    return make_pipeline(ColumnTransformer(steps), model)


def _certify(model: Any, rows: Any, cost: Cost, levels: dict[str, float], price: float | None) -> Certificate:
    """Certify a model over all distributions within ρ of the rows; with a price, labels may change too."""
    options: dict[str, Any] = {} if price is None else {"label_cost": LabelCost(price, 2)}
    if isinstance(model, nn.Module):
        options |= {"local_radii": 2, "gamma_rounds": 0}
    if isinstance(rows, tuple):  # of trees: another answer costs 1, as a standard deviation of age does
        cost, options = SquaredL2(), options | {"width": _WIDER, "progress": False}
    certificate = certus.certify(model, rows, rho=sorted(set(levels.values())), cost=cost, **options)
    assert isinstance(certificate, Certificate)
    return certificate


def _sides(certificate: Certificate, rho: float) -> dict[str, float | str | None]:
    at = certificate.bracket(rho)
    names = ("loss_low", "loss_high", "error_low", "error_high")
    return {name: getattr(at, name) for name in names} | {"evidence": str(certificate.evidence)}


@torch.no_grad()
def _error(says: Predict, data: Samples) -> float:
    return float((says(data.inputs) != data.targets).double().mean())


def _parts(scale: Scale) -> list[Part]:
    quick = scale is Scale.QUICK
    drawn = {"draws": 2 if quick else 10, "rho": 0.01}
    size = {"epochs": 1 if quick else 4, "rows": 40 if quick else 250, "gamma": 5.0}
    size |= {"rows of trees": 20 if quick else 100}
    splits = [
        Part(f"split-{seed}", {"seed": seed, **drawn, **size}, _measure_split, packages=("scikit-learn",))
        for seed in range(1 if quick else 5)
    ]
    return [Part("shifts", drawn, _measure_shifts, packages=("POT",)), *splits]


STUDY = Study(
    name="next-year",
    title="Will it hold next year?",
    labels=(),
    minutes={Scale.QUICK: 1, Scale.FULL: 20},
    parts=_parts,
    pictures=(
        Picture("next-year", "Errors of four models in four years, and their worst cases.", draw_years),
    ),
    verdicts=next_year_verdicts,
    text=next_year_text,
    scope={Scale.QUICK: "One split instead of five, one epoch instead of four, 40 people certified."},
    revision=2,
    datasets=("employment",),
    beyond=True,
)
