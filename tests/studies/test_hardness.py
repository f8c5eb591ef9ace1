"""The network of a formula against the formula itself and points inside the box; what is said of it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from studies.hardness import (
    STUDY,
    Clause,
    ascended_value,
    clauses_held,
    formula_network,
    largest_value,
    random_formula,
    vertices,
)
from studies.study import Outcome, Scale
from studies.workspace import Workspace


def satisfied(formula: list[Clause], truth: tuple[bool, ...]) -> int:
    return sum(any(truth[abs(one) - 1] == (one > 0) for one in clause) for clause in formula)


@pytest.mark.parametrize("seed", range(5))
def test_a_vertex_counts_the_clauses_that_hold(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    formula = random_formula(5, 12, generator)
    network = formula_network(formula, 5)
    counted = []
    for truth in itertools.product((False, True), repeat=5):
        point = torch.tensor([truth], dtype=torch.float64)
        assert network(point).item() == pytest.approx(satisfied(formula, truth), abs=1e-9)
        counted.append(satisfied(formula, truth))
    assert largest_value(network, 5) == pytest.approx(max(counted), abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_no_point_inside_the_box_is_better(seed: int) -> None:
    """Not on a grid, and not where ascents end: without the penalty on fractions both would find
    such points."""
    generator = torch.Generator().manual_seed(seed)
    formula = random_formula(4, 17, generator)
    network, most = formula_network(formula, 4), largest_value(formula_network(formula, 4), 4)
    axis = torch.linspace(0, 1, 11, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis, axis, axis)
    assert network(grid).max().item() <= most + 1e-9
    origin = torch.rand(50, 4, generator=generator, dtype=torch.float64)
    assert ascended_value(formula, 4, origin) <= most + 1e-9


def test_with_the_whole_penalty_an_ascent_only_rounds_its_start() -> None:
    """And with one that is raised from 0 it finds what guesses miss."""
    gains = 0.0
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        formula = random_formula(14, 60, generator)
        origin = torch.rand(10, 14, generator=generator, dtype=torch.float64)
        guess = clauses_held(formula, origin.round()).max().item()
        assert ascended_value(formula, 14, origin, strengths=[1.0]) == pytest.approx(guess)
        gains += ascended_value(formula, 14, origin) - guess
    assert gains >= 10


def test_clauses_are_counted_as_by_hand() -> None:
    formula = random_formula(5, 12, torch.Generator().manual_seed(0))
    counted = clauses_held(formula, vertices(5)).tolist()
    assert counted == [satisfied(formula, tuple(bool(one) for one in row)) for row in vertices(5).tolist()]


def test_a_contradiction_cannot_be_satisfied() -> None:
    """All eight sign patterns over three variables: exactly one clause fails, whatever is chosen."""
    formula = [(a, 2 * b, 3 * c) for a, b, c in itertools.product((1, -1), repeat=3)]
    assert largest_value(formula_network(formula, 3), 3) == pytest.approx(7)


def test_vertices_are_all_corners() -> None:
    assert len({tuple(row) for row in vertices(4).tolist()}) == 16


def formulas(variables: int, starts: int, *rows: tuple[int, float, float, int]) -> dict[str, Any]:
    """(clauses that hold at once, the network's largest value, what ascents find, what guesses find)."""
    names = ("held", "most", "ascent", "guess")
    made = [{"clauses": 9, **dict(zip(names, row, strict=True))} for row in rows]
    return {"variables": variables, "starts": starts, "formulas": made}


@pytest.mark.parametrize(("most", "right"), [(8.0, 4), (8.5, 3)])
def test_formulas_are_counted_once(most: float, right: int) -> None:
    """Two of each size, whatever the number of starts; one that is wrong anywhere is wrong."""
    alike = [(9, 9.0, 9.0, 8), (8, 8.0, 7.0, 6)]
    measured = {
        "a": formulas(6, 10, *alike),
        "b": formulas(6, 1, *alike),
        "c": formulas(4, 10, (9, 9.0, 9.0, 9), (8, most, 8.0, 8)),
        "d": formulas(4, 1, *alike),
    }
    network, hard = STUDY.verdicts(measured)
    assert network.outcome is (Outcome.YES if right == 4 else Outcome.NO)
    assert [one.value for one in network.ours.values()] == [4, right]
    assert hard.outcome is Outcome.NOT_COMPARABLE
    assert [one.value for one in hard.ours.values()] == [6, 10, 0.5, 1.0]


def test_more_starts_have_the_same_formulas(tmp_path: Path) -> None:
    """What the count above rests on."""
    part = STUDY.parts(Scale.QUICK)[0]
    few, many = (
        part.measure(Workspace(tmp_path), {"variables": 4, "formulas": 3, "starts": starts})["formulas"]
        for starts in (1, 5)
    )
    assert [(row["held"], row["most"]) for row in few] == [(row["held"], row["most"]) for row in many]
