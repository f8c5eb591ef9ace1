"""Attained sides of tables: the worst tables are written to a file, read by the encoder of the run, predicted
by its network, and paid for by the prices of their cells. Proven sides against brute force over real rows."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import certus
from certus.datasets.new_data import load_like
from certus.errors import ArgumentError
from tests.runs.table_files import (
    DATED,
    Field,
    counted,
    decoded,
    everything,
    make_fields,
    make_table,
    raw_cost,
    write_cells,
)

ROWS = 14


def check_worst_tables(folder: Path, seed: int) -> dict[str, float]:
    rng = np.random.default_rng([31, seed])
    fields = make_fields(rng, categories=seed % 5)
    table, network = make_table(folder / "old.csv", rng, fields)
    whole, _ = everything(table.data)
    rows, rho = whole[:ROWS], float(rng.choice([0.01, 0.1, 0.5]))
    found = certus.certify(
        network,
        rows,
        rho=rho,
        cost=table.cost,
        domain=table.data.domain,
        local_radii=0,
        gamma_rounds=0,
        attack_steps=5,
    )
    assert found.no_proof is None
    names = table.data.class_names
    assert names is not None
    error_low, error_high = found.error_lower(rho), found.error_bound(rho)
    assert error_low is not None
    assert error_high is not None
    for what, (worst, weights) in (
        ("loss", found.worst_case_data(rho)),
        ("error", found.worst_error_data(rho)),
    ):
        cells = [
            decoded(table, row, names[int(label)])
            for row, label in zip(worst.inputs, worst.targets, strict=True)
        ]
        origins = [table.cells[at % ROWS] for at in range(len(cells))]
        costs = torch.tensor([raw_cost(table, one, other) for one, other in zip(origins, cells, strict=True)])
        assert float(weights.sum()) == pytest.approx(1, abs=1e-9)
        assert float((weights * costs).sum()) <= rho * (1 + 1e-4)
        assert all(one["label"] == other["label"] for one, other in zip(origins, cells, strict=True))
        loss, error = counted(table, network, cells, weights, folder / "worst.csv")
        assert loss <= found.bound(rho) + 1e-6
        assert error <= error_high + 1e-9
        if what == "loss":
            assert loss == pytest.approx(found.lower(rho), abs=1e-5, rel=1e-5)
        else:
            assert error == pytest.approx(error_low, abs=1e-6)
    start, now = counted(
        table, network, table.cells[:ROWS], torch.full((ROWS,), 1 / ROWS), folder / "now.csv"
    )
    return {"loss": found.lower(rho) - start, "error": error_low - now}


@pytest.mark.quick_share(5)
@pytest.mark.parametrize("seed", range(20))
def test_worst_tables_are_counted_as_they_are_attained(seed: int, tmp_path: Path) -> None:
    check_worst_tables(tmp_path, seed)


@pytest.mark.soak
def test_200_worst_tables_are_counted_as_they_are_attained(tmp_path: Path) -> None:
    gains = []
    for seed in range(200):
        folder = tmp_path / str(seed)
        folder.mkdir()
        gains.append(check_worst_tables(folder, seed))
    raised = {what: sum(one[what] > 1e-6 for one in gains) for what in ("loss", "error")}
    assert raised["loss"] > 150
    assert raised["error"] > 100


@pytest.mark.parametrize("seed", range(6))
def test_encoded_rows_are_no_farther_apart_than_their_cells(seed: int, tmp_path: Path) -> None:
    """What is proven for all points within ρ in the encoding is then proven for all tables within ρ."""
    rng = np.random.default_rng([6, seed])
    fields = make_fields(rng, categories=1 + seed % 4)
    table, _ = make_table(tmp_path / "old.csv", rng, fields)
    changed = [dict(row) for row in table.cells]
    for row in changed:
        for field in fields:
            if rng.random() < 0.4:
                other = table.cells[int(rng.integers(len(changed)))][field.name]
                row[field.name] = "unseen" if field.kind == "category" and rng.random() < 0.3 else other
    write_cells(tmp_path / "other.csv", changed)
    (here, _), (there, _) = (
        everything(data) for data in (table.data, load_like(table.data, f"csv:{tmp_path}/other.csv"))
    )
    encoded = table.cost(there.inputs.double(), here.inputs.double()).tolist()
    raw = [raw_cost(table, *pair) for pair in zip(table.cells, changed, strict=True)]
    assert sum(cost > 0 for cost in raw) > 20
    for coded, paid in zip(encoded, raw, strict=True):
        assert coded <= paid * (1 + 1e-5) + 1e-9


def worst_over(costs: np.ndarray, gains: np.ndarray, rho: float) -> float:
    """max over distributions of mean cost at most ρ that put the mass of each row on its (rows, places) of
    given costs and gains: by duality min over γ ≥ 0 of γρ + mean max(gain − γ·cost), which is convex in γ."""

    fronts = [_front(*row) for row in zip(costs, gains, strict=True)]

    def dual(gamma: float) -> float:
        return gamma * rho + float(np.mean([(gain - gamma * cost).max() for cost, gain in fronts]))

    low, high = 0.0, (gains.max() - gains.min() + 1) / rho
    for _ in range(100):
        third, other = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, other) if dual(third) < dual(other) else (third, high)
    return dual(low)


def _front(costs: np.ndarray, gains: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places that gain more than all cheaper ones."""
    order = np.argsort(costs, kind="stable")
    costs, gains = costs[order], gains[order]
    better = gains > np.concatenate([[-math.inf], np.maximum.accumulate(gains)[:-1]])
    return costs[better], gains[better]


@pytest.mark.quick_share(3)
@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(4, 40))]
)
def test_both_sides_against_all_real_rows(seed: int, tmp_path: Path) -> None:
    """One number on a fine grid, with every value of two or three categories, known or new."""
    rng = np.random.default_rng([12, seed])
    fields: tuple[Field, ...] = (
        Field("n", "number", price=float(rng.choice([0.5, 1.0, 2.0]))),
        *(
            Field(
                f"c{at}",
                "category",
                ("=", ">=2", "b")[: 2 + at % 2],
                price=float(rng.choice([0.2, 0.5, 1.0])),
            )
            for at in range(2 + seed % 2)
        ),
    )
    table, network = make_table(tmp_path / "old.csv", rng, fields)
    whole, _ = everything(table.data)
    rows, grid = whole[:8], np.linspace(-3, 3, 801)
    points, prices = [], []
    for choice in itertools.product(*(range(len(field.values) + 1) for field in fields[1:])):
        hot = [
            float(at == one)
            for one, field in zip(choice, fields[1:], strict=True)
            for at in range(len(field.values))
        ]
        points.append(np.concatenate([grid[:, None], np.tile(hot, (len(grid), 1))], 1))
        prices.append(choice)
    costs, losses, wrong = [], [], []
    for row, label in zip(rows.inputs.double().numpy(), rows.targets.tolist(), strict=True):
        start, own = 1, []
        for field in fields[1:]:
            own.append(int(row[start : start + len(field.values)].argmax()))
            start += len(field.values)
        each_cost, each = [], []
        for choice, part in zip(prices, points, strict=True):
            moved = part.copy()
            moved[:, 0] += row[0]
            swaps = sum(field.price for field, a, b in zip(fields[1:], own, choice, strict=True) if a != b)
            each_cost.append(fields[0].price * grid**2 + swaps)
            each.append(moved)
        with torch.no_grad():
            outputs = network.double()(torch.from_numpy(np.concatenate(each)))
        labels = torch.full((len(outputs),), label)
        costs.append(np.concatenate(each_cost))
        losses.append(nn.functional.cross_entropy(outputs, labels, reduction="none").numpy())
        wrong.append((outputs[:, 1 - label] > outputs[:, label]).double().numpy())
    network.float()
    for rho in (0.02, 0.3):
        found = certus.certify(
            network,
            rows,
            rho=rho,
            cost=table.cost,
            domain=table.data.domain,
            local_radii=1,
            gamma_rounds=0,
            attack_steps=5,
        )
        error_low, error_high = found.error_lower(rho), found.error_bound(rho)
        assert error_low is not None
        assert error_high is not None
        for gains, low, high in (
            (losses, found.lower(rho), found.bound(rho)),
            (wrong, error_low, error_high),
        ):
            assert worst_over(np.stack(costs), np.stack(gains), rho) <= high + 1e-9
            # The grid is finer than this much more of the budget.
            assert low <= worst_over(np.stack(costs), np.stack(gains), rho * 1.05 + 1e-3) + 1e-3


def test_smoothing_attains_no_parts_of_categories(tmp_path: Path) -> None:
    """A network that looks at a category alone: in noise its errors stay the same, wherever numbers go."""
    rng = np.random.default_rng(5)
    fields = (Field("n", "number"), Field("c", "category", ("a", "b")))
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 4.0, 0.0], [0.0, 0.0, 4.0]]))
        layer.bias.zero_()
    network = nn.Sequential(layer)
    table, _ = make_table(tmp_path / "old.csv", rng, fields, network, count=600)
    whole, _ = everything(table.data)
    sigma = 0.3
    found = certus.certify_smoothed(
        network, whole, rho=0.2, sigma=sigma, draws=50, votes=20, cost=table.cost, attack_steps=6
    )
    # The margin is 4, and the difference of two columns has noise of the deviation σ·√(2 + 2).
    chance = 0.5 * math.erfc(1 / (2 * sigma) / math.sqrt(2))
    flipped = float((network(whole.inputs).argmax(1) != whole.targets).double().mean())
    now = flipped * (1 - chance) + (1 - flipped) * chance
    assert found.lower(0.2, "error") <= now + 0.02


class Unreadable(nn.Module):
    """Looks at a category alone, in a way that cannot be bounded."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        scale = 4.0 if float(rows.detach().abs().sum()) >= 0 else 1.0
        return scale * rows[:, 1:3]


def test_a_linear_model_attains_no_parts_of_categories(tmp_path: Path) -> None:
    """No number matters, so nothing is gained but by swaps, of which ρ buys a tenth of the rows."""
    rng = np.random.default_rng(8)
    fields, rho = (Field("n", "number"), Field("c", "category", ("a", "b"))), 0.1
    table, _ = make_table(tmp_path / "old.csv", rng, fields, Unreadable(), count=80)
    whole, _ = everything(table.data)
    inputs = whole.inputs.double().numpy() * np.array([0.0, 1.0, 1.0])
    linear = LogisticRegression(C=100.0).fit(inputs, whole.targets.numpy())
    linear.coef_[:, 0] = 0.0
    wrong = linear.predict(whole.inputs.double().numpy()) != whole.targets.numpy()
    found = certus.certify(linear, whole, rho=rho, cost=table.cost)
    low = found.error_lower(rho)
    assert low is not None
    assert wrong.mean() - 1e-9 <= low <= wrong.mean() + rho


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("way", ["proven", "custom criterion", "smoothing", "attack"])
def test_batches_of_a_table_are_rows_too(tmp_path: Path, way: str) -> None:
    """Cut into batches, samples have the worst case of the whole, which other tests write and read again."""
    rng = np.random.default_rng(7)
    fields = (Field("n", "number"), Field("c", "category", ("a", "b", "c")), Field("when", "date"))
    table, network = make_table(tmp_path / "old.csv", rng, fields)
    whole, _ = everything(table.data)
    fresh, _ = everything(
        certus.datasets.load(f"csv:{table.path}", target="label", options=DATED)
    )  # an encoding of its own
    batches = [whole[:15], fresh[15:]]

    def sides(rows: Any) -> list[float]:
        if way == "attack":
            done = certus.evaluate(network, rows, certus.attacks.FGSM(0.5))
            return [float(done.losses.mean()), float(done.sup.max())]
        options: dict[str, Any] = {"attack_steps": 5, "domain": table.data.domain}
        if way == "smoothing":
            options = {"sigma": 0.3, "draws": 200, "seed": 0}
        if way == "custom criterion":
            options["criterion"] = nn.MultiMarginLoss(reduction="none")
        way_in: Any = certus.certify_smoothed if way == "smoothing" else certus.certify
        found = way_in(network, rows, rho=0.2, cost=table.cost, **options)
        if way == "smoothing":
            return [found.lower(0.2)]
        if way == "proven":
            names = table.data.class_names
            assert names is not None
            for worst, _ in (found.worst_case_data(0.2), found.worst_error_data(0.2)):
                for row, label in zip(worst.inputs, worst.targets, strict=True):
                    decoded(table, row, names[int(label)])  # which refuses parts of a category
        assert way != "custom criterion" or found.no_proof is not None
        return [found.lower(0.2), found.error_lower(0.2)]

    assert sides(batches) == pytest.approx(sides(whole), rel=1e-9)
    unscaled, _ = everything(
        certus.datasets.load(f"csv:{table.path}", target="label", standardize=False, options=DATED)
    )
    for other in ((whole.inputs[15:], whole.targets[15:]), unscaled[15:]):
        with pytest.raises(ArgumentError, match="encoding"):
            sides([whole[:15], other])
