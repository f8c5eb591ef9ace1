"""Tables as others write them: another encoding, 64-bit numbers, labels like formulas, very long cells."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from certus.datasets import from_frame, load
from certus.errors import ArgumentError, CertusError
from certus.table_options import TableOptions
from tests.cli.test_cli import certus, refused

TOWNS = ("Zürich", "Genève", "Bern")
LABELS = ("=1+1", "+x", "-5", "'=y", "plain")
QUICK = ["--method", "erm", "--model", "mlp:8", "--epochs", "40", "--lr", "0.05"]


def lines(count: int, *, labels: tuple[str, ...] = LABELS) -> list[list[str]]:
    rng = np.random.default_rng(5)
    header = ["größe", "town", "kind"]
    return [
        header,
        *(
            [f"{at % 5 + 0.1 * rng.normal():.4f}", TOWNS[at % 3], labels[at % 5 % len(labels)]]
            for at in range(count)
        ),
    ]


def write(path: Path, rows: list[list[str]], encoding: str, separator: str) -> None:
    text = io.StringIO()
    csv.writer(text, delimiter=separator).writerows(rows)
    path.write_bytes(text.getvalue().encode(encoding))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on the same rows: one on UTF-8 and commas, one on Latin-1 and semicolons."""
    folder = tmp_path_factory.mktemp("new")
    write(folder / "old.csv", lines(60), "utf-8", ",")
    write(folder / "old-latin.csv", lines(60), "latin-1", ";")
    done = certus("train", "csv:old.csv", *QUICK, "-o", "run", folder=folder)
    assert done.returncode == 0, done.stderr
    other = ["train", "csv:old-latin.csv", "--encoding", "latin-1", "--separator", ";", *QUICK]
    assert certus(*other, "-o", "run-latin", folder=folder).returncode == 0
    return folder


WRITTEN = [
    ("latin-1", ";"),
    ("utf-8", ","),
    ("utf-8-sig", ";"),
    ("utf-16", "\t"),
    ("cp1252", "|"),
    ("utf-8", ";"),
    ("latin-1", ","),
]


@pytest.mark.parametrize("run", ["run", "run-latin"])
@pytest.mark.parametrize(("encoding", "separator"), WRITTEN)
def test_a_new_batch_in_another_encoding(place: Path, run: str, encoding: str, separator: str) -> None:
    """The same rows, however they are written, get the same predictions, and no category is unknown."""
    rows = lines(60)
    write(place / "new.csv", rows, encoding, separator)
    old = "old.csv" if run == "run" else "old-latin.csv"
    same = certus("predict", run, old, "--no-radius", folder=place)
    done = certus("predict", run, "new.csv", "--no-radius", folder=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout == same.stdout
    assert "unknown" not in done.stderr
    if run == "run":
        usual = encoding in ("utf-8", "utf-8-sig") and separator == ","
        assert ("csv:new.csv is read with" in done.stderr) == (not usual)


def test_a_new_batch_is_certified_and_compared(place: Path) -> None:
    write(place / "new.csv", lines(60), "latin-1", ";")
    quick = ["--rho", "0.01", "--local-radii", "0", "--gamma-rounds", "0", "--attack-steps", "0", "--json"]
    done = certus("certify", "run", "--data", "csv:new.csv", *quick, "-o", "cert", folder=place)
    assert done.returncode == 0, done.stderr
    assert "is read with" in done.stderr
    same = certus("certify", "run", "--data", "csv:old.csv", *quick, "-o", "cert2", folder=place)
    assert json.loads(done.stdout)["clean_loss"] == json.loads(same.stdout)["clean_loss"]
    assert certus("verify", "cert/certificate.json", folder=place).returncode == 0
    moved = certus("distance", "csv:old.csv", "csv:new.csv", "--run", "run", "--json", folder=place)
    assert moved.returncode == 0, moved.stderr


def test_a_new_category_is_still_unknown(place: Path) -> None:
    """No other encoding is made up for it."""
    rows = lines(60)
    rows[1][1] = "Neuchâtel"
    write(place / "new.csv", rows, "utf-8", ",")
    done = certus("predict", "run", "new.csv", "--no-radius", folder=place)
    assert done.returncode == 0, done.stderr
    assert "Neuchâtel" in done.stderr
    assert "is read with" not in done.stderr


def test_a_table_without_the_columns_is_refused_as_before(place: Path) -> None:
    (place / "bad.csv").write_text("a;b\n1;2\n")
    refused(certus("predict", "run", "bad.csv", folder=place), "größe")


def test_labels_like_formulas_are_quoted_in_csv(place: Path) -> None:
    """No text of the table begins as a formula does; one quote less gives the label back. Numbers stay."""
    done = certus("predict", "run", "old.csv", "-o", "said.csv", folder=place)
    assert done.returncode == 0, done.stderr
    truth = [row["label"] for row in json.loads(
        certus("predict", "run", "old.csv", "--json", folder=place).stdout
    )["rows"]]  # fmt: skip
    with (place / "said.csv").open(newline="") as stream:
        header, *rows = csv.reader(stream)
    assert {f"p({label})" for label in LABELS} < set(header)
    cells = [row[1] for row in rows]
    for cell, label in zip(cells, truth, strict=True):
        assert label in LABELS
        assert cell == (label if label in ("-5", "plain") else "'" + label)
    assert set(truth) == set(LABELS)
    for row in rows:
        [float(number) for number in row[2:] if number != "unbounded"]


@pytest.mark.parametrize("name", ["=1+1", "+x", "-x", "@x", "\tx", "\rx", "'=y"])
def test_every_text_like_a_formula_is_quoted(tmp_path: Path, name: str) -> None:
    """Through a table of one label of this kind, read from an array, which strips nothing."""
    rng = np.random.default_rng(1)
    targets = np.array([name if at % 3 else "z" for at in range(40)])
    np.savez(tmp_path / "a.npz", x=rng.normal(size=(40, 2)), y=targets)
    done = certus("train", "npz:a.npz", *QUICK, "-o", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    done = certus("predict", "run", "npz:a.npz", "--no-radius", "-o", "said.csv", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "said.csv").open(newline="") as stream:
        labels = {row[1] for row in csv.reader(stream)} - {"label", "z"}
    assert labels == {"'" + name}


def test_64_bit_identifiers_in_parquet(tmp_path: Path) -> None:
    """As many different ones as rows, although float64 does not tell them apart: an identifier, as in CSV."""
    count = 40
    first = 2**62
    columns = {
        "id": [first + at for at in range(count)],
        "x": [float(at % 7) for at in range(count)],
        "y": [at % 2 for at in range(count)],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    done = certus("train", "parquet:a.parquet", *QUICK, "-o", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stderr.splitlines() if line.startswith("id "))
    assert "identifier" in line
    assert f" {count} " in line
    done = certus("predict", "run", "a.parquet", "--no-radius", folder=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "kind", [pyarrow.int64(), pyarrow.uint64(), pyarrow.int32(), pyarrow.uint8()], ids=str
)
def test_whole_numbers_of_any_width_are_read(kind: pyarrow.DataType) -> None:
    """Not identifiers but amounts, with gaps: the numbers are those of Python, rounded to float64."""
    large = 2 ** (min(kind.bit_width, 63) - 1) - 1
    values = [None if at % 9 == 4 else large - at % 5 for at in range(45)]
    table = pyarrow.table({"amount": pyarrow.array(values, kind), "y": [at % 2 for at in range(45)]})
    data = from_frame(table, target="y")
    assert data.recipe is not None
    assert data.recipe.columns[0].missing == 5
    raw = from_frame(table, target="y", standardize=False)
    expected = [float(np.float32(values[at] or 0)) for at in raw.rows["train"].tolist() if values[at]]
    known = [float(value) for value, gap in raw.train.inputs[:, [0, 2]].tolist() if not gap]
    assert known == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("encoding", ["rot13", "rot_13", "base64", "hex", "zlib", "bz2", "uu", "quopri"])
def test_codecs_that_are_not_for_text(place: Path, encoding: str) -> None:
    refused(
        certus("train", "csv:old.csv", "--encoding", encoding, "-o", "none", folder=place),
        "`--encoding` must be a text encoding",
    )
    with pytest.raises(ArgumentError, match="encoding"):
        TableOptions(encoding=encoding)


LONG = 130_000
WORDS = ("w" * 79 + " ") * (LONG // 80)


def _with(cell: str, column: int) -> list[list[str]]:
    rows = lines(60, labels=("no", "yes"))
    rows[7][column] = cell
    return rows


MESSAGES = {
    "a word for a number": (_with("x" * LONG, 0), []),
    "words for a number": (_with(WORDS, 0), []),
    "a name of a column": ([["größe" + "x" * LONG, "town", "kind"], *_with("x", 0)[1:]], []),
    "names of columns": ([[WORDS, "town", "kind"], *_with("x", 0)[1:]], []),
    "a target": (lines(60), ["--target", "x" * LONG]),
    "a target among long columns": ([[WORDS, "town", "kind"], *lines(60)[1:]], ["--target", "none"]),
    "a column to drop": (lines(60), ["--drop", WORDS]),
    "a choice": (lines(60), ["--method", "x" * LONG]),
    "a number": (lines(60), ["--lr", WORDS]),
    "a model": (lines(60), ["--model", "mlp:" + WORDS]),
    "a name of an option": (lines(60), ["--" + "x" * LONG]),
    "a name of a file": (lines(60), ["-o", "x" * LONG]),
    "a header": ([["1"] * 30_000, *lines(60)[1:]], []),
}


@pytest.mark.parametrize(("rows", "options"), MESSAGES.values(), ids=MESSAGES)
def test_messages_do_not_repeat_long_input(tmp_path: Path, rows: list[list[str]], options: list[str]) -> None:
    write(tmp_path / "a.csv", rows, "utf-8", ",")
    done = certus("train", "csv:a.csv", "--gamma", "1", *options, folder=tmp_path)
    assert done.returncode == 2, done.stderr[:500]
    said = done.stderr.splitlines()[-1]
    assert said.startswith("certus: error: ")
    assert 30 < len(said) < 2000
    assert "…" in said


def test_messages_of_new_rows_do_not_repeat_long_input(place: Path) -> None:
    rows = lines(60)
    rows[3][1] = WORDS
    write(place / "new.csv", rows, "utf-8", ",")
    done = certus("predict", "run", "new.csv", "--no-radius", folder=place)
    assert done.returncode == 0
    assert len(done.stderr) < 1000
    rows = lines(60)
    rows[3][2] = WORDS
    write(place / "new.csv", rows, "utf-8", ",")
    done = certus("predict", "run", "new.csv", "--no-radius", folder=place)
    assert done.returncode == 2
    assert len(done.stderr) < 1000
    write(place / "bad.csv", _with(WORDS, 0), "utf-8", ",")
    with pytest.raises(CertusError) as caught:
        load(f"csv:{place}/bad.csv")
    assert len(str(caught.value)) < 2000
    assert "line 8" in str(caught.value)
