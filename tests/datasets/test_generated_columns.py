"""Columns of every kind and locale, with known truth: a cell is read as it was meant, or refused."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas
import pytest

from certus.datasets.cells import Reading, is_code, read_booleans, read_cells

ROWS = 60
LOCALES = {
    "plain": (".", ""),
    "us": (".", ","),
    "swiss": (".", "'"),
    "german": (",", "."),
    "french": (",", "\u202f"),
    "swedish": (",", "\u00a0"),
    "spaced": (",", " "),
    "comma": (",", ""),
}
DATES = (
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%d %b %Y",
    "%B %d, %Y",
    "%Y/%m/%d",
)
CURRENCIES = ("$", "€", "£", "CHF ", "¥")


@dataclass(frozen=True)
class Generated:
    """Cells, and what each means: a number, days since 1970, or a word."""

    kind: str
    cells: list[str]
    truth: list[Any]


def write_number(value: float, locale: str, places: int) -> str:
    mark, group = LOCALES[locale]
    text = f"{abs(value):,.{places}f}".replace(",", "\0").replace(".", mark).replace("\0", group)
    return f"-{text}" if value < 0 else text


def numbers(rng: np.random.Generator) -> Generated:
    locale, places = str(rng.choice(list(LOCALES))), int(rng.choice([0, 0, 0, 1, 2, 3, 3, 3, 4]))
    size = float(rng.choice([0.5, 2, 900, 2e4, 2e4, 3e6]))
    middle = float(rng.choice([0.0, 5 * size]))
    values = [round(float(value), places) + 0.0 for value in rng.normal(middle, size, ROWS)]
    if rng.random() < 0.5:
        values = [abs(value) for value in values]
    cells = [write_number(value, locale, places) for value in values]
    kind = str(rng.choice(["number", "money", "percent"]))
    if kind == "money":
        sign = str(rng.choice(CURRENCIES))
        cells = [f"{sign}{cell}" for cell in cells]
        if rng.random() < 0.5:
            cells = [f"{cell.removeprefix(sign)} {sign.strip()}" for cell in cells]
    if kind == "percent":
        cells = [f"{cell}{' ' if rng.random() < 0.5 else ''}%" for cell in cells]
    return Generated(kind, cells, values)


def dates(rng: np.random.Generator) -> Generated:
    start, shape = pandas.Timestamp(1970, 1, 1), str(rng.choice(DATES))
    late = 28 if rng.random() < 0.7 else 12  # whether a day tells the order
    cells, truth = [], []
    for _ in range(ROWS):
        own = str(rng.choice(DATES[:3])) if rng.random() < 0.1 else shape
        month, day = int(rng.integers(1, 13)), int(rng.integers(1, late + 1))
        moment = pandas.Timestamp(
            int(rng.integers(1950, 2040)), month, day, int(rng.integers(24)), int(rng.integers(60))
        )
        cells.append(moment.strftime(own))
        clock = moment.hour * 3600 + moment.minute * 60 if "%H" in own else 0
        truth.append((moment - start).days + clock / 86400)
    return Generated("date", cells, truth)


def postcodes(rng: np.random.Generator) -> Generated:
    cells = [f"{int(value):05d}" for value in rng.integers(0, 20_000, ROWS)]
    return Generated("words", [*cells[1:], "01067"], [*cells[1:], "01067"])


def booleans(rng: np.random.Generator) -> Generated:
    pairs = [("yes", "no"), ("Y", "N"), ("true", "false"), ("True", "False"), ("YES", "NO"), ("y", "n")]
    chosen = rng.choice(len(pairs), int(rng.integers(1, 4)), replace=False)
    flags = [bool(flag) for flag in rng.integers(0, 2, ROWS)]
    cells = [pairs[int(rng.choice(chosen))][0 if flag else 1] for flag in flags]
    return Generated("boolean", cells, [str(flag) for flag in flags])


def words(rng: np.random.Generator) -> Generated:
    parts = [
        "Zürich",
        "n. a. m.",
        "1. FC",
        "5 kg",
        "12-14",
        "3rd",
        "A1",
        "1_000",
        "0x1F",
        "1e",
        "€uro",
        "12:30",
        "10%+",
        "1,2,3",
    ]
    cells = [str(word) for word in rng.choice(parts, ROWS)]
    return Generated("words", [*cells[2:], "Zürich", "A1"], [*cells[2:], "Zürich", "A1"])


MAKERS = (numbers, numbers, numbers, dates, dates, postcodes, booleans, words)


def judge(column: Generated) -> str:
    """How a column is read: "right", "refused", or "wrong"."""
    cells = list(dict.fromkeys(column.cells))
    spellings = read_booleans(Counter(column.cells))
    if spellings is not None:
        names = {
            spellings[cell]: {
                t for c, t in zip(column.cells, column.truth, strict=True) if spellings[c] == spellings[cell]
            }
            for cell in cells
        }
        return (
            "right"
            if column.kind == "boolean" and all(len(meant) == 1 for meant in names.values())
            else "wrong"
        )
    reading = read_cells(cells, None, None, None, None)
    if reading is None:
        if any(map(is_code, column.cells)):
            return "right" if column.kind == "words" else "wrong"
        return "right" if column.kind == "words" else "wrong"
    if not isinstance(reading, Reading):
        return "refused"
    if column.kind in ("words", "boolean"):
        return "wrong"
    same = reading.kind == column.kind and all(
        math.isclose(reading.values[cell], float(meant), rel_tol=1e-12, abs_tol=1e-9)
        for cell, meant in zip(column.cells, column.truth, strict=True)
    )
    return "right" if same else "wrong"


def sweep(seeds: range) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        rng = np.random.default_rng([37, seed])
        column = MAKERS[seed % len(MAKERS)](rng)
        outcome = judge(column)
        assert outcome != "wrong", (seed, column.kind, column.cells[:8])
        outcomes[outcome] += 1
    return outcomes


def test_no_cell_is_misread_silently() -> None:
    outcomes = sweep(range(160))
    assert outcomes["right"] > 110
    assert outcomes["refused"] > 5  # 1.234 beside 950, 3/4/2024 alone


@pytest.mark.soak
def test_no_cell_of_500_columns_is_misread_silently() -> None:
    outcomes = sweep(range(500))
    assert outcomes["right"] > 350


def test_a_reader_that_guesses_is_noticed() -> None:
    """One convention for all: the sweep would find it."""
    misread = 0
    for seed in range(160):
        column = MAKERS[seed % len(MAKERS)](np.random.default_rng([37, seed]))
        for mark in ".," if column.kind in ("number", "money") else "":
            reading = read_cells(list(dict.fromkeys(column.cells)), mark, None, None, None)
            if isinstance(reading, Reading):
                values = [reading.values[cell] for cell in column.cells]
                misread += not np.allclose(values, np.array(column.truth, dtype=float))
    assert misread > 0
