"""The check of a stored certificate from its files and the rows: every upper side follows, or it does not.

    certificate.json          the statement, its numbers, the γ that prove them, and digests of the others
    graph.json, .safetensors  the network, the cost, the loss and the domain; or the trees, prices and loss
    witnesses.safetensors     what was proposed: rings and balls, moves, roots, points of parabolas; or proofs

*Theorem.* φ̄_γ follows from the graph, the rows and any witnesses (``rules``), and upper sides follow from φ̄_γ
and the costs of errors at any γ (``statement``). So a number of the file holds if it is at least what the
witnesses prove, up to 10⁻⁹ of its size, by which other orders of summation may differ. Digests show only
that the files belong together. Nothing is searched, climbed or attacked here; lower sides are not checked.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from certus.kernel.error_rates import complement
from certus.kernel.graph_files import (
    FAULTS,
    Tensors,
    build_problem,
    build_tree_problem,
    parse_object,
    parse_tensors,
    read_bytes,
)
from certus.kernel.majorants import Tangents, constants, parabolas
from certus.kernel.passes import Refused, per_sample
from certus.kernel.problem import Problem, Values
from certus.kernel.radial import Neighborhoods, neighborhoods
from certus.kernel.rounding import up
from certus.kernel.rules import (
    DualBounds,
    Proposal,
    SampleBounds,
    clip_within,
    dual_bounds,
    gamma_within,
    over_labels,
)
from certus.kernel.statement import PopulationBounds, Statement
from certus.kernel.tree_profiles import TreeProblem, proven_bounds

TOLERANCE = 1e-9
FILES = ("graph.json", "graph.safetensors", "witnesses.safetensors")
ROWS = "rows.safetensors"
NO_ROWS = "not re-checked: the rows are not included; pass --data"
DRAWS = "the rows are independent draws, and the grid of gamma, the seed and the model were fixed before them"
SEARCHES = "each fixed proof was found from the model and its own row alone"
PARABOLAS = ("centered", "tangent", "shaped")
_BATCH = 512


class Comparison(NamedTuple):
    """A stated number and what is proven in its place; where: ρ, ε or γ."""

    name: str
    where: float | None
    stated: float
    proven: float
    upper: bool = True

    @property
    def follows(self) -> bool:
        """Whether the stated side is no better than the proven one."""
        least, most = (self.proven, self.stated) if self.upper else (self.stated, self.proven)
        return least <= most + TOLERANCE * abs(most)

    @property
    def words(self) -> str:
        where = "" if self.where is None else f" at {self.where:g}"
        return f"{self.name}{where}: {self.stated:.9g} is stated, {self.proven:.9g} is proven"


@dataclass(frozen=True, eq=False)
class Checked:
    """Result of a check: the problem of the files, the kernel's own statement about it, and all comparisons
    with certificate.json."""

    problem: Problem | TreeProblem
    statement: Statement
    comparisons: list[Comparison]
    assumptions: tuple[str, ...]

    @property
    def failed(self) -> list[Comparison]:
        return [each for each in self.comparisons if not each.follows]

    @property
    def verified(self) -> bool:
        return not self.failed


class NotProven(Refused):
    """A claim of the file that its witnesses do not prove."""


def digest_rows(inputs: Tensor, targets: Tensor) -> str:
    """SHA-256 of rows: shapes and numbers, little-endian, inputs as float64."""
    parts = (
        inputs.double().nan_to_num(math.nan, math.inf, -math.inf).contiguous(),
        targets.reshape(len(targets), -1).contiguous(),
    )
    whole = hashlib.sha256(f"{[(str(part.dtype), tuple(part.shape)) for part in parts]}".encode())
    whole.update(b"".join(part.numpy().tobytes() for part in parts))
    return whole.hexdigest()


def sibling(path: Path, name: str) -> Path:
    """A file beside certificate.json; one beside another STEM.json has the stem before its name."""
    return path.with_name(name if path.stem == "certificate" else f"{path.stem}.{name}")


def check(path: Path, data: Path | Tensors | None = None) -> Checked:
    """Check a certificate; raise ``Refused`` if it cannot be checked, ``NotProven`` if a claim is not proven.

    Args:
        path: certificate.json, or its folder.
        data: the rows, or their file: ``inputs``, ``targets``, and ``weights`` if they count differently.
    """
    path = path / "certificate.json" if path.is_dir() else path
    try:
        content = parse_object(read_bytes(path))
        about = content["check"]
        if "reason" in about:
            raise Refused(f"not re-checked: {about['reason']}")
        read = {name: read_bytes(sibling(path, name)) for name in FILES}
        if {name: hashlib.sha256(read[name]).hexdigest() for name in FILES} != about["files"]:
            raise Refused("the files do not have the digests of certificate.json")
        rows = _rows(path, data)
        if digest_rows(rows["inputs"], rows["targets"]) != about["rows"]:
            raise Refused("the rows are not those of the certificate: their digest differs")
        tensors, stored = (parse_tensors(read[name]) for name in FILES[1:])
        description, samples = parse_object(read[FILES[0]]), (rows["inputs"], rows["targets"])
        build = build_tree_problem if "ensemble" in description else build_problem
        problem: Problem | TreeProblem = build(description, tensors, samples)
        weights = _weights(content.get("weights"), rows)
        try:
            statement = _statement(problem, stored, content, weights)
            comparisons = list(_comparisons(statement, content))
        except Refused as reason:
            raise NotProven(f"it does not follow: {reason}") from None
        if not _same(content, problem, statement):
            raise NotProven("the model, the rows and the file do not describe the same")
    except FAULTS as reason:
        raise Refused(f"{path} is malformed: {type(reason).__name__}: {reason}"[:200]) from None
    people: tuple[str, ...] = () if statement.population is None else (DRAWS,)
    if people and isinstance(problem, TreeProblem):
        people = (DRAWS, SEARCHES)
    return Checked(problem, statement, comparisons, statement.assumptions + people)


def _rows(path: Path, data: Path | Tensors | None) -> Tensors:
    if data is None and not sibling(path, ROWS).exists():
        raise Refused(NO_ROWS)
    return data if isinstance(data, dict) else parse_tensors(read_bytes(data or sibling(path, ROWS)))


def _weights(stated: list[float] | None, rows: Tensors) -> Tensor | None:
    """The weights of the statement, which must be those of the rows up to a factor."""
    if stated is None and "weights" not in rows:
        return None
    weights, own = (
        torch.tensor(stated or (), dtype=torch.float64),
        rows.get("weights", torch.empty(0)).double(),
    )
    if weights.shape != own.shape or not torch.allclose(weights, own / own.mean(), TOLERANCE, 0.0):
        raise Refused("the weights of the certificate are not those of the rows")
    return weights


def _statement(
    problem: Problem | TreeProblem, stored: Tensors, content: Any, weights: Tensor | None
) -> Statement:
    """Return what the witnesses prove, with the claims of the file for the population."""
    people, clip, population = content["population"], content["clip"], None
    about = stored, content["check"]["gammas"], clip, content.get("class_weights")
    if isinstance(problem, TreeProblem):  # of populations only what does not depend on other rows
        (fixed, early), (samples, levels) = proven_bounds(problem, *about)
    else:
        samples, levels = fixed, early = _bounded(problem, *about)
    if people is not None:
        claims, errors = (
            {
                line["gamma"]: up(line["mean"], TOLERANCE / 2)
                for line in people[name]
                if line["mean"] is not None
            }
            for name in ("grid", "error_grid")
        )
        population = PopulationBounds.of(
            fixed,
            [level for level in early if level.gamma in claims],
            **{name: people[name] for name in ("confidence", "seed", "clip", "inequality")},
            claims=claims,
            error_claims=errors,
            grid=len(people["grid"]),
            error_grid=len(people["error_grid"]),
        )
    return Statement.of(samples, levels, weights=weights, clip=clip, population=population)


def _bounded(
    problem: Problem, stored: Tensors, gammas: list[float], clip: float | None, by_class: list[float] | None
) -> tuple[SampleBounds, list[DualBounds]]:
    """Bounds at all samples, and φ̄_γ at each γ."""
    levels = [DualBounds.unknown(gamma, len(problem), clip, problem.assumptions) for gamma in gammas]
    parts, places = [], list(_groups(problem.targets, by_class))
    for index in places:
        around, under = _around(problem.select(index), stored, index, clip, by_class)
        parts.append(SampleBounds.at(around[0], under[0]))
        for number, level in enumerate(levels):
            bounds = [
                _bounds(here, level, stored, f"{number}.{shift}", index, weight)
                for shift, (here, weight) in enumerate(zip(around, under, strict=True))
            ]
            level.fill(index, over_labels(bounds[0], bounds[1:]) if len(bounds) > 1 else bounds[0])
    return SampleBounds.joined(parts, torch.cat(places).argsort()), levels


def _bounds(
    around: Neighborhoods, level: DualBounds, stored: Tensors, key: str, index: Tensor, weight: float
) -> DualBounds:
    """φ̄_γ of some samples under one label, from the stored moves and roots."""
    inputs = around.problem.inputs
    moves = _scattered(stored, f"{key}.moves", index, inputs.shape[1:])
    roots = _scattered(stored, f"{key}.roots", index, ())
    points = inputs if moves is None else inputs + moves
    proposal = Proposal.at(around.problem, gamma_within(level.gamma, weight), points)
    return dual_bounds(around, level.gamma, proposal, roots, weight, level.clip)


def _groups(targets: Tensor, by_class: list[float] | None) -> Iterator[Tensor]:
    """Positions of samples that are bounded together: of one label where labels have weights."""
    keys = torch.zeros(len(targets)) if by_class is None else targets
    return (part for key in keys.unique() for part in (keys == key).nonzero()[:, 0].split(_BATCH))


def _around(
    own: Problem, stored: Tensors, index: Tensor, clip: float | None, by_class: list[float] | None
) -> tuple[list[Neighborhoods], list[float]]:
    """Bounds around samples under every label that they may take, and the weights of these labels."""
    shifts, around, weights = range(own.width if own.cost.label_price < math.inf else 1), [], []
    for shift in shifts:
        problem = own if shift == 0 else own.relabelled((own.targets + shift) % own.width)
        weights.append(1.0 if by_class is None else by_class[int(problem.targets[0])])
        values = Values.at(problem)
        start = bounds = constants(problem, values)
        for tangents in _tangents(problem, stored, index, shift):
            bounds = bounds.beside(parabolas(problem, values, start, tangents))
        balls, within = stored["balls"].tolist(), clip_within(clip, weights[-1])
        around.append(neighborhoods(problem, values, bounds, stored["edges"], balls, within))
    return around, weights


def _tangents(problem: Problem, stored: Tensors, index: Tensor, shift: int) -> Iterator[Tangents]:
    """The parabolas proposed for some samples: by a mask of the margins, and points by their moves."""
    factor = (stored["factor.left"], stored["factor.right"]) if "factor.left" in stored else None
    for kind in PARABOLAS:
        mask, centered = stored.get(f"{kind}.{shift}.mask"), kind == "centered"
        if mask is None or not bool(mask[index].any()):
            continue
        sample, rival = mask[index].nonzero().unbind(1)
        point, factors = problem.inputs[sample], stored[f"{kind}.factors"]
        distances = torch.full((len(sample), len(factors)), math.inf, dtype=torch.float64)
        if centered:
            distances = (
                stored[f"{kind}.{shift}.scale"][index][sample].unsqueeze(1) * stored[f"{kind}.distances"]
            )
        else:
            every = stored["tangent.0.mask"]
            place = (every.flatten().cumsum(0).reshape(every.shape) - 1)[index]
            point = point + _moves(stored, "tangent.moves", place[sample, rival])
        shaped = kind != "tangent"
        yield Tangents(sample, rival, point, factors, distances, shaped, factor if shaped else None)


def _scattered(stored: Tensors, key: str, index: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """(batch, *shape) numbers that are stored for some samples, and 0 for the others; None if for none."""
    mask = stored.get(f"{key}.mask")
    if mask is None:
        return None
    place, own = (mask.cumsum(0) - 1)[index], mask[index]
    numbers = torch.zeros(len(index), *shape, dtype=torch.float64)
    numbers[own] = _moves(stored, key, place[own])
    return numbers


def _moves(stored: Tensors, key: str, place: Tensor) -> Tensor:
    """The numbers at some places of a tensor, each row of which may count in units of its own."""
    numbers, units = stored[key][place], stored.get(f"{key}.units")
    return numbers if units is None else per_sample(units[place], numbers) * numbers


def _same(content: Any, problem: Problem | TreeProblem, statement: Statement) -> bool:
    """Whether the file and the statement describe the same problem."""
    unit, own_labels, over_rows, precision = statement.unit_cost, True, False, None
    pairs = [(content["unit_cost"], unit)]
    pairs += [(line["distance"], math.sqrt(line["rho"] / unit)) for line in content["brackets"]]
    if isinstance(problem, Problem):
        over_rows, precision = problem.columns is not None, problem.precision
    if content.get("labels") == "predicted":
        if isinstance(problem, TreeProblem):
            own_labels = problem.predicts
        else:
            labels = [problem.outputs(part).argmax(1) for part in problem.inputs.split(_BATCH)]
            own_labels = torch.equal(torch.cat(labels), problem.targets)
    return (
        all(abs(stated - proven) <= TOLERANCE * proven for stated, proven in pairs)
        and [line["rho"] for line in content["brackets"]] == content["rhos"]
        and [line["epsilon"] for line in content["accuracies"]] == content["epsilons"]
        and (content["samples"], content["classes"]) == (statement.samples, problem.classes)
        and {*statement.assumptions} <= {*content["assumptions"]}
        and own_labels
        and content.get("targets", problem.targets.tolist()) == problem.targets.tolist()
        and content.get("over_rows", False) == over_rows
        and content.get("deployment") == precision
    )


def _comparisons(statement: Statement, content: Any) -> Iterator[Comparison]:
    """Every upper side of the file, and every lower bound on a cost or share; null states nothing."""
    people, costs, stated = statement.population, statement.error_costs, content["proven_error_cost"]
    lines: list[tuple[str, float | None, Any, float, bool]] = []
    lines += [("loss", 0.0, content["clean_loss"][1], statement.clean_loss, True)]
    for line, gamma in zip(content["brackets"], content["check"]["error_gammas"], strict=True):
        rho = line["rho"]
        proven = {
            "loss_high": statement.loss(rho)[0],
            "error_high": statement.error(rho, gamma),
            "population_loss": statement.population_loss(rho),
            "population_error": statement.population_error(rho, gamma),
        }
        lines += [(name, rho, line[name], bound, True) for name, bound in proven.items()]
    for line in content["accuracies"]:
        epsilon, fixed = line["epsilon"], line["fixed_certified"]
        shares = {
            "certified": statement.certified(epsilon),
            "population_certified": statement.population_certified(epsilon),
            "fixed_certified": statement.fixed_certified(epsilon, fixed) if fixed else 0.0,
        }
        lines += [(name, epsilon, line[name], share, False) for name, share in shares.items()]
    means = [("bound", line["gamma"], line["bound"], statement.means) for line in content["aggregates"]]
    if people is not None:
        margin = content["population"]["error_margin"]
        lines.append(("error_margin", None, margin, people.error_margin or 0.0, True))
        for name, own in (("grid", people.means), ("error_grid", people.error_means)):
            means += [(name, line["gamma"], line["mean"], own) for line in content["population"][name]]
    lines += [(name, at, mean, own[at], True) for name, at, mean, own in means if at in own]
    if (stated is None) != (costs is None):
        raise Refused("only a classification has errors")
    bounds = [] if costs is None else zip(stated, costs.tolist(), strict=True)
    lines += [("error_cost", i, math.inf if a is None else a, b, False) for i, (a, b) in enumerate(bounds)]
    lines += _rates(statement, content)
    return (Comparison(*line) for line in lines if line[2] is not None)


def _rates(statement: Statement, content: Any) -> Iterator[tuple[str, float | None, Any, float, bool]]:
    """The rates by class, and lower bounds on the costs of predictions."""
    costs, stated = statement.by_class, content.get("class_costs")
    lines = content.get("rates", ())
    if costs is None:
        if lines or stated is not None:
            raise Refused("only labels that do not change have rates by class")
        return
    for rate in lines:
        name, rho, recall = rate["name"], rate["rho"], rate["name"] == "recall"
        label = 0 if rate["label"] is None else rate["label"]
        words = name if rate["label"] is None else f"{name}[{label}]"
        own, side = costs.worst_rate(name, label, rho, rate["gamma"]), "low" if recall else "high"
        yield words, rho, rate[side], complement(own) if recall else own, not recall
        if rate["population"] is not None:
            about = rho, rate["population_gamma"], rate["claims"]
            own = statement.population_rate(name, label, *about)
            words = f"population_{words}"
            yield words, rho, rate["population"], complement(own) if recall else own, not recall
    if stated is not None:
        for index, (row, own_row) in enumerate(zip(stated, costs.costs.tolist(), strict=True)):
            for a, b in zip(row, own_row, strict=True):
                yield "class_cost", index, math.inf if a is None else a, b, False
