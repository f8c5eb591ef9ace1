"""CSV files: read as a careful person would read them, and refused where they would ask back."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from certus.datasets import SplitDataset, TableOptions, load
from certus.errors import ArgumentError


def write(path: Path, header: list[str], rows: list[list[object]]) -> str:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])
    return f"csv:{path}"


def people(path: Path) -> str:
    towns = ["Bern", "Aarau", 'Bad "Ragaz", SG']
    rows: list[list[object]] = [[20 + i, towns[i % 3], i / 7, ("no", "yes")[i % 2]] for i in range(20)]
    return write(path / "people.csv", ["age", "town", "income", "bought"], rows)


def undo(data: SplitDataset, column: int) -> torch.Tensor:
    """The column in the source's units, in the source's order."""
    assert data.input_scale is not None
    inputs = torch.cat([data.train.inputs, data.calibration.inputs, data.test.inputs])
    rows = torch.cat([data.rows["train"], data.rows["calibration"], data.rows["test"]])
    raw = inputs * data.input_scale[1] + data.input_scale[0]
    return raw[rows.argsort(), column]


def test_numbers_and_words_become_features(tmp_path: Path) -> None:
    data = load(people(tmp_path))
    names = ("age", "town=Aarau", 'town=Bad "Ragaz", SG', "town=Bern", "income")
    assert data.feature_names == names
    assert (data.classes, data.class_names) == (2, ("no", "yes"))
    assert (len(data.train), len(data.calibration), len(data.test)) == (12, 4, 4)
    torch.testing.assert_close(
        undo(data, 0), torch.arange(20.0, 40.0, dtype=torch.float64), rtol=1e-6, atol=1e-6
    )
    assert undo(data, 3).tolist() == [float(i % 3 == 0) for i in range(20)]
    assert data.train.targets.tolist() == (data.rows["train"] % 2).tolist()
    assert data.weights is not None
    assert data.weights.tolist() == [1, 0.5, 0.5, 0.5, 1]
    assert data.name == f"csv:{tmp_path}/people.csv"


def test_the_target_can_be_any_column(tmp_path: Path) -> None:
    data = load(people(tmp_path), target="income")
    assert data.classes is None
    assert data.target_scale is not None
    raw = data.test.targets * data.target_scale[1] + data.target_scale[0]
    torch.testing.assert_close(raw, data.rows["test"].float() / 7)
    assert data.feature_names is not None
    assert data.feature_names[-2:] == ("bought=no", "bought=yes")
    assert load(people(tmp_path), target="town").class_names == ("Aarau", 'Bad "Ragaz", SG', "Bern")


def test_whole_numbers_are_labels_in_numeric_order(tmp_path: Path) -> None:
    spec = write(tmp_path / "a.csv", ["x", "y"], [[i, [10, 9, "-1.0"][i % 3]] for i in range(12)])
    data = load(spec)
    assert data.class_names == ("-1", "9", "10")
    assert data.train.targets.tolist() == [[2, 1, 0][row % 3] for row in data.rows["train"].tolist()]


@pytest.mark.parametrize(
    ("target", "classes"), [(lambda i: i % 50, 50), (lambda i: i % 51, None), (lambda i: i % 2 + 0.5, None)]
)
def test_up_to_50_whole_numbers_classify_and_the_rest_regresses(
    tmp_path: Path, target: object, classes: int | None
) -> None:
    assert callable(target)
    spec = write(tmp_path / "a.csv", ["x", "y"], [[i, target(i)] for i in range(102)])
    assert load(spec).classes == classes


def test_spreadsheet_habits_are_understood(tmp_path: Path) -> None:
    """A byte-order mark, Windows line ends, spaces around cells, an empty last line."""
    lines = ["age , label", *[f" {i} , {'ab'[i % 2]} " for i in range(10)], "", ""]
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    data = load(f"csv:{tmp_path}/a.csv")
    assert data.feature_names == ("age",)
    assert data.class_names == ("a", "b")


@given(st.lists(st.floats(-1e30, 1e30), min_size=10, max_size=30).filter(lambda all: len(set(all)) > 1))
def test_every_number_survives(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    spec = write(path, ["x", "y"], [[repr(value), i % 2] for i, value in enumerate(values)])
    data = load(spec, standardize=False)
    expected = np.array(values, dtype=np.float32)[data.rows["train"]]
    np.testing.assert_array_equal(data.train.inputs[:, 0], expected)
    scaled = load(spec).train.inputs
    assert torch.isfinite(scaled).all()
    assert float(scaled.abs().max()) <= math.sqrt(len(scaled)) * 1.001  # Samuelson's inequality


def test_rows_and_digest_follow_the_content(tmp_path: Path) -> None:
    first, again = load(people(tmp_path)), load(people(tmp_path), seed=5)
    assert first.sha256 == again.sha256
    assert len(first.sha256) == 64
    assert not torch.equal(first.rows["train"], again.rows["train"])
    text = (tmp_path / "people.csv").read_text()
    (tmp_path / "people.csv").write_text(text.replace("\n39,", "\n38,"))
    assert load(f"csv:{tmp_path}/people.csv").sha256 != first.sha256


GOOD: list[list[object]] = [[i, "ab"[i % 2], i % 2] for i in range(10)]


def changed(row: int, column: int, cell: object) -> list[list[object]]:
    rows = [list(each) for each in GOOD]
    rows[row][column] = cell
    return rows


@pytest.mark.parametrize("cell", ["", "  ", "NA", "nan", "NaN", "?", "null", "N/A"])
def test_missing_values_are_named(tmp_path: Path, cell: str) -> None:
    """Where they are refused, and always in the target."""
    for column, name in enumerate(["x", "c", "y"]):
        spec = write(tmp_path / "a.csv", ["x", "c", "y"], changed(6, column, cell))
        rule = rf"must have no missing values.*; got none in column '{name}', row 7 \(line 8\)"
        with pytest.raises(ArgumentError, match=rule):
            load(spec, options=TableOptions(missing="median" if name == "y" else "refuse"))


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_named(tmp_path: Path, cell: str) -> None:
    for column, name in ((0, "x"), (2, "y")):
        spec = write(tmp_path / "a.csv", ["x", "c", "y"], changed(3, column, cell))
        rule = rf"must hold finite numbers; got '{cell}' in column '{name}', row 4 \(line 5\)"
        with pytest.raises(ArgumentError, match=rule):
            load(spec)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must begin with a header line of column names; got an empty file"),
        ("1,2,3\n" * 12, "must begin with a header line of column names; got 1,2,3"),
        ("a\n" + "1\n" * 12, "must have a feature beside its target; got only the column 'a'"),
        ("a,b\n" + "1,2\n" * 5 + "1,2,3\n", "must have 2 cells in line 7; got 3"),
        ("a,b\n" + "1,2\n" * 9, "must have at least 10 rows; got 9"),
        ("a,b\n", "must have at least 10 rows; got 0"),
        ("a,b\n" + "1,2\n" * 10, "must have at least 2 different targets; got 1"),
        ("a,b\n" + "1,x\n" * 10, "must have at least 2 different targets; got 1"),
        ("a,b\n" + "1,0.5\n" * 10, "must have at least 2 different targets; got 1"),
        (
            "a,b\n" + "".join(f"1,w{i}\n" for i in range(60)),
            "at most 50 different labels.*'b'; got 60 labels",
        ),
        (
            "a,b\n" + "".join(f"{'oops' if i == 4 else i},{i % 2}\n" for i in range(150)),
            r"must hold numbers .*got 'oops' in column 'a', row 5 \(line 6\), where 149 of 150 .*Repair the",
        ),
        ('a,b\n"1,2\n' * 12, "must be a readable file of separated cells"),
        ("a,b\n" + "1,x\n" * 12 + "1,x\0\n", "must be a text file in utf-8; got a NUL byte"),
    ],
)
def test_refusals(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(ArgumentError, match=message):
        load(f"csv:{tmp_path}/a.csv")


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"must be a readable file; got no file at that path"):
        load(f"csv:{tmp_path}/none.csv")
    (tmp_path / "a.csv").write_bytes("größe,y\n".encode("latin-1") * 12)
    with pytest.raises(ArgumentError, match=r"must be a readable utf-8-sig file; got .*--encoding"):
        load(f"csv:{tmp_path}/a.csv", options=TableOptions(encoding="utf-8"))


def test_an_unknown_target_lists_the_columns(tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentError, match=r"`target` must be a column of .*: age, town, income, bought; got"
    ):
        load(people(tmp_path), target="price")


def test_underscores_do_not_make_numbers(tmp_path: Path) -> None:
    spec = write(tmp_path / "a.csv", ["x", "y"], [[f"1_{i % 2}", i % 2] for i in range(10)])
    assert load(spec).feature_names == ("x=1_0", "x=1_1")


@pytest.mark.parametrize(
    ("cells", "place"),
    [
        ([*map(str, range(19)), "1O"], r"'1O' in column '.', row 20 \(line 21\), where 19 of 20"),
        (["a", "1", "b", "0"] * 4 + ["1", "x", "0", "1"], "'a' in column '.', row 1 .*, where 11 of 20"),
    ],
)
def test_a_slip_in_a_column_of_numbers_is_named(tmp_path: Path, cells: list[str], place: str) -> None:
    """In a feature and in the target: neither becomes categories without a word."""
    for header in (["x", "y"], ["y", "x"]):
        rows: list[list[object]] = [[cell, i % 2] for i, cell in enumerate(cells)]
        spec = write(tmp_path / "a.csv", header, rows if header[0] == "x" else [row[::-1] for row in rows])
        with pytest.raises(ArgumentError, match=f"must hold numbers in a column most .*; got {place}"):
            load(spec)


def test_a_column_of_words_may_hold_some_numbers(tmp_path: Path) -> None:
    towns = ["Bern", "Bern", "8001", "8002"] * 5
    data = load(write(tmp_path / "a.csv", ["town", "y"], [[town, i % 2] for i, town in enumerate(towns)]))
    assert data.feature_names == ("town=8001", "town=8002", "town=Bern")


@pytest.mark.parametrize(
    "encoding", ["utf-8", "UTF-8", "Utf8", "UTF_8", "U8", "utf", "utf-8-sig", "UTF-8-SIG"]
)
def test_no_spelling_of_utf_8_keeps_the_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    """It is no part of the first column's name."""
    text = "größe,y\n" + "".join(f"{at},{at % 2}\n" for at in range(20))
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    data = load(f"csv:{tmp_path}/a.csv", options=TableOptions(encoding=encoding))
    assert data.feature_names == ("größe",)
    (tmp_path / "b.csv").write_bytes(text.encode())
    data = load(f"csv:{tmp_path}/b.csv", options=TableOptions(encoding=encoding))
    assert data.feature_names == ("größe",)
