"""Certificates as files: ``certificate.json`` with digests, a table of samples, and the comparison of two."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from dataclasses import asdict
from typing import Any

import certus
from certus.certificates.certificate import Certificate
from certus.certificates.levels import Rule
from certus.smoothness import VALIDITY

SCHEMA_VERSION = 1
TOLERANCE = 1e-9


def as_json(certificate: Certificate) -> dict[str, Any]:
    """Everything that the certificate says, as JSON; infinities become None."""
    population = certificate.population
    people = None
    if population is not None:
        people = asdict(population) | {
            "means": [{"gamma": gamma, "bound": mean} for gamma, mean in population.means.items()],
            "statement": (
                f"With probability at least {population.confidence:g} over independent samples, the loss "
                f"clipped at {population.clip:g} and the error rate, if any, stay below for all rho at once."
            ),
        }
    content = {
        "schema_version": SCHEMA_VERSION,
        "certus_version": certus.__version__,
        "evidence": certificate.evidence,
        "validity": VALIDITY,
        **certificate.about,
        "samples": len(certificate.levels[0].bound),
        "classes": certificate.classes,
        "growth": certificate.growth,
        "clip": certificate.clip,
        "start": certificate.start,
        "brackets": [asdict(bracket) for bracket in certificate.curve()],
        "population": people,
        "levels": [asdict(reached) for reached in certificate.reached],
        "table_sha256": hashlib.sha256(sample_table(certificate).encode()).hexdigest(),
    }
    plain: dict[str, Any] = _plain(content)
    return plain


def sample_table(certificate: Certificate) -> str:
    """CSV: for each ρ asked for and each sample φ̄ at its best γ, the rule, and the distances to an error."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["rho", "gamma", "sample", "phi_bar", "rule", "loss_found", "certified_radius", "error_found_at"]
    )
    for bracket in certificate.curve():
        level = next(level for level in certificate.levels if level.gamma == bracket.gamma)
        columns = [
            level.bound.tolist(),
            [Rule(code).name.lower() for code in level.rule.tolist()],
            level.loss.tolist(),
        ]
        for costs in (certificate.error_floor, certificate.error_found):
            blank = [""] * len(level.bound)
            columns.append(blank if costs is None else (costs / certificate.growth).sqrt().tolist())
        for index, cells in enumerate(zip(*columns, strict=True)):
            writer.writerow([bracket.rho, bracket.gamma, index, *cells])
    return text.getvalue()


def differences(first: Any, second: Any, path: str = "") -> list[str]:
    """Where two JSON documents differ: numbers by more than 10⁻⁹, anything else at all."""
    if isinstance(first, dict) and isinstance(second, dict):
        missing = [f"{path}.{name}" for name in first.keys() ^ second.keys()]
        pairs = [(f"{path}.{name}", first[name], second[name]) for name in first.keys() & second.keys()]
        return missing + [
            found for name, a, b in sorted(pairs, key=lambda p: p[0]) for found in differences(a, b, name)
        ]
    if isinstance(first, list) and isinstance(second, list):
        if len(first) != len(second):
            return [f"{path}: {len(first)} entries, now {len(second)}"]
        return [
            found
            for index, (a, b) in enumerate(zip(first, second, strict=True))
            for found in differences(a, b, f"{path}[{index}]")
        ]
    if path.endswith("table_sha256"):
        return []  # of one writing of the table; its numbers are compared by themselves
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (first, second))
    same = abs(first - second) <= TOLERANCE if numbers else first == second
    return [] if same else [f"{path.removeprefix('.')}: {first}, now {second}"]


def table_differences(first: str, second: str) -> list[str]:
    """The same for two tables of samples."""

    def rows(text: str) -> list[list[object]]:
        return [[_number(cell) for cell in row] for row in csv.reader(io.StringIO(text))]

    return differences(rows(first), rows(second), "samples.csv")


def _number(cell: str) -> object:
    try:
        return None if math.isinf(float(cell)) else float(cell)
    except ValueError:
        return cell


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
