"""The slider over ρ: what it reads out, rounded outwards as in every table, and its line in the charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from certus.certificates.certificate import Bracket, Certificate
from certus.decimals import at_least, at_most
from certus.report.sections import escaped

_POINTS = 48
_COLUMNS = {
    "distance": "distance √ρ",
    "loss_low": "loss at least",
    "loss_high": "at most",
    "error_low": "error at least",
    "error_high": "at most",
    "population_loss": "population: loss at most",
    "population_error": "error at most",
}


def grid_of(certificates: Sequence[Certificate]) -> list[float]:
    """0, every ρ that was asked for, and many between and around them."""
    asked = sorted({rho for one in certificates for rho in one.rhos if rho > 0}) or [0.01]
    low, high = asked[0] / 4, asked[-1] * 1.25
    between = [low * (high / low) ** (place / (_POINTS - 1)) for place in range(_POINTS)]
    apart = [rho for rho in between if all(abs(rho / one - 1) > 0.02 for one in asked)]
    return sorted([0.0, *asked, *apart])


@dataclass(frozen=True)
class Reader:
    """One certificate under the slider.

    Attributes:
        place: of its run on the page; charts: ids of the charts whose line moves.
        columns: what is read out.
    """

    place: int
    name: str
    certificate: Certificate
    charts: tuple[str, ...]
    columns: tuple[str, ...]

    @staticmethod
    def of(place: int, name: str, certificate: Certificate, charts: Sequence[str]) -> Reader:
        first = certificate.bracket(certificate.rhos[0])
        columns = [column for column in _COLUMNS if getattr(first, column) is not None]
        if certificate.no_proof is not None:
            columns = [column for column in columns if not column.endswith("high")]
        return Reader(place, name, certificate, tuple(charts), tuple(columns))

    def cells(self, one: Bracket) -> dict[str, str]:
        """Element → its text, at one ρ."""
        return {f"read-{self.place}-{column}": read_out(column, one) for column in self.columns}

    def row(self, columns: Sequence[str]) -> str:
        """The empty read-out, to be filled by the slider; a dash for what the certificate does not say."""
        body = "".join(
            f'<td id="read-{self.place}-{column}"></td>' if column in self.columns else "<td>–</td>"
            for column in columns
        )
        return f"<tr><td>{escaped(self.name)}</td>{body}</tr>"


def read_out(column: str, one: Bracket) -> str:
    """A number as every table of certus prints it: lower sides rounded down, upper sides up."""
    value = getattr(one, column)
    if column == "distance":
        return f"{value:.3g}"
    return at_least(value) if column.endswith("low") else at_most(value)


def readings(readers: Sequence[Reader], grid: Sequence[float]) -> list[dict[str, Any]]:
    """What the page shows at each place of the slider."""
    made = []
    for rho in grid:
        cells: dict[str, str] = {}
        marks: dict[str, float] = {}
        for reader in readers:
            one = reader.certificate.bracket(rho)
            cells |= reader.cells(one)
            marks |= dict.fromkeys(reader.charts, one.distance)
        made.append({"rho": rho, "words": f"ρ = {rho:.4g}", "cells": cells, "marks": marks})
    return made


def slider_part(readers: Sequence[Reader], grid: Sequence[float]) -> str:
    """The slider, and one row for each certificate; it starts at the largest ρ that was asked for."""
    asked = max(rho for reader in readers for rho in reader.certificate.rhos)
    start = min(range(len(grid)), key=lambda place: abs(grid[place] - asked))
    columns = [column for column in _COLUMNS if any(column in reader.columns for reader in readers)]
    head = "".join(f"<th>{escaped(_COLUMNS[column])}</th>" for column in columns)
    rows = "".join(reader.row(columns) for reader in readers)
    table = f"<table><thead><tr><th>run</th>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return (
        '<div class="slider"><label for="slider">Mean squared distance by which the data may move: '
        '<output id="where"></output></label>'
        f'<input id="slider" type="range" min="0" max="{len(grid) - 1}" step="1" value="{start}">'
        f'<div class="scroll">{table}</div></div>'
    )
