"""Witnesses: proposals for the γ that a certificate uses, as ``certus.kernel.check`` reads them.

Moves are stored for samples that the rules "local" and "concave" bound best, and roots where the Lipschitz
rule does; the points of parabolas are stored as moves, too. All of these are float32; rings and the factors
of a matrix are float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from certus.certificates.local_bounds import Grid, Labelled, LocalBounds
from certus.certificates.proposals import DISTANCES, softplus_roots
from certus.kernel import problem as trusted
from certus.kernel.radial import Neighborhoods
from certus.kernel.rules import Proposal, Rule, dual_bounds, gamma_within

Witnesses = dict[str, Tensor]

_GAP_RULES = torch.tensor([Rule.LOCAL, Rule.CONCAVE])


def grid_witnesses(edges: Tensor, balls: Sequence[int]) -> Witnesses:
    """Edges of the rings, and indices of the balls."""
    return {"edges": edges, "balls": torch.tensor(balls, dtype=torch.int64)}


def root_witnesses(key: str, around: Neighborhoods, gamma: float, wanted: Tensor) -> Witnesses:
    """Roots of the Lipschitz rule for (n,) some of the samples; nothing where it needs none."""
    roots = softplus_roots(around.profile.score, gamma * around.profile.unit_cost)
    return {} if roots is None else {f"{key}.mask": wanted, key: roots[wanted].float()}


def collect(
    parts: Iterable[tuple[LocalBounds, Callable[[float], Tensor]]], grid: Grid, gammas: Sequence[float]
) -> tuple[trusted.Problem, Witnesses]:
    """The problem about all samples, and the witnesses for these γ.

    Args:
        parts: bounds around portions of the samples, each with its float32 moves at γ.
    """
    pieces: list[Witnesses] = []
    problems = []
    for here, moves_at in parts:
        problems.append(here.problem.kernel)
        pieces.append(_portion(here, {gamma: moves_at(gamma) for gamma in gammas}))
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
    return replace(problems[0], inputs=inputs, targets=targets), used


def _unused(name: str, whole: Witnesses) -> bool:
    mask = whole.get(f"{name.removesuffix('.mask')}.mask")
    return mask is not None and not bool(mask.any())


def _portion(here: LocalBounds, moves: dict[float, Tensor]) -> Witnesses:
    count, stored = len(here.problem), Witnesses()
    for index, group in here.groups():
        for shift, under in enumerate(group):
            _store_parabolas(stored, under, index, count, shift)
    for number, (gamma, proposed) in enumerate(moves.items()):
        for shift in range(len(proposed)):
            gap, roots = torch.zeros(count, dtype=torch.bool), torch.zeros(count, dtype=torch.float64)
            lipschitz, rooted = gap.clone(), False
            for index, group in here.groups():
                under = group[shift]
                around, problem = under.around, under.problem.kernel
                within = gamma_within(gamma, under.weight)
                points = problem.inputs + proposed[shift, index].double()
                own = softplus_roots(around.profile.score, within * around.profile.unit_cost)
                proposal = Proposal.at(problem, within, points)
                rule = dual_bounds(around, gamma, proposal, own, under.weight, here.clip).rule
                gap[index], lipschitz[index] = torch.isin(rule, _GAP_RULES), rule == Rule.LIPSCHITZ
                if own is not None:
                    rooted, roots[index] = True, own
            stored |= {f"{number}.{shift}.moves.mask": gap, f"{number}.{shift}.moves": proposed[shift][gap]}
            if rooted:
                stored[f"{number}.{shift}.roots.mask"] = lipschitz
                stored[f"{number}.{shift}.roots"] = roots[lipschitz].float()
    return stored


def _store_parabolas(stored: Witnesses, under: Labelled, index: Tensor, count: int, shift: int) -> None:
    """Masks of the margins with parabolas, multipliers, and the points as float32 moves."""
    classes = under.problem.classes or 0
    for kind, tangents in under.tangents.items():
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
            new = (tangents.point - under.problem.inputs[sample]).float()
            old = stored.get("tangent.moves", new[:0])
            moves = new.new_zeros(int(mask.sum()), *new.shape[1:])
            place = mask.flatten().cumsum(0).reshape(mask.shape) - 1
            moves[place[before]], moves[place[index[sample], rival]] = old, new
            stored["tangent.moves"] = moves
