"""Only the kernel makes a number proven: a search of the tree, and what a mark is worth."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from certus import Evidence, certify
from certus.certificates import Problem
from certus.certificates.engine import make_grid
from certus.costs import LabelCost, Masked, SquaredL2, SquaredLp
from certus.domains import Box, Unbounded
from certus.kernel import rules
from certus.kernel.evidence import Result, mark
from certus.kernel.passes import Refused
from certus.kernel.rules import DualBounds, SampleBounds, over_labels
from certus.kernel.statement import PopulationBounds, Statement
from certus.losses import CrossEntropy
from tests.certificates.problems import bounded, network, samples

ROOT = Path(__file__).parents[2]
TREE = [
    path
    for folder in ("src", "studies", "tools")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not path.is_relative_to(ROOT / "src/certus/kernel")
]

MADE = {
    "DualBounds",
    "SampleBounds",
    "ConcavityThreshold",
    "Proposal",
    "Values",
    "Constants",
    "Profile",
    "Neighborhoods",
    "Profiles",
    "TransportBounds",
}
"""Types of the kernel that nothing else constructs; their static methods check what they are given."""


def constructions(source: str) -> Iterator[str]:
    """Names by which a file makes something proven: the word, the mark, or a type of the kernel."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr == "PROVEN":
            yield "PROVEN"
        elif isinstance(node, ast.Attribute) and f"{_name(node.value)}.{node.attr}" == "evidence.mark":
            yield "mark"
        elif isinstance(node, ast.ImportFrom) and node.module == "certus.kernel.evidence":
            yield from (alias.name for alias in node.names if alias.name != "Evidence")
        elif isinstance(node, ast.Call) and _name(node.func) in MADE | {"Evidence"}:
            yield _name(node.func)
        elif isinstance(node, ast.Subscript) and _name(node.value) == "Evidence":
            yield "Evidence"


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_nothing_else_constructs_a_proof() -> None:
    made = {
        str(path.relative_to(ROOT)): set(constructions(path.read_text(encoding="utf-8"))) for path in TREE
    }
    assert {path: names for path, names in made.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("evidence = Evidence.PROVEN", "PROVEN"),
        ("evidence = certus.Evidence.PROVEN", "PROVEN"),
        ("Evidence('proven')", "Evidence"),
        ("Evidence['PROVEN']", "Evidence"),
        ("from certus.kernel.evidence import mark", "mark"),
        ("from certus.kernel.evidence import mark as harmless", "mark"),
        ("evidence.mark(statement)", "mark"),
        ("rules.DualBounds(1.0, bound, rule)", "DualBounds"),
        ("SampleBounds(loss, None, 1.0)", "SampleBounds"),
    ],
)
def test_the_search_sees_it(source: str, name: str) -> None:
    assert name in set(constructions(source))


def bounds(count: int = 3) -> tuple[SampleBounds, DualBounds]:
    ones, about = torch.ones(count, dtype=torch.float64), torch.ones(count, 3, dtype=torch.float64)
    level = DualBounds(2.0, ones, torch.zeros(count, dtype=torch.int64), about=about)
    return mark(SampleBounds(ones, ones, 1.0, about=about)), mark(level)


def test_a_result_without_a_mark_is_stated() -> None:
    sample, level = bounds()
    statement = Statement.of(sample, [level])
    assert statement.evidence is Evidence.PROVEN
    assert copy.deepcopy(statement).evidence is Evidence.PROVEN
    assert replace(statement, clean_loss=0.0).evidence is Evidence.STATED
    assert Statement(samples=3, unit_cost=1.0).evidence is Evidence.STATED
    assumed = Statement.of(sample, [mark(replace(level, assumptions=("a claim",)))])
    assert (assumed.evidence, assumed.assumptions) == (Evidence.ASSUMED, ("a claim",))


def test_bounds_without_a_mark_are_refused() -> None:
    sample, level = bounds()
    people = {"confidence": 0.9, "seed": 0, "clip": 1.0, "inequality": "hoeffding", "claims": {}}
    unmarked: list[tuple[SampleBounds, DualBounds]] = [(replace(sample), level), (sample, replace(level))]
    for first, second in unmarked:
        with pytest.raises(Refused):
            Statement.of(first, [second])
        with pytest.raises(Refused):
            PopulationBounds.of(first, [second], error_claims={}, **people)  # type: ignore[arg-type]
    with pytest.raises(Refused):
        SampleBounds.joined([sample, replace(sample)])
    with pytest.raises(Refused):
        DualBounds.unknown(2.0, 3).fill(slice(0, 3), replace(level))
    stated = PopulationBounds(0.9, 0, 1.0, "hoeffding", {1.0: 0.0})
    with pytest.raises(Refused):
        Statement.of(sample, [level], population=stated)


def test_statements_about_other_samples_are_refused() -> None:
    sample, level = bounds()
    twice = torch.full((3,), 2.0, dtype=torch.float64)
    for change in (
        {"clip": 1.0},
        {"weights": twice},
        {"weights": torch.tensor([3.0, -1.0, 1.0])},
        {"weights": twice[:2]},
    ):
        with pytest.raises(Refused):
            Statement.of(sample, [level], **change)
    with pytest.raises(Refused):
        Statement.of(bounds(4)[0], [level])


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": [[0.5, -0.5]]},
        {"targets": torch.tensor([1])},
        {"cost": SquaredLp(1.5)},
        {"cost": Masked(SquaredL2(), torch.tensor([True, False]))},
        {"domain": Box(-2.0, 2.0)},
        {"model": network("tanh", 2)},
        {"class_weight": 2.0},
    ],
)
def test_bounds_of_another_problem_are_refused(change: dict[str, Any]) -> None:
    """As many samples, clipped alike, are not the same samples under the same cost."""
    about: dict[str, Any] = {
        "model": network("tanh", 1),
        "inputs": [[0.5, 0.25]],
        "targets": torch.tensor([0]),
        "cost": SquaredL2(),
        "domain": Box(-1.0, 1.0),
        "class_weight": 1.0,
    }

    def bounded_at(gamma: float, about: dict[str, Any]) -> tuple[SampleBounds, DualBounds]:
        data = torch.tensor(about["inputs"], dtype=torch.float64), about["targets"]
        problem = Problem.of(about["model"], data, CrossEntropy(), about["cost"], about["domain"])
        around, weight = bounded(problem, make_grid(problem, [0.1], [2.0], 1)), about["class_weight"]
        within = rules.gamma_within(gamma, weight)
        proposal = rules.Proposal.at(problem.kernel, within, problem.inputs)
        level = rules.dual_bounds(around, gamma, proposal, weight=weight)
        return SampleBounds.at(around, weight), level

    sample, level = bounded_at(2.0, about)
    other = bounded_at(1.0, about | change)[1]
    assert Statement.of(sample, [level, bounded_at(1.0, about)[1]]).evidence is Evidence.PROVEN
    people: dict[str, Any] = {"confidence": 0.9, "seed": 0, "clip": 1.0, "inequality": "hoeffding"}
    with pytest.raises(Refused, match="about the same samples"):
        Statement.of(sample, [level, other])
    with pytest.raises(Refused, match="about the same samples"):
        PopulationBounds.of(sample, [level, other], claims={}, error_claims={}, **people)


def test_a_population_is_that_of_the_samples() -> None:
    """Bounds of a population belong to the samples that they were computed from, not to as many others."""
    sample, level = bounds()
    other = mark(replace(sample, loss=sample.loss + 1))
    about: dict[str, Any] = {"confidence": 0.9, "seed": 0, "clip": 1.0, "inequality": "hoeffding"}
    people = PopulationBounds.of(sample, [level], claims={}, error_claims={}, **about)
    assert Statement.of(sample, [level], population=people).evidence is Evidence.PROVEN
    for forged in (people, mark(replace(people, samples=None))):
        with pytest.raises(Refused, match="about the same samples"):
            Statement.of(other, [level], population=forged)


def test_what_is_not_filled_is_not_bounded() -> None:
    sample, level = bounds()
    whole = DualBounds.unknown(2.0, 4)
    whole.fill(slice(0, 3), level)
    with pytest.raises(Refused):
        Statement.of(bounds(4)[0], [whole])
    whole.fill(slice(3, 4), bounds(1)[1])
    assert Statement.of(bounds(4)[0], [whole]).loss(0.1)[0] == pytest.approx(1 + 2 * 0.1, rel=1e-11)
    for part in (
        mark(replace(level, gamma=1.0)),
        mark(replace(level, clip=1.0)),
        mark(replace(level, assumptions=("a",))),
    ):
        with pytest.raises(Refused):
            whole.fill(slice(0, 3), part)
    assert sample.evidence is Evidence.PROVEN


def test_no_label_is_left_out() -> None:
    """Where labels have a price, the bounds under one label, or under some, are no bounds."""
    data, price = samples(1, 6), LabelCost(0.1, 3)
    own = Problem.of(network("tanh", 1), data, CrossEntropy(), SquaredL2(), Unbounded(), price)
    parts = []
    for problem in (own, own.relabelled(1), own.relabelled(2)):
        proposal = rules.Proposal.at(problem.kernel, 2.0, problem.inputs)
        around = bounded(problem, make_grid(problem, [0.1], [2.0], 1))
        parts.append(rules.dual_bounds(around, 2.0, proposal))
    whole = over_labels(parts[0], parts[1:])
    assert bool((whole.bound >= parts[0].bound).all())
    assert bool((whole.bound >= parts[1].bound - 2.0 * 0.1).all())
    DualBounds.unknown(2.0, 6).fill(slice(0, 6), whole)
    with pytest.raises(Refused, match="leave out labels"):
        DualBounds.unknown(2.0, 6).fill(slice(0, 6), parts[0])
    for others in (parts[1:2], [parts[1], parts[1]], [], [parts[1], replace(parts[2])]):
        with pytest.raises(Refused):
            over_labels(parts[0], others)


def test_a_certificate_that_was_read_is_stated(tmp_path: Path) -> None:
    certificate = certify(network("tanh", 1), samples(1, 10), rho=0.1, confidence=0.9, progress=False)
    assert certificate.evidence is Evidence.PROVEN
    certificate.save(tmp_path / "certificate.json")
    read = type(certificate).load(tmp_path / "certificate.json")
    assert read.evidence is Evidence.STATED
    assert "stated" in repr(read)
    assert "stated in the file, not re-checked" in " ".join(str(read).split())
    assert read.bracket(0.1) == certificate.bracket(0.1)
    read.save(tmp_path / "again.json")
    assert type(certificate).load(tmp_path / "again.json").evidence is Evidence.STATED


def test_every_result_of_the_kernel_has_the_mark() -> None:
    assert {each.__name__ for each in Result.__subclasses__()} == {
        *("DualBounds", "SampleBounds", "PopulationBounds", "Profiles", "Statement"),
        *("SmoothedStatement", "ConcavityThreshold", "ChangeBounds", "TransportBounds"),
    }
