"""Tables as people have them: gaps, dates, money, identifiers, words; every problem in one message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from certus.datasets import SplitDataset, TableOptions, from_frame, load
from certus.datasets.new_data import load_like
from certus.datasets.raw_table import kind_of, money
from certus.datasets.tables import MISSING_CATEGORY
from certus.errors import ArgumentError

COUNT = 40
DAYS = [np.datetime64("2024-01-01") + 9 * at for at in range(COUNT)]


def messy() -> dict[str, list[Any]]:
    """Columns of Python values, None for a gap."""
    return {
        "customer_id": [7000 + at for at in range(COUNT)],
        "name": [f"N{at} M" for at in range(COUNT)],
        "age": [None if at % 10 == 3 else 20.0 + at for at in range(COUNT)],
        "town": [None if at % 8 == 5 else ("Bern", "Chur", "Genf")[at % 3] for at in range(COUNT)],
        "income": [f"${1000 * at:,}.50" for at in range(1, COUNT + 1)],
        "rate": [f"{at % 7}%" for at in range(COUNT)],
        "since": [str(day) for day in DAYS],
        "country": ["CH"] * COUNT,
        "bought": [("no", "yes")[at % 4 == 0] for at in range(COUNT)],
    }


def write(path: Path, columns: dict[str, list[Any]], separator: str = ",", encoding: str = "utf-8") -> str:
    def cell(value: Any) -> str:
        text = "" if value is None else str(value)
        return f'"{text}"' if separator in text else text

    lines = [
        separator.join(columns),
        *(separator.join(map(cell, row)) for row in zip(*columns.values(), strict=True)),
    ]
    path.write_text("\n".join(lines), encoding=encoding)
    return f"csv:{path}"


def whole(data: SplitDataset, feature: str) -> torch.Tensor:
    """A feature in the source's units and order."""
    assert data.feature_names is not None
    assert data.input_scale is not None
    at = data.feature_names.index(feature)
    parts = [data.train.inputs, data.calibration.inputs, data.test.inputs]
    rows = torch.cat([data.rows[name] for name in ("train", "calibration", "test")])
    raw = torch.cat(parts).double() * data.input_scale[1] + data.input_scale[0]
    return raw[rows.argsort(), at]


def test_every_column_is_understood(tmp_path: Path) -> None:
    data = load(write(tmp_path / "a.csv", messy()))
    assert data.recipe is not None
    kinds = {one.name: one.kind for one in data.recipe.columns}
    assert kinds == {
        "customer_id": "dropped",
        "name": "dropped",
        "age": "number",
        "town": "category",
        "income": "money",
        "rate": "percent",
        "since": "date",
        "country": "dropped",
    }
    words = {one.name: one.becomes for one in data.recipe.columns}
    assert words["customer_id"] == words["name"] == "dropped: an identifier, different in every row"
    assert words["country"] == "dropped: constant"
    assert words["town"] == "4 one-hot columns"
    assert (data.recipe.columns[2].missing, data.recipe.columns[2].distinct) == (4, 36)
    expected = torch.tensor([1000.0 * at + 0.5 for at in range(1, COUNT + 1)], dtype=torch.float64)
    torch.testing.assert_close(whole(data, "income"), expected, rtol=1e-5, atol=1e-2)


def test_gaps_get_the_training_median_and_a_column_of_their_own(tmp_path: Path) -> None:
    data = load(write(tmp_path / "a.csv", messy()))
    ages = [at for at in data.rows["train"].tolist() if at % 10 != 3]
    median = float(np.median([20.0 + at for at in ages]))
    found = whole(data, "age")
    for at in range(COUNT):
        assert float(found[at]) == pytest.approx(median if at % 10 == 3 else 20.0 + at, abs=1e-4)
    assert whole(data, "age?=missing").tolist() == [float(at % 10 == 3) for at in range(COUNT)]
    assert whole(data, f"town={MISSING_CATEGORY}").tolist() == [float(at % 8 == 5) for at in range(COUNT)]
    assert load(write(tmp_path / "a.csv", messy()), seed=4).sha256 == data.sha256  # medians are no content


def test_dates_are_days_and_seasons(tmp_path: Path) -> None:
    data = load(write(tmp_path / "a.csv", messy()))
    days = torch.tensor([int(day.astype(int)) for day in DAYS], dtype=torch.float64)
    torch.testing.assert_close(whole(data, "since"), days, rtol=1e-6, atol=0.01)
    winter, spring = whole(data, "since (winter)"), whole(data, "since (spring)")
    torch.testing.assert_close(
        winter**2 + spring**2, torch.ones(COUNT, dtype=torch.float64), rtol=1e-4, atol=1e-4
    )
    assert winter[0] > 0.99  # the first of January
    assert winter[20] < -0.99  # the end of June
    assert spring[10] > 0.99  # the end of March


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow", "parquet"])
def test_frames_are_read_like_files(tmp_path: Path, library: str) -> None:
    columns = messy()
    plain = load(write(tmp_path / "a.csv", columns))
    columns["since"] = [day.item() for day in DAYS]
    frame: Any = pl.DataFrame(columns) if library == "polars" else pa.table(columns)
    if library == "pandas":
        frame = pd.DataFrame(columns)
        frame["since"] = pd.to_datetime(frame["since"])
    if library == "parquet":
        parquet.write_table(frame, tmp_path / "a.parquet")
        data = load(f"parquet:{tmp_path}/a.parquet")
    else:
        data = from_frame(frame)
    assert data.feature_names == plain.feature_names
    torch.testing.assert_close(data.train.inputs, plain.train.inputs)
    assert torch.equal(data.train.targets, plain.train.targets)


def test_options(tmp_path: Path) -> None:
    spec = write(tmp_path / "a.csv", messy(), separator=";", encoding="latin-1")
    options = TableOptions(
        target="age", drop="since, rate", categorical="customer_id", separator=";", encoding="latin-1"
    )
    columns = messy() | {"age": [20.0 + at for at in range(COUNT)]}
    spec = write(tmp_path / "a.csv", columns | {"town": ["Zürich", "Genève"] * 20}, ";", "latin-1")
    data = load(spec, options=options)
    assert data.classes == COUNT  # 40 whole numbers are labels
    assert data.feature_names is not None
    assert "town=Genève" in data.feature_names
    assert "customer_id=7000" in data.feature_names
    assert not [name for name in data.feature_names if name.startswith(("since", "rate"))]


def test_all_problems_are_in_one_message(tmp_path: Path) -> None:
    columns = messy()
    columns["age"][7] = "forty"
    columns["age"][9] = "fifty"
    columns["rate"][2] = "inf%"
    columns["since"] = ["3/4/2024", "5/6/2024"] * 20
    columns["bought"][5] = None
    columns["code"] = [f"{at}{'x' * (at % 2)}" for at in range(COUNT)]
    spec = write(tmp_path / "a.csv", columns)
    with pytest.raises(ArgumentError) as caught:
        load(spec, target="bought")
    told = str(caught.value)
    assert "has 4 problems" in told
    for words in (
        "'forty' in column 'age', row 8 (line 9), and 1 more like it, where 34 of 36 are",
        "'inf%' in column 'rate'",
        "dates that can be read one way only, such as 2024-03-01; got '3/4/2024'",
        "in the target column: remove the rows without one; got none in column 'bought', row 6",
    ):
        assert words in told


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"drop": "nobody"}, "`drop` must name columns of .*; got 'nobody'"),
        ({"categorical": "bought"}, "`categorical` must name columns of .*; got 'bought'"),
        ({"missing": "guess"}, "`missing` must be one of median, refuse; got 'guess'"),
        ({"split": "half"}, "`split` must be one of random, stratified, group, time; got 'half'"),
        ({"split": "group"}, "`split_by` must be given to split by group; got None"),
        ({"split": "random", "split_by": "age"}, "`split_by` must be left out where the split is random"),
        ({"split_by": "nobody"}, "`split_by` must be a column of .*; got 'nobody'"),
        ({"split_by": "age"}, "have a value to split by in every row; got none in column 'age', row 4"),
        ({"split": "time", "split_by": "name"}, "must be a column of dates or numbers.*; got 'name'"),
        ({"separator": ";;"}, "`separator` must be one character"),
        (
            {"encoding": "klingon"},
            "`encoding` must be a text encoding that Python knows, such as latin-1; got 'klingon'",
        ),
        ({"drop": "age,town,income,rate,since"}, "have at least one usable feature; got none"),
    ],
)
def test_options_that_do_not_fit_are_named(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        load(write(tmp_path / "a.csv", messy()), options=TableOptions(**options))


def test_a_separator_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentError,
        match=r"got 2, and 39 more lines of another length \(its header contains ;, which may be the",
    ):
        load(write(tmp_path / "a.csv", messy(), separator=";"))


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2.5", "-3e4"], "number"),
        (["$1", "€ 2,000"], "money"),
        (["12%", "3.5 %"], "percent"),
        (["2024-03-01", "2024-03-01T12:30"], "date"),
        (["31.12.2024", "1.2.2024"], "date, day first"),
        (["12/31/2024", "1/2/2024"], "date, month first"),
        (["31/12/2024", "1/2/2024"], "date, day first"),
        (["1,5", "2,5"], None),
        (["a", "1"], None),
    ],
)
def test_kinds_of_cells(cells: list[str], kind: str | None) -> None:
    assert kind_of([*cells, None]) == kind


@pytest.mark.parametrize("cell", ["12,34", "1,2345", "$", "%", "-", "", "$a", "1 2", "()"])
def test_what_is_no_money(cell: str) -> None:
    assert money(cell) is None


def test_splits_keep_what_they_promise(tmp_path: Path) -> None:
    columns = messy()
    columns["shop"] = [f"s{at % 8}" for at in range(COUNT)]
    spec = write(tmp_path / "a.csv", columns)
    data = load(spec, options=TableOptions(target="bought", split="stratified"))
    shares = [(split.targets == 1).sum().item() for split in (data.train, data.calibration, data.test)]
    assert shares == [6, 2, 2]
    data = load(spec, options=TableOptions(target="bought", split_by="shop"))
    held = {name: {columns["shop"][row] for row in rows.tolist()} for name, rows in data.rows.items()}
    assert not held["train"] & held["test"]
    assert not held["train"] & held["calibration"]
    assert not held["calibration"] & held["test"]
    assert min(map(len, held.values())) >= 1
    data = load(spec, options=TableOptions(target="bought", split_by="since"))
    assert data.rows["train"].max() < data.rows["calibration"].min()
    assert data.rows["calibration"].max() < data.rows["test"].min()
    assert [len(rows) for rows in data.rows.values()] == [24, 8, 8]
    for rows in (data.rows,):
        assert sorted(torch.cat(list(rows.values())).tolist()) == list(range(COUNT))


def test_new_tables_are_read_by_the_old_ones_recipe(tmp_path: Path) -> None:
    """Fewer categories, others, gaps where there were none, other columns and another order."""
    ours = load(write(tmp_path / "a.csv", messy()))
    later = messy()
    later["town"] = ["Bern"] * 20 + ["Basel"] * 20
    later["rate"][0] = None
    later["extra"] = [1] * COUNT
    theirs = load_like(ours, write(tmp_path / "b.csv", dict(reversed(later.items()))))
    assert theirs.feature_names == ours.feature_names
    assert theirs.train.inputs.shape[1] == ours.train.inputs.shape[1]
    at = ours.feature_names.index("town=Bern")  # type: ignore[union-attr]
    rows = torch.cat([theirs.rows[name] for name in ("train", "calibration", "test")])
    inputs = torch.cat([theirs.train.inputs, theirs.calibration.inputs, theirs.test.inputs])[rows.argsort()]
    assert inputs[:20, at].tolist() == [1.0] * 20
    assert float(inputs[20:, at : at + 4].abs().sum()) == 0
    torch.testing.assert_close(
        inputs[:, 0],
        torch.cat([ours.train.inputs, ours.calibration.inputs, ours.test.inputs])[
            torch.cat([ours.rows[name] for name in ("train", "calibration", "test")]).argsort(), 0
        ],
    )
    assert theirs.notes == (
        "50.00% of 'town' count as unknown, a category that no row of the run had: Basel.",
        f"2.50% of 'rate' are missing: they get the training median, {ours.recipe.columns[5].median:.4g}.",  # type: ignore[union-attr]
    )
    del later["age"], later["since"]
    later["rate"][3] = "much"
    with pytest.raises(ArgumentError) as caught:
        load_like(ours, write(tmp_path / "b.csv", later))
    assert "has 2 problems" in str(caught.value)
    assert "age, since missing" in str(caught.value)
    assert "hold numbers in column 'rate'; got 'much' in column 'rate', row 4 (line 5)" in str(caught.value)


def test_a_category_that_is_called_as_gaps_are(tmp_path: Path) -> None:
    """Beside gaps it is refused, in the first table and in a later one; alone it is a word as any other."""

    def table(name: str, *replaced: Any) -> str:
        towns = [*replaced, *(("Bern", "Chur")[at % 2] for at in range(COUNT - len(replaced)))]
        return write(tmp_path / name, {"town": towns, "bought": [at % 3 == 0 for at in range(COUNT)]})

    both, word, gap = (
        table("both.csv", MISSING_CATEGORY, None),
        table("word.csv", MISSING_CATEGORY),
        table("gap.csv", None),
    )
    for others in (word, gap):
        ours = load(others, target="bought")
        for later in (gap if others == word else word, both):
            with pytest.raises(ArgumentError, match="'town'"):
                load_like(ours, later)
        load_like(ours, others)
    with pytest.raises(ArgumentError, match="'town'"):
        load(both, target="bought")


def test_dates_that_only_one_order_can_read_are_not_ambiguous() -> None:
    days = [f"{day:02d}/05/2020" for day in range(1, 29)]
    frame = pd.DataFrame({"day": days, "x": range(28), "y": [0, 1] * 14})
    assert len(from_frame(frame, target="y").train) > 0
