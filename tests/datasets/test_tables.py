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
from certus.datasets.cells import Reading, read_cells
from certus.datasets.encoding import MISSING_CATEGORY, OTHER_CATEGORY, decode_rows
from certus.datasets.new_data import load_like
from certus.errors import ArgumentError

COUNT = 40
DATED = TableOptions(date_features="trend,season")
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
    data = load(write(tmp_path / "a.csv", messy()), options=DATED)
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
    reason = "dropped: an identifier, different in every row (--keep keeps it)"
    assert words["customer_id"] == words["name"] == reason
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
    data = load(write(tmp_path / "a.csv", messy()), options=DATED)
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
        "'3/4/2024' in column 'since', row 1 (line 2), which reads as 2024-04-03 or 2024-03-04",
        "in the target column: remove the rows without one; got none in column 'bought', row 6",
    ):
        assert words in told
    assert len(told.splitlines()) == 5  # a line for each
    assert "'3/4/2024'" in told.splitlines()[1]  # the worst first


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


def test_separators_and_encodings_are_guessed(tmp_path: Path) -> None:
    columns = messy() | {"town": ["Zürich", "Genève", "Köln", "Łódź"] * 10}
    plain = load(write(tmp_path / "a.csv", columns))
    for separator in ",;\t|":
        for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"):
            data = load(write(tmp_path / "b.csv", columns, separator, encoding))
            assert data.feature_names == plain.feature_names, (separator, encoding)
            assert data.sha256 == plain.sha256
    columns["town"] = ["Zürich", "Genève", "5 €", "“Köln”"] * 10
    data = load(write(tmp_path / "b.csv", columns, ";", "cp1252"))
    assert data.feature_names is not None
    assert {"town=5 €", "town=“Köln”"} <= set(data.feature_names)
    assert any("cp1252" in note and "';'" in note for note in data.notes)
    with pytest.raises(ArgumentError, match="--encoding"):
        load(f"csv:{tmp_path}/b.csv", options=TableOptions(encoding="utf-8"))


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["1", "2.5", "-3e4"], "number", [1, 2.5, -3e4]),
        (["$1", "€ 2,000"], "ambiguous", []),
        (["$1", "$ 2,000.50"], "money", [1, 2000.5]),
        (["€1.234,50", "€950,00"], "money", [1234.5, 950]),
        (["0,003", "1,999"], "number", [0.003, 1.999]),
        (["1.234", "950"], "ambiguous", []),
        (["1,234", "950"], "ambiguous", []),
        (["1,234", "1950.5"], "number", [1234, 1950.5]),
        (["1.234.567", "950"], "number", [1234567, 950]),
        (["1'234", "950"], "number", [1234, 950]),
        (["1 234,5", "950"], "number", [1234.5, 950]),
        (["(12.50)", "−3", "4"], "number", [-12.5, -3, 4]),
        (["12%", "3.5 %"], "percent", [12, 3.5]),
        (["12%", "0.5"], "ambiguous", []),
        (["2024-03-01", "2024-03-01T12:00"], "date", [19783, 19783.5]),
        (["31.12.2024", "1.2.2024"], "date", [20088, 19754]),
        (["12/31/2024", "1/2/2024"], "date", [20088, 19724]),
        (["31/12/2024", "1/2/2024"], "date", [20088, 19754]),
        (["2024-03-01", "05.03.2024", "Mar 6, 2024"], "date", [19783, 19787, 19788]),
        (["31/12/2024", "12/31/2024"], "ambiguous", []),
        (["01.02.24"], "ambiguous", []),
        (["1/2/2024"], "ambiguous", []),
        (["1,5", "2.5"], None, []),
        (["0801", "8001"], None, []),
        (["a", "1"], None, []),
        *(
            ([cell], None, [])
            for cell in ("12,34,5", "$", "%", "-", "$a", "1 2", "()", "1_000", "0x10", "١٢")
        ),
    ],
)
def test_kinds_of_cells(cells: list[str], kind: str | None, values: list[float]) -> None:
    reading = read_cells(cells, None, None, None, None)
    if kind in (None, "ambiguous"):
        assert not isinstance(reading, Reading)
        assert (reading is None) == (kind is None)
        return
    assert isinstance(reading, Reading)
    assert reading.kind == kind
    assert [reading.values[cell] for cell in cells] == values


def test_options_decide_what_can_be_read_in_two_ways(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {
        "x": ["1.234", "950"] * 20,
        "when": ["3/4/2024", "5/6/2024"] * 20,
        "y": [0, 1] * 20,
    }
    spec = write(tmp_path / "a.csv", columns)
    with pytest.raises(
        ArgumentError, match=r"(?s)1\.234 or 1234\. Give --decimal.*2024-04-03 or 2024-03-04\. Give"
    ):
        load(spec)
    for mark, value in ((".", 1.234), (",", 1234.0)):
        options = TableOptions(decimal=mark, date_format="%d/%m/%Y", date_features="trend")
        data = load(spec, options=options)
        assert float(whole(data, "x")[0]) == pytest.approx(value, rel=1e-5)
        assert float(whole(data, "when")[0]) == pytest.approx(19816, abs=0.01)
    assert float(
        whole(load(spec, options=TableOptions(thousands=".", drop="when")), "x")[0]
    ) == pytest.approx(1234)


def test_kinds_as_people_mean_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    count = 300
    columns: dict[str, list[Any]] = {
        "postcode": [f"{int(code):05d}" for code in rng.choice([800, 1234, 80331], count)],
        "smoker": rng.choice(["yes", "no", "Y", "N", "true", "False"], count).tolist(),
        "row_number": list(range(5, 5 + count)),
        "account": rng.permutation(np.arange(100_000, 100_000 + 7 * count, 7)).tolist(),
        "weight": (rng.permutation(np.arange(0, 11 * count, 11)) % 9973).tolist(),
        "shop": [f"shop {int(at) if at < 70 else 0}" for at in rng.integers(0, 140, count)],
        "gap": [("-", "3", "5")[at % 3] for at in range(count)],
        "y": rng.integers(0, 2, count).tolist(),
    }
    spec = write(tmp_path / "a.csv", columns)
    with pytest.raises(ArgumentError, match=r"100 times.*--na=-"):
        load(spec)
    data = load(spec, options=TableOptions(na="-"))
    assert data.recipe is not None
    found = {column.name: column for column in data.recipe.columns}
    kinds = {name: column.kind for name, column in found.items()}
    assert kinds == {
        "postcode": "category",
        "smoker": "boolean",
        "row_number": "dropped",
        "account": "dropped",
        "weight": "number",
        "shop": "category",
        "gap": "number",
    }
    assert len(found["smoker"].categories) == 2
    assert len(found["shop"].categories) == 50
    assert OTHER_CATEGORY in found["shop"].categories
    assert "shop 0" in found["shop"].categories
    assert any("weight" in note for note in data.notes)
    kept = load(spec, options=TableOptions(na="-", keep="account", drop="shop", max_categories=2))
    assert kept.recipe is not None
    kinds = {column.name: column.kind for column in kept.recipe.columns}
    assert (kinds["account"], kinds["shop"]) == ("number", "dropped")


def test_duplicate_and_empty_names_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "a,,a,y\n" + "".join(f"{at % 7},{at % 5},{at % 3},{at % 2}\n" for at in range(30))
    )
    data = load(f"csv:{tmp_path}/a.csv")
    assert data.feature_names == ("a", "column 2", "a (2)")


def test_leaks_and_twins_are_warned_of(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)
    columns: dict[str, list[Any]] = {
        "x": [f"{value:.4f}" for value in rng.normal(size=400)],
        "refund": [
            f"{100 * label + value:.2f}" for label, value in zip(labels, rng.random(400), strict=True)
        ],
        "y": labels.tolist(),
    }
    for name in columns:
        columns[name][200:] = columns[name][:200]
    notes = load(write(tmp_path / "a.csv", columns)).notes
    assert any(note.startswith("Leak? 'refund'") and "--drop refund" in note for note in notes)
    assert not any(note.startswith("Leak? 'x'") for note in notes)
    assert any(note.startswith("Duplicates") for note in notes)


def test_moved_rows_are_written_as_the_file_writes_them(tmp_path: Path) -> None:
    days = [f"{1 + at % 28:02d}.{1 + at % 12:02d}.2024" for at in range(COUNT)]
    columns: dict[str, list[Any]] = {
        "income": [f"€{at}.{100 + at},50" for at in range(1, COUNT + 1)],
        "rate": [f"{at % 7}%" for at in range(COUNT)],
        "since": days,
        "age": [None if at % 10 == 3 else 20 + at for at in range(COUNT)],
        "town": [None if at % 8 == 5 else ("Bern", "Chur")[at % 2] for at in range(COUNT)],
        "y": [at % 2 for at in range(COUNT)],
    }
    data = load(write(tmp_path / "a.csv", columns, ";"), options=DATED)
    shown = decode_rows(data, data.test.inputs)
    for name, cells in shown.items():
        expected = [
            "" if columns[name][row] is None else str(columns[name][row]) for row in data.rows["test"]
        ]
        assert cells == expected, name
    moved = data.test.inputs.clone()
    assert data.input_scale is not None
    moved[:, 0] += 1000 / data.input_scale[1][0]
    first = columns["income"][int(data.rows["test"][0])]
    raised = float(first[1:].replace(".", "").replace(",", ".")) + 1000
    assert decode_rows(data, moved)["income"][0] == f"€{raised:,.2f}".translate(str.maketrans(",.", ".,"))


def test_new_rows_are_read_as_the_runs_table_was(tmp_path: Path) -> None:
    """What can be read in two ways is read like the column of the run, if that showed the same signs."""

    def table(name: str, cells: list[str]) -> str:
        return write(tmp_path / name, {"x": (cells * 20)[:20], "y": [0, 1] * 10}, ";")

    def values(ours: SplitDataset, spec: str) -> list[float]:
        new = load_like(ours, spec)
        rows = torch.cat([new.rows[name] for name in ("train", "calibration", "test")]).argsort()
        inputs = torch.cat([new.train.inputs, new.calibration.inputs, new.test.inputs])[rows].double()
        assert ours.input_scale is not None
        return (inputs[:2, 0] * ours.input_scale[1] + ours.input_scale[0]).tolist()

    points, commas = load(table("p.csv", ["1.5", "1950.25"])), load(table("c.csv", ["1.950,25", "1,5"]))
    assert values(points, table("n.csv", ["1.234", "950"])) == pytest.approx([1.234, 950], rel=1e-4)
    assert values(commas, table("n.csv", ["1.234", "950"])) == pytest.approx([1234, 950], rel=1e-4)
    assert values(points, table("n.csv", ["1,5", "2,5"])) == pytest.approx([1.5, 2.5], rel=1e-4)
    with pytest.raises(ArgumentError, match=r"1234 or 1\.234"):
        load_like(points, table("n.csv", ["1,234", "950"]))


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
    ours = load(write(tmp_path / "a.csv", messy()), options=DATED)
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
        f"2.50% of 'rate' are missing: they get the training median, {ours.recipe.columns[5].median:.0f}%.",  # type: ignore[union-attr]
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
