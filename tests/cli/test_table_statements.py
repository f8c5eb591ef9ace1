"""What commands say of tables, against tables that are written and predicted: categories with odd names,
dates with their season, new categories, attacks that leave categories whole."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import certus as library
from certus.display.report.contents import measure_run
from tests.cli.test_cli import certus, refused
from tests.runs.table_files import write_cells

BANDS = ("<18", "18-64", ">=65")
TRAIN = ("--epochs", "60", "--model", "mlp:4:elu", "--gamma", "100", "--lr", "0.05", "--target", "bought")
COUNT = 60


def people() -> list[dict[str, str]]:
    """Who buys depends on the band; the number matters little, and has gaps."""
    rng = np.random.default_rng(0)
    rows = []
    for at in range(COUNT):
        band = BANDS[at % 3]
        buys = (band == ">=65") ^ bool(rng.random() < 0.08)
        number = "" if at % 12 == 5 else f"{rng.normal(50, 10):.4f}"
        rows.append(
            {"x": f"{rng.normal():.4f}", "band": band, "y": number, "bought": "yes" if buys else "no"}
        )
    return rows


def visits() -> list[dict[str, str]]:
    """Who buys depends on the season."""
    rng = np.random.default_rng(1)
    rows = []
    for _ in range(COUNT):
        number = int(rng.integers(3 * 365))
        day, warm = np.datetime64("2019-01-01") + number, 90 < number % 365 < 273
        rows.append({"when": str(day), "x": f"{rng.normal():.4f}", "bought": "yes" if warm else "no"})
    return rows


def orders() -> list[dict[str, str]]:
    """Who buys depends on the year, over many of them."""
    rng = np.random.default_rng(2)
    rows = []
    for _ in range(COUNT):
        number, x = int(rng.integers(3650)), rng.normal()
        buys = "yes" if number + 300 * x > 1825 else "no"
        rows.append({"when": str(np.datetime64("2010-01-01") + number), "x": f"{x:.4f}", "bought": buys})
    return rows


TABLES = {"people": people, "visits": visits, "orders": orders}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shop")
    for name, rows in TABLES.items():
        write_cells(place / f"{name}.csv", rows())
    for name, more in (*((name, ()) for name in TABLES), ("frozen", ("--feature-cost", "band=inf,y=inf"))):
        source = "people" if name == "frozen" else name
        dated = ("--date-features", "trend,season")
        done = certus("train", f"csv:{source}.csv", *TRAIN, *dated, *more, "-o", f"run-{name}", folder=place)
        assert done.returncode == 0, done.stderr
    return place


def held_out_rows(folder: Path, name: str) -> list[dict[str, str]]:
    rows = TABLES[name]()
    numbers = library.load_run(folder / f"run-{name}").data.rows["test"].tolist()
    return [rows[number] for number in numbers]


def predicted(folder: Path, name: str, rows: list[dict[str, str]]) -> tuple[np.ndarray, np.ndarray]:
    """(n,) losses and errors of rows that are written and predicted."""
    write_cells(folder / "asked.csv", rows)
    done = certus("predict", f"run-{name}", "asked.csv", "--no-radius", folder=folder)
    assert done.returncode == 0, done.stderr
    said = list(csv.DictReader(io.StringIO(done.stdout)))
    right = np.array([float(one[f"p({row['bought']})"]) for one, row in zip(said, rows, strict=True)])
    wrong = np.array([one["label"] != row["bought"] for one, row in zip(said, rows, strict=True)])
    return -np.log(right.clip(1e-12)), wrong


def asked(folder: Path, name: str, feature: str, by: float) -> dict[str, Any]:
    """``certus sensitivity`` on all test rows."""
    line = ("--feature", feature, "--by", str(by), "--samples", "0", "--json")
    done = certus("sensitivity", f"run-{name}", *line, folder=folder)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert isinstance(told, dict)
    return told


@pytest.mark.parametrize("share", [0.05, 0.3, 0.75, 1.0])
def test_rows_that_change_a_category(shop: Path, share: float) -> None:
    """Exactly: every value in every row, and the ⌊sn⌋ rows with the largest gains."""
    rows = held_out_rows(shop, "people")
    now, wrong = predicted(shop, "people", rows)
    others = [predicted(shop, "people", [row | {"band": band} for row in rows]) for band in (*BANDS, "new")]
    best = np.max([loss for loss, _ in others], 0)
    turned = np.any([errors for _, errors in others], 0) & ~wrong
    assert turned.sum() > 2
    count = math.floor(share * len(rows) + 1e-9)
    told = asked(shop, "people", "band", share)
    error = (wrong.sum() + min(count, turned.sum())) / len(rows)
    assert error <= wrong.mean() + share
    assert told["error_low"] == pytest.approx(error)
    assert told["error_high"] == pytest.approx(error)
    loss = now.mean() + np.sort(best - now)[::-1][:count].sum() / len(rows)
    # Probabilities are printed with six digits.
    assert told["loss_low"] == pytest.approx(loss, abs=1e-3)
    assert told["loss_high"] == pytest.approx(loss, abs=1e-3)


def test_a_date_moves_with_its_season(shop: Path) -> None:
    rows, by = held_out_rows(shop, "visits"), 183
    _, wrong = predicted(shop, "visits", rows)
    told = asked(shop, "visits", "when", by)
    for sign in (-1, 1):
        later = [row | {"when": str(np.datetime64(row["when"]) + sign * by)} for row in rows]
        loss, errors = predicted(shop, "visits", later)
        assert errors.mean() > wrong.mean() + 0.3
        assert errors.mean() <= told["error_high"]
        assert loss.mean() <= told["loss_high"] + 1e-3
    assert told["error_low"] <= told["error_high"]
    refused(
        certus("sensitivity", "run-visits", "--feature", "when (winter)", "--by", "1", folder=shop),
        "`--feature` must be one of when, x",
    )


def worst_error_of_days(folder: Path, name: str, by: float) -> float:
    """The worst error where dates move by whole days of this root mean square: rows that are written and
    predicted, and of each the fewest days to an error; parts of rows count in part."""
    rows, days = held_out_rows(folder, name), np.arange(-1100, 1101)
    moved = [row | {"when": str(np.datetime64(row["when"]) + day)} for row in rows for day in days]
    wrong = predicted(folder, name, moved)[1].reshape(len(rows), len(days))
    left, errors = by**2 * len(rows), 0.0
    for squared in np.sort(np.where(wrong, days.astype(float) ** 2, math.inf).min(1)):
        part = 1.0 if squared <= left else left / squared
        left, errors = left - part * squared if part == 1.0 else 0.0, errors + part
    return errors / len(rows)


def test_a_date_moves_by_a_share_of_its_deviation(shop: Path) -> None:
    done = certus("sensitivity", "run-visits", "--samples", "0", "--json", folder=shop)
    assert done.returncode == 0, done.stderr
    (told,) = (one for one in json.loads(done.stdout)["features"] if one["feature"] == "when")
    days = [np.datetime64(row["when"]).astype(int) for row in held_out_rows(shop, "visits")]
    worst = worst_error_of_days(shop, "visits", 0.1 * float(np.std(days)))
    assert told["error_low"] <= worst <= told["error_high"]


def test_whole_years_are_no_short_way(shop: Path) -> None:
    """They bring the season back, but the day is far away."""
    told = asked(shop, "orders", "when", 20)
    worst = worst_error_of_days(shop, "orders", 20)
    assert told["error_low"] <= worst <= told["error_high"]


def test_a_frozen_column_is_frozen_whole(shop: Path) -> None:
    """Whatever its categories are called, and its gaps too."""
    cost, data = library.load_run(shop / "run-frozen").cost, library.load_run(shop / "run-frozen").data
    names = data.feature_names
    assert names is not None
    for place, name in enumerate(names):
        moved = data.test.inputs[:1].clone()
        moved[0, place] += 0.5
        assert math.isinf(float(cost(moved, data.test.inputs[:1]))) == (name != "x"), name


def test_features_are_the_columns_of_the_table(shop: Path) -> None:
    done = certus("sensitivity", "run-people", "--samples", "0", "--json", folder=shop)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {one["feature"] for one in told["features"]} == {"x", "band", "y"}
    now = 1 - told["now"]["accuracy"]
    for one in told["features"]:
        if one["feature"] == "band":  # another category costs 1
            assert one["error_high"] <= now + one["rho"] + 1e-9


def test_a_new_category_counts_as_a_whole_change(shop: Path) -> None:
    later = people()
    for row in later[: COUNT // 4]:
        row["band"] = "new"
    write_cells(shop / "later.csv", later)
    for more in ((), ("--run", "run-people")):
        line = ("distance", "csv:people.csv", "csv:later.csv", *more, "--json")
        done = certus(*line, folder=shop)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["distance"]["low"] == pytest.approx(0.25, rel=1e-5)
        assert told["distance"]["high"] == pytest.approx(0.25, rel=1e-5)
        moved = {one["feature"]: one for one in told["features"]}
        assert moved["band"]["moved"] == pytest.approx(0.25)
        assert moved["band"]["cost"] == pytest.approx(0.25)


def reached_by_x(folder: Path, epsilon: float) -> np.ndarray:
    """(n,) whether some x within ε, and nothing else, makes the model err; on a fine grid."""
    trained = library.load_run(folder / "run-people")
    data, names = trained.data.test, trained.data.feature_names
    assert names is not None
    found = np.zeros(len(data), dtype=bool)
    for step in np.linspace(-epsilon, epsilon, 2001):
        moved = data.inputs.clone()
        moved[:, names.index("x")] += float(step)
        with torch.no_grad():
            found |= (trained.model(moved).argmax(1) != data.targets).numpy()
    return found


def test_attacks_leave_categories_whole(shop: Path) -> None:
    line = ("attack", "run-people", "--norm", "2", "--epsilon", "1", "--json")
    for kind in ("pgd", "fgsm"):
        done = certus(*line, "--attack", kind, folder=shop)
        assert done.returncode == 0, done.stderr
        row = json.loads(done.stdout)["rows"][0]
        assert row["error"]["value"] <= reached_by_x(shop, 1.0).mean() + 1e-9
    done = certus("attack", "run-people", "--nearest", "--norm", "2", "--json", folder=shop)
    assert done.returncode == 0, done.stderr
    for at, distance in enumerate(json.loads(done.stdout)["distances"]):
        if distance is not None:
            assert reached_by_x(shop, distance * 1.01 + 1e-6)[at]
    done = certus("attack", "run-people", "--attack", "wrm", "--gamma", "0.1", folder=shop)
    assert done.returncode == 0, done.stderr
    assert "other columns are fixed" in done.stdout


def test_the_report_shows_rows(shop: Path) -> None:
    trained = library.load_run(shop / "run-people")
    found = measure_run(trained, 1.0, 12, 0)
    names = trained.data.feature_names
    assert names is not None
    assert found.worst_case is not None
    for prefix in ("band=", "y?="):
        places = [at for at, name in enumerate(names) if name.startswith(prefix)]
        part = found.worst_case.after[:, places]
        assert bool(((part == 0) | (part == 1)).all())
        assert bool((part.sum(1) == 1).all())
