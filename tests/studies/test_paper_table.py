"""The table of results/README.md: each verdict about the paper in one row, short cells, true numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from studies.page import quantity_text
from studies.paper_rows import PAPER_ROWS
from studies.paper_table import (
    MOST_WORDS,
    PaperRow,
    numbers_of,
    outcome_of_row,
    paper_table,
    summary,
    verdicts_of_row,
)
from studies.study import Outcome

RESULTS = Path(__file__).parents[2] / "results"
CONTENTS: dict[str, dict[str, Any]] = {
    path.parent.name: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*/measured.json"))
}


def test_the_committed_table_is_that_of_the_measurements() -> None:
    assert (RESULTS / "README.md").read_text() == paper_table(list(CONTENTS.values()), PAPER_ROWS)


def test_every_statement_of_the_paper_stands_in_one_row() -> None:
    named = [(row.study, name) for row in PAPER_ROWS for name in row.verdicts]
    stated = [
        (name, verdict["name"])
        for name, content in CONTENTS.items()
        if not content.get("beyond", False)
        for verdict in content["verdicts"]
    ]
    assert sorted(named) == sorted(stated)


@pytest.mark.parametrize("row", PAPER_ROWS, ids=lambda row: row.what)
def test_a_row_shows_measured_numbers_and_a_picture(row: PaperRow) -> None:
    verdicts = verdicts_of_row(row, CONTENTS[row.study])
    for text in (row.close, row.why):
        for verdict, quantity in re.findall(r"\{([^{}:]+):([^{}]+)\}", text):
            (ours,) = (entry["ours"] for entry in verdicts if entry["name"] == verdict)
            number = quantity_text({**ours[quantity], "low": None, "high": None})
            assert number in numbers_of(text, verdicts)
    assert not row.picture or (RESULTS / row.study / row.picture).exists()


def test_cells_are_short() -> None:
    lines = (RESULTS / "README.md").read_text().splitlines()
    cells = [cell for line in lines if line.startswith("|") for cell in line.split(" | ")]
    assert len(cells) > 6 * len(PAPER_ROWS)
    assert [cell for cell in cells if len(cell.split()) > MOST_WORDS + 1] == []  # and its bar


def made_up(*outcomes: str) -> dict[str, Any]:
    return {"name": "x", "verdicts": [{"name": str(i), "outcome": one} for i, one in enumerate(outcomes)]}


@pytest.mark.parametrize(
    ("outcomes", "outcome"),
    [
        (["yes", "yes"], "yes"),
        (["yes", "not comparable"], "yes"),
        (["no", "not comparable"], "no"),
        (["yes", "no"], "partly"),
        (["partly", "not comparable"], "partly"),
        (["not comparable"], "not comparable"),
        ([], "not comparable"),
    ],
)
def test_the_outcome_of_a_row(outcomes: list[str], outcome: str) -> None:
    row = PaperRow("fig", "x", tuple(str(i) for i in range(len(outcomes))), "", "", "")
    assert outcome_of_row(row, made_up(*outcomes)) == outcome


def test_the_summary_counts() -> None:
    content = made_up("yes", "yes", "no", "partly")
    rows = [PaperRow("a", "x", ("0", "1"), "", "", ""), PaperRow("b", "x", ("2", "3"), "", "", "")]
    lines = summary([content], rows, {"x": content}).splitlines()
    assert len(lines) == 3
    assert "of 4, 2 yes, 1 partly, 1 no, 0 not comparable" in lines[0]
    assert "of 2, 1 yes, 1 partly, 0 no, 0 not comparable" in lines[1]
    assert {str(outcome) for outcome in Outcome} == {"yes", "partly", "no", "not comparable"}
