"""``results/README.md``: the paper's figures and tables, one row each, made from the measured verdicts.

The set-up, the cause of a difference and the choice of numbers are written by hand in ``paper_rows.py``, in
at most 25 words a cell; outcomes, counts and numbers come from ``measured.json``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from studies.page import WRITTEN_BY, markdown_table, quantity_text
from studies.study import Outcome, Scale

MOST_WORDS = 25
BEFORE = {"yes": 37, "partly": 1, "no": 30, "not comparable": 25}
"""Outcomes of the same statements when each verdict had a strictness of its own."""


@dataclass(frozen=True)
class PaperRow:
    """A figure, table or theorem of the paper.

    Attributes:
        what: its name in the paper.
        study: the study that measures it.
        verdicts: names of the verdicts about it.
        differs: how our set-up differs.
        close: the numbers; {verdict:quantity} is replaced by what was measured.
        why: the cause of a difference, as far as it is known; may have numbers too.
        picture: file of the study's folder; empty for none.
    """

    what: str
    study: str
    verdicts: tuple[str, ...]
    differs: str
    close: str
    why: str
    picture: str = ""


def paper_table(contents: Sequence[Mapping[str, Any]], rows: Sequence[PaperRow]) -> str:
    """Return the text of ``results/README.md`` from the contents of all ``measured.json``."""
    by_name = {content["name"]: content for content in contents}
    present = [row for row in rows if row.study in by_name]
    of_paper = [content for content in contents if not content.get("beyond", False)]
    beyond = [content for content in contents if content.get("beyond", False)]
    head = ["", "", "what differs", "supported", "how close", "why"]
    parts = [
        WRITTEN_BY,
        "# The paper, reproduced",
        summary(of_paper, present, by_name),
        markdown_table(head, [_cells(row, by_name[row.study]) for row in present]),
    ]
    if beyond:
        table = markdown_table(["study", "answers", "title"], [_beyond_cells(content) for content in beyond])
        parts += ["## Beyond the paper", table]
    return "\n\n".join(parts) + "\n"


def summary(
    of_paper: Sequence[Mapping[str, Any]],
    rows: Sequence[PaperRow],
    by_name: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return three lines: counts of statements, counts of figures and tables, and where the rules are."""
    statements = Counter(str(entry["outcome"]) for content in of_paper for entry in content["verdicts"])
    places = Counter(str(outcome_of_row(row, by_name[row.study])) for row in rows)
    return "\n".join(
        [
            f"- **Statements**: {_counts(statements)}. Before all verdicts had one strictness: "
            f"{_counts(BEFORE)}.",
            f"- **Figures, tables and theorems**: {_counts(places)}.",
            "- How strict verdicts are is in `studies/strictness.py`; `python -m studies NAME --scale full` "
            "measures a row again, and its page has the details.",
        ]
    )


def _counts(counter: Mapping[str, int]) -> str:
    total = sum(counter.values())
    return f"of {total}, " + ", ".join(f"{counter.get(str(outcome), 0)} {outcome}" for outcome in Outcome)


def outcome_of_row(row: PaperRow, content: Mapping[str, Any]) -> Outcome:
    """Return *yes* or *no* if all verdicts that compare anything are, *partly* if they differ."""
    outcomes = {entry["outcome"] for entry in verdicts_of_row(row, content)} - {Outcome.NOT_COMPARABLE}
    if not outcomes:
        return Outcome.NOT_COMPARABLE
    return Outcome(outcomes.pop()) if len(outcomes) == 1 else Outcome.PARTLY


def verdicts_of_row(row: PaperRow, content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the verdicts of a row; those that a smaller scale does not have are left out."""
    return [entry for entry in content["verdicts"] if entry["name"] in row.verdicts]


def _cells(row: PaperRow, content: Mapping[str, Any]) -> list[str]:
    verdicts = verdicts_of_row(row, content)
    outcome = outcome_of_row(row, content)
    counts = Counter(entry["outcome"] for entry in verdicts)
    listed = ", ".join(f"{counts[str(each)]} {each}" for each in Outcome if counts[str(each)])
    page = f"{row.study}/README.md"
    quick = ", quick" if content.get("scale") == Scale.QUICK else ""
    name = f"{row.what} ([page]({page}){quick})"
    image = f'<img src="{row.study}/{row.picture}" alt="{row.what}" width="110">' if row.picture else ""
    supported = f"**{outcome}**" + (f" ({listed})" if len(counts) > 1 else "")
    close, why = (numbers_of(text, verdicts) for text in (row.close, row.why))
    return [name, image, row.differs, supported, close, why]


_PLACE = re.compile(r"\{([^{}:]+):([^{}]+)\}")


def numbers_of(template: str, verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Replace each {verdict:quantity} by the measured value, without its interval; – where there is none.

    >>> plain = {"low": None, "high": None, "places": 2, "percent": False, "side": "", "digits": 2}
    >>> value = {"value": 0.25, **plain}
    >>> numbers_of("it is {size:x}; {size:y}", [{"name": "size", "ours": {"x": value}}])
    'it is 0.25; –'
    """
    ours = {(entry["name"], name): number for entry in verdicts for name, number in entry["ours"].items()}

    def value(match: re.Match[str]) -> str:
        number = ours.get((match[1], match[2]))
        return "–" if number is None else quantity_text({**number, "low": None, "high": None})

    return _PLACE.sub(value, template)


def _beyond_cells(content: Mapping[str, Any]) -> list[str]:
    judged = Counter(entry["outcome"] for entry in content["verdicts"] if entry["rule"])
    answers = ", ".join(f"{judged[str(each)]} {each}" for each in Outcome if judged[str(each)]) or "–"
    return [f"[{content['name']}]({content['name']}/README.md)", answers, str(content["title"])]
