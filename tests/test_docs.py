"""The documentation is true: its paths exist, its links lead somewhere, its tables agree with the code."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

import certus
from certus import Box, SquaredL2
from certus.costs import Bregman, Cost, Mahalanobis, Masked, SquaredLp, SquaredSup, WeightedL2
from certus.domains import Ball, Unbounded
from certus.errors import UnsupportedError

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_paper_map_names_files_that_exist() -> None:
    text = (ROOT / "docs/paper_map.md").read_text()
    paths = set(re.findall(r"`((?:src|tests|studies|tools|benchmarks|examples|docs)/[^`]+)`", text))
    assert len(paths) > 20
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_the_paper_map_has_four_cells_in_every_row() -> None:
    rows = [line for line in (ROOT / "docs/paper_map.md").read_text().splitlines() if line.startswith("|")]
    assert len(rows) > 200
    assert not [row for row in rows if row.count(" | ") != 3 and not row.startswith("|---")]


def documented_support() -> dict[str, list[str]]:
    """The table of the guide: name of the cost → what is said of Unbounded, Box and Ball."""
    rows = re.findall(
        r"^\| `(\w+)\(.*\)` \| (\w+) \| (\w+) \| (\w+) \|$", (ROOT / "docs/guide.md").read_text(), re.M
    )
    return {name: list(cells) for name, *cells in rows}


COSTS: list[Cost] = [
    SquaredL2(),
    WeightedL2(torch.ones(2)),
    Mahalanobis(torch.eye(2)),
    SquaredLp(1.5),
    SquaredSup(),
    Bregman(lambda z: (z**2).sum(1), 2.0),
    Masked(SquaredL2(), torch.tensor([True, False])),
]


@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: type(cost).__name__)
def test_the_table_of_costs_and_domains(cost: Cost) -> None:
    found = []
    for domain in (Unbounded(), Box(0, 1), Ball(0.0, 1.0)):
        try:
            found.append(cost.support(domain).value)
        except UnsupportedError:
            found.append("refused")
    assert documented_support()[type(cost).__name__] == found


def test_the_table_names_every_cost() -> None:
    assert set(documented_support()) == {type(cost).__name__ for cost in COSTS}


def test_the_guide_lists_what_is_at_the_top() -> None:
    listed = re.findall(r"^\| `certus\.(\w+)` \| ", (ROOT / "docs/guide.md").read_text(), re.M)
    assert sorted(listed) == sorted(certus.__all__)
    assert all(hasattr(certus, name) for name in listed)


@pytest.mark.parametrize("name", [name for name in certus.__all__ if name.islower()])
def test_every_part_lists_what_may_be_relied_on(name: str) -> None:
    part = getattr(certus, name)
    if isinstance(part, ModuleType):
        assert len(set(part.__all__)) == len(part.__all__) > 0
        assert all(hasattr(part, each) and not each.startswith("_") for each in part.__all__)


@pytest.mark.parametrize("name", ["nonsense", "math", "_Missing"])
def test_other_names_are_unknown(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'certus' has no attribute '{name}'"):
        getattr(certus, name)
