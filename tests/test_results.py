"""No result on file contradicts itself: what was attained is nowhere above what was proven."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(
    path for folder in ("benchmarks/results", "results") for path in (ROOT / folder).rglob("*.json")
)
PAIRS = (
    ("loss_low", "loss_high"),
    ("error_low", "error_high"),
    ("population_loss_low", "population_loss"),
    ("population_error_low", "population_error"),
    ("loss attacked", "loss certified"),
    ("error attacked", "error certified"),
    ("low", "high"),
    ("lower", "upper"),
)


def brackets(content: Any, place: str = "") -> Iterator[tuple[str, float, float]]:
    """Every pair of sides in a JSON document, with its place."""
    if isinstance(content, dict):
        for low, high in PAIRS:
            if isinstance(content.get(low), float | int) and isinstance(content.get(high), float | int):
                yield f"{place}.{low}", content[low], content[high]
    parts = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for name, part in parts:
        yield from brackets(part, f"{place}.{name}")


def crossed(content: Any) -> list[str]:
    return [
        f"{place}: at least {low}, at most {high}" for place, low, high in brackets(content) if low > high
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_bracket_on_file_is_crossed(path: Path) -> None:
    assert crossed(json.loads(path.read_text())) == []


def test_the_brackets_are_found() -> None:
    counts = {
        str(path.relative_to(ROOT)): len(list(brackets(json.loads(path.read_text())))) for path in FILES
    }
    assert counts["benchmarks/results/certificates.json"] >= 4 * 4 * 20
    assert counts["results/smoothing/measured.json"] > 20
    assert counts["results/next-year/measured.json"] > 20


def test_a_crossed_bracket_is_seen() -> None:
    """As one stood in certificates.json, when betting took MNIST's test images in the order of their file."""
    wrong = {"mlp": {"brackets": [{"rho": 0.001, "population_loss_low": 0.3523, "population_loss": 0.3419}]}}
    assert crossed(wrong) == [".mlp.brackets.0.population_loss_low: at least 0.3523, at most 0.3419"]


PAGES = sorted((ROOT / "results").glob("*/measured.json"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.parent.name)
def test_disagreements_with_the_paper_are_explained(path: Path) -> None:
    """In the notes of the page, which are written by hand."""
    content = json.loads(path.read_text())
    if not content.get("beyond", False):
        notes = ROOT / "studies" / "notes" / f"{path.parent.name}.md"
        text = notes.read_text() if notes.exists() else ""
        differ = [one["name"] for one in content["verdicts"] if one["outcome"] != "yes"]
        assert [name for name in differ if f"**{name}**" not in text] == []
