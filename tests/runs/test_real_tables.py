"""Attained sides of tables: the worst tables are written to a file, read by the encoder of the run, predicted
by its network, and paid for by the prices of their cells. Proven sides against brute force over real rows."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import certus
from tests.runs.table_files import (
    Field,
    counted,
    decoded,
    everything,
    make_fields,
    make_table,
    raw_cost,
)

ROWS = 14


def check_worst_tables(folder: Path, seed: int) -> dict[str, float]:
    rng = np.random.default_rng([31, seed])
    fields = make_fields(rng, categories=seed % 5)
    table, network = make_table(folder / "old.csv", rng, fields)
    whole, _ = everything(table.data)
    rows, rho = whole[:ROWS], float(rng.choice([0.01, 0.1, 0.5]))
    found = certus.certify(
        network, rows, rho=rho, cost=table.cost, domain=table.data.domain, balls=0, refine=0, attack_steps=5
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
            balls=1,
            refine=0,
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
