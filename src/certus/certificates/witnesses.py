"""Witnesses: proposals for the γ that a certificate uses, as ``certus.kernel.check`` reads them.

Moves are stored for samples that the rules "local" and "concave" bound best, and roots where the Lipschitz
rule does; the points of parabolas are stored as moves, too, where a radius or a bound needs them. Moves are
int16 multiples of a unit for each (``in_units``), roots float32; rings and factors of a matrix are float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from certus.certificates.local_bounds import Grid, Labelled, LocalBounds
from certus.certificates.proposals import DISTANCES, in_units, softplus_roots
from certus.kernel import problem as trusted
from certus.kernel.majorants import Parabolas, Tangents, constants, parabolas
from certus.kernel.radial import Neighborhoods, neighborhoods, rival_radii
from certus.kernel.rounding import up
from certus.kernel.rules import DualBounds, Proposal, Rule, dual_bounds, gamma_within

Witnesses = dict[str, Tensor]

_SAME = 1e-10  # relative, of bounds that count as equal
_GAP_RULES = torch.tensor([Rule.LOCAL, Rule.CONCAVE, Rule.ROWS])


def grid_witnesses(edges: Tensor, balls: Sequence[int]) -> Witnesses:
    """Return the edges of the rings, and the indices of the balls."""
    return {"edges": edges, "balls": torch.tensor(balls, dtype=torch.int64)}


def root_witnesses(key: str, around: Neighborhoods, gamma: float, wanted: Tensor) -> Witnesses:
    """Return roots of the Lipschitz rule for the samples of a (n,) mask; empty where it needs none."""
    roots = softplus_roots(around.profile.score, gamma * around.profile.unit_cost)
    return {} if roots is None else {f"{key}.mask": wanted, key: roots[wanted].float()}


def collect(
    parts: Iterable[tuple[trusted.Problem, Witnesses]], grid: Grid
) -> tuple[trusted.Problem, Witnesses]:
    """Return the problem for all samples, and their witnesses, from those of portions
    (``portion_witnesses``)."""
    problems, pieces = zip(*parts, strict=True)
    whole = grid_witnesses(grid.edges, grid.balls)
    for name in dict.fromkeys(name for piece in pieces for name in piece):
        own = [piece[name] for piece in pieces if name in piece]
        shared = name.startswith("factor") or name.endswith((".factors", ".distances"))
        if name.endswith(".mask"):  # of portions without any, too
            blank = own[0].new_zeros(0, *own[0].shape[1:])
            own = [
                piece.get(name, blank.new_zeros(len(problem), *blank.shape[1:]))
                for piece, problem in zip(pieces, problems, strict=True)
            ]
        elif name.endswith(".scale"):
            own = [
                piece.get(name, torch.ones(len(problem), dtype=torch.float32))
                for piece, problem in zip(pieces, problems, strict=True)
            ]
        whole[name] = own[0] if shared else torch.cat(own)
    inputs, targets = (
        torch.cat([getattr(each, name) for each in problems]) for name in ("inputs", "targets")
    )
    used = {name: tensor for name, tensor in whole.items() if not _unused(name, whole)}
    return problems[0].about(inputs, targets), used


def _unused(name: str, whole: Witnesses) -> bool:
    mask = whole.get(f"{name.removesuffix('.mask').removesuffix('.units')}.mask")
    return mask is not None and not bool(mask.any())


def portion_witnesses(
    here: LocalBounds, moves: dict[float, Tensor], limits: Tensor | None = None
) -> Witnesses:
    """Return the witnesses of one portion, from its float32 moves at each γ.

    Args:
        limits: (classes,) costs of predictions that are to be proven at most.
    """
    count, stored = len(here.problem), Witnesses()
    for index, group in here.groups():
        for shift, under in enumerate(group):
            own = {gamma: proposed[shift, index] for gamma, proposed in moves.items()}
            _store_parabolas(stored, under, _needed(here, under, own, limits), index, count, shift)
    for number, (gamma, proposed) in enumerate(moves.items()):
        for shift in range(len(proposed)):
            gap, roots = torch.zeros(count, dtype=torch.bool), torch.zeros(count, dtype=torch.float64)
            lipschitz, rooted = gap.clone(), False
            for index, group in here.groups():
                under = group[shift]
                rule = _bounds(under, under.around, gamma, proposed[shift, index], here.clip).rule
                gap[index], lipschitz[index] = torch.isin(rule, _GAP_RULES), rule == Rule.LIPSCHITZ
                own_roots = _roots(under, under.around, gamma)
                if own_roots is not None:
                    rooted, roots[index] = True, own_roots
            key = f"{number}.{shift}.moves"
            stored[f"{key}.mask"] = gap
            stored[key], stored[f"{key}.units"] = in_units(proposed[shift][gap].double())
            if rooted:
                stored[f"{number}.{shift}.roots.mask"] = lipschitz
                stored[f"{number}.{shift}.roots"] = roots[lipschitz].float()
    return stored


def _roots(under: Labelled, around: Neighborhoods, gamma: float) -> Tensor | None:
    profile = around.profile
    return softplus_roots(profile.score, gamma_within(gamma, under.weight) * profile.unit_cost)


def _bounds(
    under: Labelled, around: Neighborhoods, gamma: float, moves: Tensor, clip: float | None
) -> DualBounds:
    problem, roots = under.problem.kernel, _roots(under, around, gamma)
    points = problem.inputs + moves.double()
    proposal = Proposal.at(problem, gamma_within(gamma, under.weight), points)
    return dual_bounds(around, gamma, proposal, roots, under.weight, clip)


def _needed(
    here: LocalBounds, under: Labelled, moves: dict[float, Tensor], limits: Tensor | None
) -> dict[str, Tangents]:
    """Return the parabolas without those at points that change neither a certified radius, nor that of a
    rival up to its limit, nor, by more than 10⁻¹⁰, a bound at these γ."""
    around, problem, values = under.around, under.problem.kernel, under.around.values
    if "tangent" not in under.tangents or around.radii is None:
        return under.tangents
    profile, classes = around.profile, torch.arange(problem.classes or 0)

    def radii(kept: Tensor) -> Tensor:
        """(n, classes) with the parabolas of some margins, (n, classes) bool."""
        sets = [
            replace(
                ball,
                parabolas=tuple(
                    each if own else _some(each, kept)
                    for own, each in zip(centered, ball.parabolas, strict=True)
                ),
            )
            for ball in around.balls
        ]
        return rival_radii(problem, values, sets, profile.edges)

    centered = [name == "centered" for name in under.tangents]
    every = torch.ones_like(values.margins, dtype=torch.bool)
    ends = torch.zeros(()) if limits is None or not len(limits) else (limits / problem.unit_cost).sqrt()
    wanted = torch.minimum(around.radii, torch.maximum(ends, around.radii.amin(1, keepdim=True)))
    kept = torch.stack([radii(every & (classes != one))[:, one] < wanted[:, one] for one in classes], 1)
    start = bounds = constants(problem, values)
    for each in _selected(under.tangents, kept).values():
        bounds = bounds.beside(parabolas(problem, values, start, each))
    fewer = neighborhoods(problem, values, bounds, profile.edges, here.grid.balls, profile.clip)
    assert fewer.radii is not None
    looser = (fewer.radii < wanted).any(1)
    for gamma, move in moves.items():
        both = (_bounds(under, each, gamma, move, here.clip).bound for each in (fewer, around))
        looser |= ~(next(both) <= up(next(both), _SAME))
    return _selected(under.tangents, kept | looser.unsqueeze(1))


def _some(parabola: Parabolas, kept: Tensor) -> Parabolas:
    """Return parabolas of the kept margins alone; the others are infinite."""
    rise, coefficient = (
        torch.where(kept.unsqueeze(2), each, math.inf) for each in (parabola.rise, parabola.coefficient)
    )
    return replace(parabola, rise=rise, coefficient=coefficient)


def _selected(proposed: dict[str, Tangents], kept: Tensor) -> dict[str, Tangents]:
    """Return the parabolas of some margins, (n, classes) bool, and all centred ones."""
    selected = {}
    for name, tangents in proposed.items():
        own = kept[tangents.sample, tangents.rival] | (name == "centered")
        parts = {each: getattr(tangents, each)[own] for each in ("sample", "rival", "point", "distances")}
        if bool(own.any()):
            selected[name] = replace(tangents, **parts)
    return selected


def _store_parabolas(
    stored: Witnesses,
    under: Labelled,
    proposed: dict[str, Tangents],
    index: Tensor,
    count: int,
    shift: int,
) -> None:
    """Store masks of the margins with parabolas, multipliers, and points as moves in units."""
    classes = under.problem.classes or 0
    for kind, tangents in proposed.items():
        mask = stored.setdefault(f"{kind}.{shift}.mask", torch.zeros(count, classes, dtype=torch.bool))
        sample, rival = tangents.sample, tangents.rival
        before = mask.clone()
        mask[index[sample], rival] = True
        stored[f"{kind}.factors"] = tangents.factors
        if tangents.factor is not None:
            stored["factor.left"], stored["factor.right"] = tangents.factor
        if kind == "centered":
            scale = stored.setdefault(f"{kind}.{shift}.scale", torch.ones(count, dtype=torch.float32))
            stored[f"{kind}.distances"] = DISTANCES
            scale[index[sample]] = (tangents.distances[:, 0] / DISTANCES[0]).float()
        elif kind == "tangent":
            # In float32 the difference is the multiple of its unit that was added.
            new = in_units((tangents.point - under.problem.inputs[sample]).float().double())
            place = mask.flatten().cumsum(0).reshape(mask.shape) - 1
            for name, part in zip(("tangent.moves", "tangent.moves.units"), new, strict=True):
                numbers = part.new_zeros(int(mask.sum()), *part.shape[1:])
                numbers[place[before]], numbers[place[index[sample], rival]] = (
                    stored.get(name, part[:0]),
                    part,
                )
                stored[name] = numbers
