"""Will it hold next year? Who is employed, learnt from 2015 and asked in 2016, 2017 and 2018.

    certus data get employment
    python -m experiments.next_year                    # five splits, four models each, some minutes
    python -m experiments.next_year --resume           # go on after an interruption
    python -m experiments.next_year --page             # page and picture again, from what was measured

Four models of the same rows: logistic regression and gradient boosting of scikit-learn, a small network
trained by WRM, and one whose training is certified. Each is asked three questions: how often does it err on
2015; how often on the years that came; and how often in the worst case within ρ of 2015, where ρ is small,
or the most that the years may have moved by the estimate of ``certus shift``. Seconds are the processor's.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

import certus
from benchmarks._options import OUTPUT, RESUME, Shows, perform, read_options
from benchmarks._results import read_result, read_unfinished, write_result, write_unfinished
from certus.certificates.certificate import Certificate
from certus.certificates.shift_estimate import estimated_distance
from certus.costs import Cost, LabelCost, WeightedL2
from certus.data import DataSet
from certus.runs.held_out import named_split
from certus.split import Split
from certus.subsets import random_order
from experiments._next_year_page import write_page

YEARS = ("2016", "2017", "2018")
LABEL_PRICE = 1.0
_WIDTH, _BATCH, _RATE = 16, 256, 4e-3
_HALF_YEARS = 40  # that an age is moved at most, to find an error of gradient boosting
Predict = Callable[[Tensor], Tensor]
"""(n, features) → (n,) labels."""


@dataclass(frozen=True)
class Args:
    seeds: Annotated[int, "splits of 2015, and weights to begin with"] = 5
    rho: Annotated[float, "the small level: WRM trains for it, and all are certified at it"] = 0.01
    gamma: Annotated[float, "of the certified training"] = 5.0
    epochs: Annotated[int, "of the networks"] = 4
    draws: Annotated[int, "of people, to estimate how far the years moved"] = 10
    rows: Annotated[int, "of the test split, certified"] = 250
    resume: Annotated[bool, RESUME] = False
    page: Annotated[bool, "write the page from what was measured, and measure nothing", Shows()] = False
    output: Annotated[Path, OUTPUT] = Path("results/next-year/measured.json")


@dataclass(frozen=True)
class Trained:
    """A model, what it says, and what of it can be certified: itself, or a network."""

    model: Any
    says: Predict
    seconds: float


def main(args: Args) -> None:
    if not args.page:
        torch.set_num_threads(1)
        parts = read_unfinished(args)
        steps: dict[str, Callable[[], Any]] = {"shift": lambda: shifts(args)}
        for seed in range(args.seeds):
            steps[str(seed)] = functools.partial(_measure_at, seed, parts, args)
        for step, work in steps.items():
            if step not in parts:
                parts[step] = work()
                write_unfinished(args, parts)
                print(f"measured: {step}", flush=True)
        write_result(args, parts["shift"] | {"seeds": [parts[str(seed)] for seed in range(args.seeds)]})
    write_page(args.output.parent, read_result(args)[1])


def _measure_at(seed: int, parts: dict[str, Any], args: Args) -> dict[str, Any]:
    return measure(seed, parts["shift"]["levels"], args)


def measure(seed: int, levels: dict[str, float], args: Args) -> dict[str, Any]:
    """Every model, on one split of 2015."""
    data, cost = people(seed)
    rows = data.test[random_order(len(data.test), seed)[: args.rows]]
    found = {}
    for name, trained in train(data, cost, seed, args).items():
        told: dict[str, Any] = {"seconds of training": trained.seconds}
        told["errors"] = {"2015": error(trained.says, data.test)}
        told["errors"] |= {year: error(trained.says, data.later[year]) for year in YEARS}
        told["error of the rows"] = error(trained.says, rows)
        if isinstance(trained.model, HistGradientBoostingClassifier):
            cheapest = age_costs(trained.says, rows, data)
            told["worst"] = {level: {"error_low": bought(cheapest, rho)} for level, rho in levels.items()}
        else:
            began = time.process_time()
            plain, priced = (
                certify(trained.model, rows, cost, levels, price) for price in (None, LABEL_PRICE)
            )
            told["seconds of certifying"] = time.process_time() - began
            told["worst"] = {
                level: sides(plain, rho) | {"with labels": sides(priced, rho)}
                for level, rho in levels.items()
            }
        found[name] = told
    return found


def people(seed: int) -> tuple[DataSet, WeightedL2]:
    """The table, and what moving in it costs: another answer 1, a standard deviation of age 1."""
    data = certus.data.load("employment", seed=seed)
    assert data.weights is not None
    return data, WeightedL2(data.weights)


def shifts(args: Args) -> dict[str, Any]:
    """How far each year is from 2015, *estimated*: [mean, standard error] over draws of 500 people each."""
    data, cost = people(0)
    here, found = named_split(data, "all"), {}
    for year in YEARS:
        there, told = data.later[year], {}
        for words, price in (("inputs alone", None), ("with labels", LABEL_PRICE)):
            draws = [
                estimated_distance(here, there, cost, label_price=price, seed=seed, rounds=1)
                for seed in range(args.draws)
            ]
            values = torch.tensor(draws, dtype=torch.float64)
            told[words] = [float(values.mean()), float(values.std() / args.draws**0.5)]
        employed = [float(part.targets.double().mean()) for part in (here, there)]
        found[year] = told | {"share employed": employed}
    largest = max(mean + 2 * error for mean, error in (told["with labels"] for told in found.values()))
    return {"shifts": found, "levels": {"small": args.rho, "measured": max(largest, args.rho)}}


def train(data: DataSet, cost: Cost, seed: int, args: Args) -> dict[str, Trained]:
    """Four models of the same rows."""
    inputs, targets = data.train.inputs.numpy(), data.train.targets.numpy()

    def theirs(model: Any) -> Trained:
        began = time.process_time()
        model.fit(inputs, targets)
        seconds = time.process_time() - began
        return Trained(model, lambda rows: torch.from_numpy(np.asarray(model.predict(rows.numpy()))), seconds)

    def ours(method: certus.WRM, certified: bool) -> Trained:
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(inputs.shape[1], _WIDTH), nn.Softplus(), nn.Linear(_WIDTH, 2))
        began = time.process_time()
        certus.fit(
            network,
            data.train,
            method=method,
            epochs=args.epochs,
            batch_size=_BATCH,
            optimizer=torch.optim.Adam(network.parameters(), lr=_RATE),
            certified=certified,
            seed=seed,
        )
        seconds = time.process_time() - began
        return Trained(network, lambda rows: network(rows).argmax(1), seconds)

    return {
        "logistic regression": theirs(LogisticRegression(max_iter=1000)),
        "gradient boosting": theirs(HistGradientBoostingClassifier(random_state=seed)),
        "WRM": ours(certus.WRM(rho=args.rho, cost=cost), False),
        "certified": ours(certus.WRM(gamma=args.gamma, cost=cost), True),
    }


def certify(
    model: Any, rows: Split, cost: Cost, levels: dict[str, float], price: float | None
) -> Certificate:
    """Over all distributions within ρ of the rows; with a price, labels may change too."""
    options: dict[str, Any] = {} if price is None else {"label_cost": LabelCost(price, 2)}
    sample: Any = rows if isinstance(model, nn.Module) else (rows.inputs.numpy(), rows.targets.numpy())
    if isinstance(model, nn.Module):
        options |= {"balls": 2, "refine": 0}
    found = certus.certify(model, sample, rho=sorted(set(levels.values())), cost=cost, **options)
    assert isinstance(found, Certificate)
    return found


def sides(found: Certificate, rho: float) -> dict[str, float | None]:
    at = found.bracket(rho)
    names = ("loss_low", "loss_high", "error_low", "error_high")
    return {name: getattr(at, name) for name in names}


@torch.no_grad()
def error(says: Predict, data: Split) -> float:
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


def bought(costs: Tensor, rho: float) -> float:
    """The share of errors that a mean cost of ρ buys, the cheapest first: *attained*."""
    spent = costs.sort().values.cumsum(0) / len(costs)
    return float((spent <= rho).double().mean())


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
