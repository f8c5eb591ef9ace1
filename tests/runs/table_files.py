"""Random tables as files, networks on them, and rows turned back into cells: with no word from the code that
reads tables about which inputs belong together."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import certus
from certus.data import Samples
from certus.datasets import SplitDataset, TableOptions
from certus.datasets.new_data import load_like

NAMES = (">=65", "a=b", "x?", "(missing", "p,q", 'say "so"', "known", "0x1", "Zürich")
FIRST = np.datetime64("1970-01-01")
TARGET = "label"
DATED = TableOptions(date_features="trend,season")


@dataclass(frozen=True)
class Field:
    """A column: a number, a date or a category, with gaps or not, and what a change costs."""

    name: str
    kind: str
    values: tuple[str, ...] = ()
    gaps: bool = False
    price: float = 1.0

    @property
    def width(self) -> int:
        own = {"number": 1, "date": 3, "category": len(self.values)}[self.kind]
        return own + 2 * self.gaps

    @property
    def weights(self) -> list[float]:
        if self.kind == "category":
            return [self.price / 2] * len(self.values)
        return [self.price] * (self.width - 2 * self.gaps) + [self.price / 2] * (2 * self.gaps)


@dataclass(frozen=True)
class Table:
    """A file, the data set that was read from it, its columns, and its cells row by row."""

    path: Path
    data: SplitDataset
    fields: tuple[Field, ...]
    cells: list[dict[str, str]]

    @property
    def cost(self) -> certus.costs.Cost:
        weights = [weight for field in self.fields for weight in field.weights]
        frozen = [math.isinf(weight) for weight in weights]
        cost = certus.costs.WeightedL2(torch.tensor([1.0 if math.isinf(one) else one for one in weights]))
        free = ~torch.tensor(frozen)
        return cost if bool(free.all()) else certus.costs.Masked(cost, free)


def write_cells(path: Path, cells: list[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(cells[0]))
        writer.writeheader()
        writer.writerows(cells)


def make_fields(rng: np.random.Generator, categories: int, *, plain: bool = False) -> tuple[Field, ...]:
    fields = []
    for place in range(int(rng.integers(1, 3))):
        gaps = not plain and bool(rng.random() < 0.25)
        fields.append(Field(f"n{place}", "number", gaps=gaps, price=float(rng.choice([1.0, 1.0, 0.5, 3.0]))))
    if not plain and rng.random() < 0.3:
        fields.append(Field("when", "date"))
    for place in range(categories):
        values = tuple(sorted(rng.permutation(NAMES)[: int(rng.integers(2, 5))].tolist()))
        price = float(rng.choice([1.0, 1.0, 0.3, 2.0, math.inf]))
        fields.append(Field(f"c={place}", "category", values, price=price))
    return tuple(fields)


def make_cells(rng: np.random.Generator, fields: tuple[Field, ...], count: int) -> list[dict[str, str]]:
    rows = []
    for at in range(count):
        row = {}
        for field in fields:
            if field.kind == "category":
                row[field.name] = field.values[
                    at if at < len(field.values) else int(rng.integers(len(field.values)))
                ]
            elif field.gaps and (at == 0 or rng.random() < 0.2):
                row[field.name] = ""
            elif field.kind == "date":
                row[field.name] = str(FIRST + 15_000 + int(rng.integers(900)))
            else:
                row[field.name] = repr(float(rng.normal(40, 12)))
        rows.append(row | {TARGET: ("no", "yes")[at % 2]})
    return rows


def make_table(
    path: Path,
    rng: np.random.Generator,
    fields: tuple[Field, ...],
    network: nn.Module | None = None,
    count: int = 40,
) -> tuple[Table, nn.Module]:
    """A table whose labels are mostly what a random network says, and the network."""
    cells = make_cells(rng, fields, count)
    write_cells(path, cells)
    data = certus.datasets.load(f"csv:{path}", target=TARGET, options=DATED)
    width = sum(field.width for field in fields)
    assert data.train.inputs.shape[1] == width
    network = network or random_network(rng, width)
    flips = rng.random(count) < 0.15
    with torch.no_grad():
        for name in ("train", "calibration", "test"):
            said = network(getattr(data, name).inputs).argmax(1)
            for row, answer in zip(data.rows[name].tolist(), said.tolist(), strict=True):
                cells[row][TARGET] = ("no", "yes")[answer ^ int(flips[row])]
    for row, label in enumerate(("no", "yes")):
        cells[row][TARGET] = label
    write_cells(path, cells)
    return Table(
        path, certus.datasets.load(f"csv:{path}", target=TARGET, options=DATED), fields, cells
    ), network


def random_network(rng: np.random.Generator, width: int) -> nn.Module:
    torch.manual_seed(int(rng.integers(2**31)))
    unit = (nn.Softplus, nn.Tanh, nn.ELU, nn.ReLU)[int(rng.integers(4))]()
    network = nn.Sequential(nn.Linear(width, 5), unit, nn.Linear(5, 2))
    with torch.no_grad():
        for weights in network.parameters():
            weights.mul_(float(rng.uniform(1, 3)))
        network[2].bias -= network(torch.randn(64, width)).mean(0)
    return network


def everything(data: SplitDataset) -> tuple[Samples, list[int]]:
    """All rows of a data set, in the order of its file, and the order that they were split in."""
    parts = (data.train, data.calibration, data.test)
    order = torch.cat([data.rows[name] for name in ("train", "calibration", "test")])
    back = order.argsort()
    inputs = torch.cat([part.inputs for part in parts])[back]
    whole = Samples(inputs, torch.cat([part.targets for part in parts])[back], encoding=data.train.encoding)
    return whole, order.tolist()


def decoded(table: Table, row: Tensor, label: str) -> dict[str, str]:
    """An encoded row as cells. Whatever is no encoding of a row is refused here."""
    scale = table.data.input_scale
    assert scale is not None
    means, deviations = (part.tolist() for part in scale)
    values, cells, at = row.double().tolist(), {}, 0
    for field in table.fields:
        part, first = values[at : at + field.width], at
        at += field.width
        if field.kind == "category":
            assert sorted(part) == [0.0] * (len(part) - 1) + [1.0], f"{part} is no category"
            cells[field.name] = field.values[part.index(1.0)]
            continue
        if field.gaps:
            assert part[-2:] in ([1.0, 0.0], [0.0, 1.0]), f"{part} is no mark"
            if part[-1] == 1:
                cells[field.name] = ""
                continue
        raw = part[0] * deviations[first] + means[first]
        if field.kind == "date":
            assert abs(raw - round(raw)) < 1e-2, f"{raw} is no day"
            cells[field.name] = str(FIRST + round(raw))
        else:
            cells[field.name] = repr(raw)
    return cells | {TARGET: label}


def raw_cost(table: Table, before: dict[str, str], after: dict[str, str]) -> float:
    """What it costs to change cells, by the prices of the table: a standard deviation of the training rows,
    or another category, costs the price of its column; a date that of its day and of its season; a gap the
    price on top of the way to the median."""
    train = [table.cells[row] for row in table.data.rows["train"].tolist()]
    total = 0.0
    for field in table.fields:
        old, new = before[field.name], after[field.name]
        if old == new:
            continue
        if field.kind == "category":
            total += field.price
            continue
        known = [_numbers(field, row[field.name]) for row in train if row[field.name] != ""]
        middle = float(np.median([one[0] for one in known]))
        deviations = np.array([_numbers(field, row[field.name], middle) for row in train]).std(0)
        away = np.array(_numbers(field, new, middle)) - np.array(_numbers(field, old, middle))
        total += field.price * (float((away**2 / deviations**2).sum()) + ("" in (old, new)))
    return total


def _numbers(field: Field, cell: str, middle: float = 0.0) -> tuple[float, ...]:
    """The numbers of a cell; of a gap those of the median."""
    if field.kind == "number":
        return (float(cell) if cell else middle,)
    day = float((np.datetime64(cell) - FIRST).astype(int)) if cell else middle
    return (day, *_season(day))


def _season(day: float) -> tuple[float, float]:
    angle = 2 * math.pi * day / 365.2425
    return math.cos(angle), math.sin(angle)


def counted(
    table: Table, network: nn.Module, cells: list[dict[str, str]], weights: Tensor, path: Path
) -> tuple[float, float]:
    """Mean loss and error rate of rows that are written to a file, read again, and predicted."""
    write_cells(path, cells)
    again, _ = everything(load_like(table.data, f"csv:{path}", options=DATED))
    with torch.no_grad():
        outputs = network(again.inputs)
    losses = nn.functional.cross_entropy(outputs.double(), again.targets, reduction="none")
    wrong = (outputs.argmax(1) != again.targets).double()
    return float((weights * losses).sum()), float((weights * wrong).sum())
