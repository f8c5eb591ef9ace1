"""Will it hold next year? Who is employed, learnt from 2015 and asked in 2016, 2017 and 2018.

Four models of the same rows: logistic regression and gradient boosting of scikit-learn, a small network
trained by WRM, and one whose training is certified. Each is asked three questions: how often does it err on
2015; how often on the years that came; and how often in the worst case within ρ of 2015, where ρ is small,
or the most that the years may have moved by the estimate of ``certus shift``. Seconds are the processor's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import certus
from certus.certificates.certificate import Certificate
from certus.certificates.transport import estimated_distance
from certus.costs import Cost, LabelCost, WeightedL2
from certus.data import Split, random_order
from certus.datasets import DataSet
from certus.runs.loaded_run import named_split
from studies.next_year_page import SMALL_LEVEL, draw_years, next_year_statements, next_year_text
from studies.reproduction import Extent, Part, Picture, Reproduction
from studies.workshop import Workshop

_YEARS = ("2016", "2017", "2018")
_LABEL_PRICE = 1.0
_WIDTH, _BATCH, _RATE = 16, 256, 4e-3
_HALF_YEARS = 40  # that an age is moved at most, to find an error of gradient boosting
_BOOSTING = "gradient boosting"
Predict = Callable[[Tensor], Tensor]
"""(n, features) → (n,) labels."""


@dataclass(frozen=True)
class _Trained:
    """A model, what it says, and what its training took."""

    model: Any
    says: Predict
    seconds: float


def _measure_shifts(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """How far each year is from 2015, *estimated*: [mean, standard error] over draws of 500 people each."""
    data, cost = _people(0)
    here, found, draws = named_split(data, "all"), {}, settings["draws"]
    for year in _YEARS:
        there, told = data.later[year], {}
        for words, price in (("inputs alone", None), ("with labels", _LABEL_PRICE)):
            values = torch.tensor(
                [
                    estimated_distance(here, there, cost, label_price=price, seed=seed, rounds=1)
                    for seed in range(draws)
                ],
                dtype=torch.float64,
            )
            told[words] = [float(values.mean()), float(values.std() / draws**0.5)]
        employed = [float(part.targets.double().mean()) for part in (here, there)]
        found[year] = told | {"share employed": employed}
    largest = max(mean + 2 * error for mean, error in (told["with labels"] for told in found.values()))
    levels = {SMALL_LEVEL: settings["rho"], "measured": max(largest, settings["rho"])}
    return {"shifts": found, "levels": levels, "draws": draws}


def _measure_split(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Every model, on one split of 2015, at the levels that the years moved by."""
    about = {"draws": settings["draws"], "rho": settings["rho"]}
    moved = workshop.number(
        {"how far the years moved": about}, lambda: _measure_shifts(workshop, about)["levels"]["measured"]
    )
    levels, seed = {SMALL_LEVEL: settings["rho"], "measured": moved}, settings["seed"]
    data, cost = _people(seed)
    rows, found = data.test[random_order(len(data.test), seed)[: settings["rows"]]], {}
    for name, trained in _train(data, cost, settings).items():
        told: dict[str, Any] = {"seconds of training": trained.seconds}
        told["errors"] = {"2015": _error(trained.says, data.test)}
        told["errors"] |= {year: _error(trained.says, data.later[year]) for year in _YEARS}
        told["error of the rows"] = _error(trained.says, rows)
        if name == _BOOSTING:
            cheapest = age_costs(trained.says, rows, data)
            told["worst"] = {
                level: {"error_low": errors_bought(cheapest, rho)} for level, rho in levels.items()
            }
        else:
            began = time.process_time()
            plain, priced = (
                _certify(trained.model, rows, cost, levels, price) for price in (None, _LABEL_PRICE)
            )
            told["seconds of certifying"] = time.process_time() - began
            told["worst"] = {
                level: _sides(plain, rho) | {"with labels": _sides(priced, rho)}
                for level, rho in levels.items()
            }
        found[name] = told
    return {"models": found, **{name: settings[name] for name in ("rho", "gamma", "epochs", "rows")}}


def _people(seed: int) -> tuple[DataSet, WeightedL2]:
    """The table, and what moving in it costs: another answer 1, a standard deviation of age 1."""
    data = certus.datasets.load("employment", seed=seed)
    assert data.weights is not None
    return data, WeightedL2(data.weights)


def _train(data: DataSet, cost: Cost, settings: Mapping[str, Any]) -> dict[str, _Trained]:
    """Four models of the same rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    seed = settings["seed"]
    inputs, targets = data.train.inputs.numpy(), data.train.targets.numpy()

    def theirs(model: Any) -> _Trained:
        began = time.process_time()
        model.fit(inputs, targets)
        seconds = time.process_time() - began
        return _Trained(
            model, lambda rows: torch.from_numpy(np.asarray(model.predict(rows.numpy()))), seconds
        )

    def ours(method: certus.WRM, certified: bool) -> _Trained:
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(inputs.shape[1], _WIDTH), nn.Softplus(), nn.Linear(_WIDTH, 2))
        began = time.process_time()
        certus.fit(
            network,
            data.train,
            method=method,
            epochs=settings["epochs"],
            batch_size=_BATCH,
            optimizer=torch.optim.Adam(network.parameters(), lr=_RATE),
            certified=certified,
            seed=seed,
        )
        seconds = time.process_time() - began
        return _Trained(network, lambda rows: network(rows).argmax(1), seconds)

    return {
        "logistic regression": theirs(LogisticRegression(max_iter=1000)),
        _BOOSTING: theirs(HistGradientBoostingClassifier(random_state=seed)),
        "WRM": ours(certus.WRM(rho=settings["rho"], cost=cost), False),
        "certified": ours(certus.WRM(gamma=settings["gamma"], cost=cost), True),
    }


def _certify(
    model: Any, rows: Split, cost: Cost, levels: dict[str, float], price: float | None
) -> Certificate:
    """Over all distributions within ρ of the rows; with a price, labels may change too."""
    options: dict[str, Any] = {} if price is None else {"label_cost": LabelCost(price, 2)}
    if isinstance(model, nn.Module):
        options |= {"balls": 2, "refine": 0}
    found = certus.certify(model, rows, rho=sorted(set(levels.values())), cost=cost, **options)
    assert isinstance(found, Certificate)
    return found


def _sides(found: Certificate, rho: float) -> dict[str, float | None]:
    at = found.bracket(rho)
    names = ("loss_low", "loss_high", "error_low", "error_high")
    return {name: getattr(at, name) for name in names}


@torch.no_grad()
def _error(says: Predict, data: Split) -> float:
    return float((says(data.inputs) != data.targets).double().mean())


def age_costs(says: Predict, rows: Split, data: DataSet) -> Tensor:
    """(n,) the least cost, by moving the age alone by half years, of an error; ∞ if none is found."""
    assert data.input_scale is not None
    deviation = float(data.input_scale[1][0])
    costs = torch.where(says(rows.inputs) != rows.targets, 0.0, torch.inf).double()
    for halves in range(1, _HALF_YEARS + 1):
        for years in (halves / 2 + 0.1, -halves / 2 - 0.1):  # 0.6 crosses what lies between whole ages
            moved = rows.inputs.clone()
            moved[:, 0] += years / deviation
            wrong = says(moved) != rows.targets
            costs = torch.where(wrong, costs.clamp_max((years / deviation) ** 2), costs)
    return costs


def errors_bought(costs: Tensor, rho: float) -> float:
    """The share of errors that a mean cost of ρ buys, the cheapest first: *attained*."""
    spent = costs.sort().values.cumsum(0) / len(costs)
    return float((spent <= rho).double().mean())


def _parts(extent: Extent) -> list[Part]:
    quick = extent is Extent.QUICK
    drawn = {"draws": 2 if quick else 10, "rho": 0.01}
    size = {"epochs": 1 if quick else 4, "rows": 40 if quick else 250, "gamma": 5.0}
    splits = [
        Part(f"split-{seed}", {"seed": seed, **drawn, **size}, _measure_split, packages=("scikit-learn",))
        for seed in range(1 if quick else 5)
    ]
    return [Part("shifts", drawn, _measure_shifts, packages=("POT",)), *splits]


REPRODUCTION = Reproduction(
    name="next-year",
    title="Will it hold next year?",
    shows=(),
    minutes={Extent.QUICK: 1, Extent.PAPER: 8},
    parts=_parts,
    pictures=(
        Picture("next-year", "Errors of four models in four years, and their worst cases.", draw_years),
    ),
    statements=next_year_statements,
    text=next_year_text,
    smaller={Extent.QUICK: "One split instead of five, one epoch instead of four, 40 people certified."},
    needs=("employment",),
    beyond=True,
)
