"""Finding the worst perturbation of a ReLU network is as hard as 3-SAT (thm:nphard).

A formula of clauses over v variables becomes a network with one layer of ReLUs on the box [0, 1]ᵛ:

    ℓ(u) = Σ_c [1 − relu(1 − Σ_{l ∈ c} l(u))] − K Σ_i [relu(u_i) − relu(2u_i − 1)]

A literal l(u) is u_i or 1 − u_i, so a bracket is min(1, Σ l) on the box: at a vertex 1 if the clause holds,
and 0 if it fails. The second sum is Σ min(u_i, 1 − u_i). Each clause changes by at most 1 per unit of u_i, so
with K above the number of clauses that any variable is in, ℓ falls in u_i up to ½ and rises from there: every
maximum over the box is at a vertex, and

    max_u ℓ(u) = the largest number of clauses that can hold at once.

To maximise ℓ is to decide whether the formula can be satisfied. The network has 2v + C units and entries
of polynomial size, so the problem is NP-hard. Small ones are solved by trying all vertices.

Ascents are put beside it. With all of K the gradient only says on which side of ½ a point is, and an ascent
rounds its own start: a guess. So K is raised from 0 while the ascent goes on, which lets the clauses speak
first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from certus.attacks.projected_gradient_descent import IFGM
from certus.display.canvas import COLOURS, new_figure
from certus.domains import Box
from certus.kernel.evidence import Evidence
from studies.study import Measured, Outcome, Part, Picture, Quantity, Scale, Study, Verdict, outcome_of
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATIO = 4.26
"""Clauses per variable at which random 3-SAT is hardest: half of the formulas can be satisfied."""

_RAISED = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
"""Of K, one ascent after the other."""

Clause = tuple[int, int, int]
"""Three literals: i + 1 for variable i, −(i + 1) for its negation."""


def random_formula(variables: int, clauses: int, generator: torch.Generator) -> list[Clause]:
    """Draw clauses of three different variables each, with random signs."""
    formula = []
    for _ in range(clauses):
        chosen = torch.randperm(variables, generator=generator)[:3] + 1
        signs = 2 * torch.randint(2, (3,), generator=generator) - 1
        first, second, third = (chosen * signs).tolist()
        formula.append((first, second, third))
    return formula


def clauses_held(formula: list[Clause], truths: Tensor) -> Tensor:
    """Count the clauses that hold, by logic alone: (batch, variables) of 0 and 1 → (batch,)."""
    literals = torch.tensor(formula)
    chosen = truths.bool()[:, literals.abs() - 1]  # (batch, clauses, 3)
    return (chosen == (literals > 0)).any(2).sum(1)


def formula_network(formula: list[Clause], variables: int, strength: float = 1.0) -> nn.Sequential:
    """Build ℓ of the formula, as above: (batch, variables) → (batch, 1).

    Args:
        strength: the factor of K, 1 for the network above.
    """
    counts = torch.zeros(variables, dtype=torch.float64)
    for literal in itertools.chain.from_iterable(formula):
        counts[abs(literal) - 1] += 1
    penalty = strength * (counts.max().item() + 1)
    units = len(formula) + 2 * variables
    inside, outside = nn.Linear(variables, units).double(), nn.Linear(units, 1).double()
    weight, bias = torch.zeros(units, variables, dtype=torch.float64), torch.zeros(units, dtype=torch.float64)
    for row, clause in enumerate(formula):
        bias[row] = 1
        for literal in clause:  # 1 − Σ l, where l = u or 1 − u
            weight[row, abs(literal) - 1] -= 1 if literal > 0 else -1
            bias[row] -= 0 if literal > 0 else 1
    for i in range(variables):
        weight[len(formula) + i, i] = 1
        weight[len(formula) + variables + i, i], bias[len(formula) + variables + i] = 2, -1
    ends = [-torch.ones(len(formula)), -penalty * torch.ones(variables), penalty * torch.ones(variables)]
    with torch.no_grad():
        inside.weight.copy_(weight)
        inside.bias.copy_(bias)
        outside.weight.copy_(torch.cat(ends).double().unsqueeze(0))
        outside.bias.fill_(len(formula))
    return nn.Sequential(inside, nn.ReLU(), outside)


def vertices(variables: int) -> Tensor:
    """Return the (2ᵛ, v) corners of the box."""
    numbers = torch.arange(2**variables).unsqueeze(1)
    return ((numbers >> torch.arange(variables)) & 1).double()


def largest_value(network: nn.Module, variables: int) -> float:
    """Return max_u ℓ over the box, by trying every vertex."""
    with torch.no_grad():
        return max(float(network(part).max()) for part in vertices(variables).split(2**14))


def ascended_value(
    formula: list[Clause], variables: int, origin: Tensor, strengths: Sequence[float] = _RAISED
) -> float:
    """Return the best ℓ that projected ascents in the box attain, while K is raised in these steps."""
    climb, moved = IFGM(1.0, math.inf, steps=40, step_size=0.1, domain=Box(0.0, 1.0)), origin
    for strength in strengths:
        raised = formula_network(formula, variables, strength)
        moved = climb(lambda inputs, network=raised: network(inputs).squeeze(1), moved)
    network = formula_network(formula, variables)
    with torch.no_grad():
        rounded = moved.round()  # a vertex may be better than the point beside it
        return max(float(network(moved).max()), float(network(rounded).max()))


def _measure(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    variables, rows = settings["variables"], []
    for seed in range(settings["formulas"]):
        generator = torch.Generator().manual_seed(1000 * variables + seed)
        formula = random_formula(variables, round(RATIO * variables), generator)
        origin = torch.rand(settings["starts"], variables, generator=generator, dtype=torch.float64)
        counted = max(clauses_held(formula, part).max().item() for part in vertices(variables).split(2**14))
        rows.append(
            {
                "clauses": len(formula),
                "held": counted,
                "most": largest_value(formula_network(formula, variables), variables),
                "ascent": ascended_value(formula, variables, origin),
                "guess": clauses_held(formula, origin.round()).max().item(),
            }
        )
    return {"variables": variables, "starts": settings["starts"], "formulas": rows}


def _parts(scale: Scale) -> list[Part]:
    sizes = (4, 6, 8, 10) if scale is Scale.QUICK else (4, 6, 8, 10, 12, 14, 16, 18)
    formulas = 10 if scale is Scale.QUICK else 50
    starts = (1, 10) if scale is Scale.QUICK else (1, 10, 100)
    return [
        Part(
            f"{size}-variables-{start}-starts",
            {"variables": size, "formulas": formulas, "starts": start},
            _measure,
            effort=2.0**size + 20 * start,
        )
        for size in sizes
        for start in starts
    ]


def _missed(result: Mapping[str, Any], by: str = "ascent") -> float:
    rows = result["formulas"]
    return sum(bool(row[by] < row["most"] - 1e-6) for row in rows) / len(rows)


def _of_starts(measured: Measured, starts: int) -> list[Mapping[str, Any]]:
    """Return the measurements with this number of starts, by rising size of the formula."""
    chosen = (result for result in measured.values() if result["starts"] == starts)
    return sorted(chosen, key=lambda result: float(result["variables"]))


def _draw(measured: Measured) -> Figure:
    figure = new_figure(5.2, 3.8)
    axes = figure.subplots()
    starts = sorted({result["starts"] for result in measured.values()})
    for colour, count in zip(COLOURS, starts, strict=False):
        chosen = _of_starts(measured, count)
        sizes, missed = (
            [start["variables"] for start in chosen],
            [100 * _missed(start) for start in chosen],
        )
        words = "one ascent" if count == 1 else f"best of {count} ascents"
        axes.plot(sizes, missed, marker="o", color=colour, label=words)
    guessed = [100 * _missed(start, "guess") for start in _of_starts(measured, starts[-1])]
    axes.plot(sizes, guessed, "--", color="#5f5f5f", label=f"best of {starts[-1]} guesses")
    axes.set(xlabel="variables of the formula = inputs of the network", ylim=(-3, 103))
    axes.set_ylabel("maxima missed (% of the formulas)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return figure


def _formulas(measured: Measured) -> tuple[int, int]:
    """Count the formulas, and those whose network has the right maximum.

    A formula is drawn before the points that ascents start from: each number of starts has the same ones.
    """
    right: dict[tuple[int, int], bool] = {}
    for result in measured.values():
        for number, row in enumerate(result["formulas"]):
            formula = (result["variables"], number)
            right[formula] = right.get(formula, True) and abs(row["most"] - row["held"]) < 1e-6
    return len(right), sum(right.values())


def _verdicts(measured: Measured) -> list[Verdict]:
    most = max(result["starts"] for result in measured.values())
    hardest = _of_starts(measured, most)[-1]
    total, equal = _formulas(measured)
    return [
        Verdict(
            name="reduction",
            label="thm:nphard",
            claim="Maximising a ReLU network over a box is NP-hard, for some weights.",
            rule="for every formula, a largest value of its network equal to the largest number of clauses "
            "that hold at once, counted without the network",
            outcome=outcome_of(equal == total),
            ours={"formulas": Quantity(total, places=0), "equal": Quantity(equal, places=0)},
            evidence=Evidence.ATTAINED,
        ),
        Verdict(
            name="ascents",
            label="sec:nphard",
            claim="Smoothness matters: worst perturbations of ReLU networks cannot be found efficiently.",
            rule="",
            outcome=Outcome.NOT_COMPARABLE,
            ours={
                "variables": Quantity(hardest["variables"], places=0),
                "starts": Quantity(most, places=0),
                "maxima missed by the best ascent": Quantity(_missed(hardest), places=0, percent=True),
                "by the best guess": Quantity(_missed(hardest, "guess"), places=0, percent=True),
            },
            evidence=Evidence.ATTAINED,
        ),
    ]


STUDY = Study(
    name="hardness",
    title="Worst perturbations of ReLU networks: as hard as 3-SAT",
    labels=("thm:nphard", "sec:nphard"),
    minutes={Scale.QUICK: 0.3, Scale.FULL: 5},
    revision=2,
    parts=_parts,
    pictures=(
        Picture("missed", "How often ascents miss the maximum of a 3-SAT network, by its size.", _draw),
    ),
    verdicts=_verdicts,
)
