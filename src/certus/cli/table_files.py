"""Tables as CSV and LaTeX, with cells that neither a spreadsheet program nor LaTeX obeys."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from certus._format import escape_controls
from certus.datasets.raw_table import plain_number

_FORMULA = re.compile(r"'*[=+\-@\t\r]")

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def plain_cell(text: str) -> str:
    """Text for a CSV file, behind a single quote where a spreadsheet program would compute it.

    To read it back, remove one quote from a cell that begins with quotes and one of ``= + - @``, a tab or a
    carriage return. Numbers stay as they are.

    >>> [plain_cell(text) for text in ("=1+1", "'=1", "-5", "a=1")]
    ["'=1+1", "''=1", '-5', 'a=1']
    """
    return f"'{text}" if _FORMULA.match(text) and plain_number(text) is None else text


def as_csv(rows: Iterable[Sequence[Any]]) -> str:
    """CSV of a header and lines; text is written by ``plain_cell``."""
    lines = []
    for row in rows:
        line = io.StringIO()
        # With both signs of a line's end, a cell that holds either is quoted.
        writer = csv.writer(line, lineterminator="\r\n")
        writer.writerow([plain_cell(cell) if isinstance(cell, str) else cell for cell in row])
        lines.append(line.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


def flat_rows(rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """A header, and a line for each row; the entries of an object become columns, such as ``error_low``."""
    parts = {name: value for row in rows for name, value in row.items() if isinstance(value, dict)}
    columns = {
        (name, key): name if key is None else f"{name}_{key}"
        for name in rows[0]
        for key in parts.get(name, (None,))
    }
    lines = ([_entry(row[name], key) for name, key in columns] for row in rows)
    return [list(columns.values()), *lines]


def _entry(value: Any, key: str | None) -> Any:
    return value if key is None or value is None else value[key]


def as_latex(columns: Mapping[str, Sequence[str]]) -> str:
    """A ``tabular`` environment that needs no package.

    >>> print(as_latex({"run": ["a_b"], "error": ["0.100"]}), end="")
    \\begin{tabular}{lr}
    \\hline
    run & error \\\\
    \\hline
    a\\_b & 0.100 \\\\
    \\hline
    \\end{tabular}
    """
    cells = [list(columns), *zip(*columns.values(), strict=True)]
    head, *lines = [" & ".join(map(latex_text, row)) + r" \\" for row in cells]
    begin = rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}"
    return "\n".join([begin, r"\hline", head, r"\hline", *lines, r"\hline", r"\end{tabular}", ""])


def latex_text(text: str) -> str:
    """Text in which LaTeX finds no command; signs of numbers are those of mathematics."""
    escaped = "".join(_LATEX.get(sign, sign) for sign in escape_controls(text).replace("\n", " "))
    return re.sub(r"(?:^|(?<= ))[+-][0-9.]+", lambda number: f"${number[0]}$", escaped)
