"""Merge certificates of disjoint parts of a sample into one of their union.

The mean of the parts' bounds is no bound for the union: a shift may spend all of ρ in one part. Parts are
merged at a common γ, and the knapsack spends ρ over all of their samples (``certus.kernel.statement``). So
the parts need the same grid of γ: one that depends on ρ, the cost and the model alone (``gamma_rounds=0``).

From below, moved samples of all parts at one γ, or by attacks of one ρ, are moved samples of the union. A
population's lower side of the loss is not merged: the parts' failures would add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from certus.certificates.batching import repeats, row_keys
from certus.certificates.certificate import Certificate, SampleMover
from certus.certificates.confidence import dkw, error_gammas, error_means
from certus.certificates.dual_values import AttackAggregate, DualAggregate
from certus.certificates.engine import Engine, budget_range
from certus.certificates.files import given_rows, read_content
from certus.certificates.graph_files import describe_problem
from certus.certificates.local_bounds import Grid
from certus.certificates.population import Move, Population
from certus.certificates.witnesses import Witnesses, collect
from certus.data import Samples, Shard, random_order
from certus.errors import ArgumentError, UnsupportedError, require
from certus.kernel import problem as trusted
from certus.kernel.check import FILES, ROWS, digest_rows, sibling
from certus.kernel.files import build_problem, parse_object, parse_tensors, read_bytes
from certus.kernel.passes import Refused
from certus.kernel.rounding import FEW
from certus.kernel.statement import Statement, failure_shares
from certus.storage.tensors import digest

_SAME = {
    "rhos": "rho",
    "epsilons": "epsilon",
    "classes": "number of classes",
    "class_weights": "class weights",
    "labels": "labels",
    "clip": "clip",
    "deployment": "deployment",
}
_QUESTION = ("problem", "weights", "source")  # digests of a run


def merge_certificates(
    parts: Sequence[Certificate], rows: Sequence[Samples | None] | None = None
) -> Certificate:
    """Merge certificates; see ``Certificate.merge``.

    Args:
        rows: the certified samples of parts that were read from files, as far as they are at hand.
    """
    parts = list(parts)
    require(len(parts) > 0, "parts", "hold at least one certificate", "none")
    first = parts[0]
    for number, part in enumerate(parts, 1):
        if part.no_proof is not None or part.weights is not None:
            raise UnsupportedError(
                f"Part {_name(part, number)} cannot be merged: it has "
                + ("samples with weights." if part.no_proof is None else "no upper bound of the loss.")
            )
        for attribute, words in _SAME.items():
            own, other = getattr(first, attribute), getattr(part, attribute)
            rule = f"answer one question: part {_name(part, number)} has another {words} than part 1"
            require(own == other, "parts", rule, f"{other} and {own}")
        rule = "be about one model, cost and domain"
        require(_identity(part) == _identity(first), "parts", rule, f"others in part {_name(part, number)}")
    parts, rows = _in_order(parts, rows)
    sources = [_Source.of(part, own) for part, own in zip(parts, rows, strict=True)]
    _refuse_overlaps(parts, sources)
    statement = _statement(parts)
    if not statement.means:
        raise ArgumentError(
            "`parts` must share values of gamma, which they are merged at; they have none in common. Certify "
            "all of them with the same `rho` and `gamma_rounds=0`, or the same `gammas`."
        )
    return replace(
        join_certificates(parts, statement),
        about=_about(parts),
        source=_Sources(tuple(sources)),
        lower_stated=any(part.file is not None for part in parts),
        file=None,
    )


def join_certificates(parts: Sequence[Certificate], statement: Statement | None = None) -> Certificate:
    """Join certificates of disjoint samples that answer one question, without a source."""
    statement = _statement(parts) if statement is None else statement
    first, costs = parts[0], [part.attained_error_cost for part in parts]
    labels = [part.attained_label for part in parts]
    return replace(
        first,
        statement=statement,
        aggregates=tuple(_aggregate(parts, gamma) for gamma in statement.means),
        attacks=tuple(_attacks(parts)),
        attained_clean_loss=_mean(parts, [part.attained_clean_loss for part in parts], -1),
        attained_error_cost=None if first.attained_error_cost is None else _joined(costs),
        attained_label=_joined(labels) if None not in labels else None,
        population=_population(parts, statement),
        dual_values=(),
        differing_predictions=sum(part.differing_predictions for part in parts),
        source=None,
    )


def _name(part: Certificate, number: int) -> str:
    return f"{number} ({part.file})" if part.file is not None else f"{number}"


def _identity(part: Certificate) -> object:
    """Digest of the model, the cost and the domain."""
    if isinstance(part.source, Engine):
        description, tensors = describe_problem(part.source.problem.kernel)
        return digest(tensors, str(description))
    if part.file is None:
        raise UnsupportedError("Only certificates of networks, fresh or from files, can be merged.")
    try:
        paths = [sibling(part.file, name) for name in FILES[:2]]
        description, tensors = parse_object(read_bytes(paths[0])), parse_tensors(read_bytes(paths[1]))
    except Refused as reason:
        raise UnsupportedError(
            f"{part.file} cannot be merged, since the file of its network is missing: {reason}."
        ) from None
    return digest(tensors, str(description))


def _shard(part: Certificate) -> tuple[int, int] | None:
    """The number of a shard, from 1, and of all of them."""
    text = part.about.get("settings", {}).get("shard")
    shard = Shard.parse(text) if isinstance(text, str) else None
    return (shard.first, shard.total) if shard is not None and shard.first == shard.last else None


def _in_order(
    parts: list[Certificate], rows: Sequence[Samples | None] | None
) -> tuple[list[Certificate], list[Samples | None]]:
    """Sort shards by their numbers; raise where one is missing, or given twice."""
    numbers = [_shard(part) for part in parts]
    given: list[Samples | None] = [None] * len(parts) if rows is None else list(rows)
    known = [number for number in numbers if number is not None]
    if len(known) < len(parts):
        return parts, given
    total = known[0][1]
    require(all(each[1] == total for each in known), "parts", "be shards of one division", f"{known}")
    for number in range(1, total + 1):
        count = sum(each[0] == number for each in known)
        rule = f"have every shard once: {number}/{total} is {'missing' if count == 0 else 'given twice'}"
        require(count == 1, "parts", rule, ", ".join(f"{a}/{b}" for a, b in sorted(known)))
    for name in ("samples", "seed", "split", "data"):
        values = {str(part.about["settings"].get(name)) for part in parts}
        require(len(values) == 1, "parts", f"be shards of the same rows, with one --{name}", sorted(values))
    digests = [[part.about.get("digests", {}).get(name) for name in _QUESTION] for part in parts]
    require(all(each == digests[0] for each in digests), "parts", "be about one run and its data", "others")
    places = sorted(range(len(parts)), key=lambda place: known[place])
    return [parts[place] for place in places], [given[place] for place in places]


@dataclass(frozen=True, eq=False)
class _Source:
    """The samples of one part, how many repeat others, and its witnesses at some γ."""

    inputs: Tensor
    targets: Tensor
    repeats: int
    witnesses: Callable[[Sequence[float], Tensor | None], tuple[trusted.Problem, Witnesses]]

    @staticmethod
    def of(part: Certificate, rows: Samples | None) -> _Source | None:
        """None where the samples are not at hand."""
        if isinstance(part.source, Engine):
            portions = part.source.portions
            inputs, targets = (
                torch.cat([getattr(portion, name) for portion in portions]) for name in ("inputs", "targets")
            )
            return _Source(inputs, targets, portions.repeats, part.source.witnesses)
        assert part.file is not None
        path = sibling(part.file, ROWS)
        if rows is None and not path.exists():
            return None
        stored = parse_tensors(read_bytes(path)) if rows is None else given_rows(part, rows)
        inputs, targets = stored["inputs"], stored["targets"]
        witnesses = partial(_stored_witnesses, part.file, inputs, targets)
        return _Source(inputs, targets, repeats([row_keys(inputs, targets)]), witnesses)


def _stored_witnesses(
    file: Path, inputs: Tensor, targets: Tensor, gammas: Sequence[float], limits: Tensor | None
) -> tuple[trusted.Problem, Witnesses]:
    """Return the problem of a stored certificate, and its witnesses for these γ, numbered anew."""
    about = read_content(file)["check"]
    if digest_rows(inputs, targets) != about["rows"]:
        raise UnsupportedError(f"the rows of {file} are others.")
    description, graph, stored = (read_bytes(sibling(file, name)) for name in FILES)
    problem = build_problem(parse_object(description), parse_tensors(graph), (inputs, targets))
    witnesses = Witnesses()
    for name, tensor in parse_tensors(stored).items():
        if name.endswith(".moves"):
            tensor = tensor.to(torch.int16)
        elif name.endswith((".units", ".roots", ".scale")):
            tensor = tensor.float()
        number, _, rest = name.partition(".")
        if not number.isdigit():
            witnesses[name] = tensor
        elif (gamma := about["gammas"][int(number)]) in gammas:
            witnesses[f"{list(gammas).index(gamma)}.{rest}"] = tensor
    return problem, witnesses


@dataclass(frozen=True, eq=False)
class _Sources(SampleMover):
    """Source of a merged certificate: it has the witnesses of its parts, and moves no points."""

    parts: tuple[_Source | None, ...]

    def witnesses(
        self, gammas: Sequence[float], limits: Tensor | None = None
    ) -> tuple[trusted.Problem, Witnesses]:
        if None in self.parts:
            raise UnsupportedError("the rows of its parts were not at hand.")
        pieces = [part.witnesses(gammas, limits) for part in self.parts if part is not None]
        edges, balls = pieces[0][1]["edges"], pieces[0][1]["balls"]
        for _, piece in pieces:
            if not (torch.equal(piece.pop("edges"), edges) and torch.equal(piece.pop("balls"), balls)):
                raise UnsupportedError("the parts have different rings around their samples.")
        return collect(pieces, Grid(edges, tuple(balls.int().tolist())))


def _refuse_overlaps(parts: Sequence[Certificate], sources: Sequence[_Source | None]) -> None:
    """Raise where parts share rows. Shards of a run cannot; other parts must have their rows at hand."""
    if all(_shard(part) is not None for part in parts):
        return
    seen, repeated = dict[int, int](), 0
    for number, (part, source) in enumerate(zip(parts, sources, strict=True), 1):
        if source is None:
            raise UnsupportedError(
                f"Part {_name(part, number)} may share rows with others: certify it with --shard, or write "
                "it with its rows (include_data)."
            )
        keys = row_keys(source.inputs, source.targets).tolist()
        # Data with repeated rows may repeat some of them in another part, too, but not most.
        shared, repeated = sum(key in seen for key in keys), repeated + source.repeats
        shared = 0 if shared < len(keys) and shared <= 4 * repeated else shared
        other = next((seen[key] for key in keys if key in seen), 0)
        rule = f"have no row in common: {shared} of part {_name(part, number)} are in part {other}, too"
        require(shared == 0, "parts", rule, f"{shared} shared rows")
        seen |= dict.fromkeys(keys, number)


def _statement(parts: Sequence[Certificate]) -> Statement:
    statements = [part.statement for part in parts]
    populations = [part.population for part in parts if part.population is not None]
    if not populations:
        return Statement.merged(statements)
    rule = "all have a confidence, or none"
    require(len(populations) == len(parts), "parts", rule, f"{len(populations)} of {len(parts)}")
    first, costs = populations[0].upper, [each.error_costs for each in statements]
    rule = "have one confidence, seed and clip for their populations"
    same = all(
        (each.upper.confidence, each.upper.seed, each.upper.clip)
        == (first.confidence, first.seed, first.clip)
        for each in populations
    )
    require(same, "parts", rule, "several")
    grid, claims = max(len(each.moves) for each in populations), dict[float, float]()
    if costs[0] is not None:
        joined = _joined(costs)
        above = failure_shares(first.confidence, True)[0]
        gammas = error_gammas(budget_range(parts[0].rhos), len(joined))
        claims = error_means(joined[random_order(len(joined), first.seed)], gammas, above / 2)
    return Statement.merged(statements, claims, grid)


def _population(parts: Sequence[Certificate], statement: Statement) -> Population | None:
    populations = [part.population for part in parts if part.population is not None]
    if not populations or statement.population is None:
        return None
    costs = [each.attained_error_cost for each in populations]
    labelled = costs[0] is not None
    below = failure_shares(populations[0].confidence, labelled)[1]
    return Population(
        statement.population,
        # Losses are at least 0, and nothing is said of where samples move.
        clean_loss=0.0,
        moves={gamma: Move(1.0, 0.0) for each in populations for gamma in each.moves},
        error_margin_low=dkw(statement.samples, below) if labelled else None,
        attained_error_cost=_joined(costs) if labelled else None,
        repeats=sum(each.repeats for each in populations),
    )


def _joined(tensors: Sequence[Tensor | None]) -> Tensor:
    return torch.cat([tensor for tensor in tensors if tensor is not None])


def _mean(parts: Sequence[Certificate], values: Sequence[float], sign: int) -> float:
    """The mean over the union, rounded up for the sign 1 and down for −1."""
    count = sum(part.samples for part in parts)
    terms = [part.samples * value / count for part, value in zip(parts, values, strict=True)]
    return math.fsum(terms) + sign * FEW * (len(parts) + 4) * math.fsum(map(abs, terms))


def _aggregate(parts: Sequence[Certificate], gamma: float) -> DualAggregate:
    own = [next(line for line in part.aggregates if line.gamma == gamma) for part in parts]
    names = dict.fromkeys(name for line in own for name in line.rules)
    return DualAggregate(
        gamma,
        _mean(parts, [line.rho_hat for line in own], 1),
        _mean(parts, [line.loss for line in own], -1),
        {name: round(_mean(parts, [line.rules.get(name, 0.0) for line in own], 0), 6) for name in names},
    )


def _attacks(parts: Sequence[Certificate]) -> list[AttackAggregate]:
    """Attacks in balls of one ρ; a part that was not attacked stays as it is."""
    merged = []
    for rho in dict.fromkeys(attack.rho for part in parts for attack in part.attacks):
        own = [next((each for each in part.attacks if each.rho == rho), None) for part in parts]
        losses = [
            part.attained_clean_loss if each is None else each.loss
            for part, each in zip(parts, own, strict=True)
        ]
        spent = _mean(parts, [0.0 if each is None else each.transport_cost for each in own], 1)
        merged.append(AttackAggregate(rho, min(spent, rho), _mean(parts, losses, -1)))
    return merged


def _about(parts: Sequence[Certificate]) -> dict[str, Any]:
    """Return the common entries of ``about``, with the settings of the union; empty without shards."""
    about = {name: entry for name, entry in parts[0].about.items() if name not in ("rows", "digests")}
    if not about or any(_shard(part) is None for part in parts):
        return {}
    about["settings"] = about["settings"] | {"shard": f"1-{len(parts)}/{len(parts)}"}
    count, source = sum(part.samples for part in parts), parts[0].about["rows"]["source"]
    words = f"{count:,} rows of {source}, certified in {len(parts)} shards"
    about["rows"] = parts[0].about["rows"] | {"count": count, "words": words}
    about["digests"] = {name: parts[0].about["digests"][name] for name in _QUESTION}
    about["parts"] = len(parts)
    return about
