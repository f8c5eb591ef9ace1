"""Exact certificates of linear scores: upper and lower bound agree up to rounding.

For an affine network with one score the Lipschitz rule of the kernel is exact (``certus.kernel.losses``):
with v the level of the loss at a sample, α the dual norm of the score's gradient and κ = γg/α²,

    φ_γ = sup_t h(v + t) − κt²,

attained along one direction. The γ whose moves have mean cost ρ is found by bisection. The moves of its two
neighbours, mixed to cost ρ, attain γρ + E φ_γ up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from certus._eval_mode import unwrapped
from certus._validation import check_batch, check_geometry, checked_weights
from certus.bounds.analysis import kernel_cost
from certus.bounds.criteria import check_targets, check_values
from certus.bounds.equivalence import OriginalModel, check_wrapper
from certus.bounds.network import read_network
from certus.bounds.norm_proposals import claim_norms
from certus.certificates.batching import provable_criterion
from certus.certificates.certificate import Certificate
from certus.certificates.dual_values import DualAggregate
from certus.certificates.proposals import softplus_roots
from certus.certificates.witnesses import Witnesses, grid_witnesses, root_witnesses
from certus.costs import Bregman, Cost, SquaredL2
from certus.costs.claims import is_builtin
from certus.data import Samples
from certus.domains import Unbounded
from certus.errors import UnreadableModelError, UnsupportedError, require, require_numbers
from certus.kernel import losses as kernel_losses
from certus.kernel import problem as trusted
from certus.kernel.costs import Cost as KernelCost
from certus.kernel.costs import Domain
from certus.kernel.costs import Domain as KernelDomain
from certus.kernel.graph import Graph
from certus.kernel.losses import Form, Score, Softmax
from certus.kernel.majorants import constants
from certus.kernel.operators import Affine
from certus.kernel.problem import Values, outputs_at, rounding_at
from certus.kernel.radial import Neighborhoods, neighborhoods
from certus.kernel.rounding import SOME, mean_down, mean_up
from certus.kernel.rules import DualBounds, Proposal, SampleBounds, dual_bounds
from certus.kernel.statement import Statement
from certus.losses import Criterion, CrossEntropy, Hinge, Logistic, SquaredError

_L2, _EVERYWHERE = SquaredL2(), Unbounded()
_HALVINGS = 80
_STIFFEST = 1e12  # of κ above its floor: where a search begins
_SOFTEST = 1e-9  # and where it ends
_FAR = (1.0, 10.0, -10.0)  # multiples of the rows at which a model is compared with its graph
_BESIDE = 2.0  # how far beyond the ρ asked for the lines go


def certify_linear(
    model: nn.Module,
    data: Samples | tuple[Tensor, Tensor | None],
    *,
    rho: float | Sequence[float],
    epsilon: float | Sequence[float] | None = None,
    criterion: Criterion | None = None,
    cost: Cost = _L2,
    labels: str = "given",
) -> Certificate | None:
    """Compute the exact worst case of a linear score; None for another model, criterion or cost.

    Of a table with categories, missing values or dates (``Samples.encoding``) the worst case consists of
    points that encode no row: then the lower bound is that of the unmoved rows.
    """
    wrapper, model = model, unwrapped(model)
    split = data if isinstance(data, Samples) else None
    inputs, targets = (split.inputs, split.targets) if split is not None else data  # type: ignore[misc]
    targets = None if labels == "predicted" else targets
    source = (inputs, None) if targets is None else split or Samples(inputs, targets)
    criterion, class_weights = provable_criterion(criterion, source, None)
    if class_weights is not None or not is_builtin(cost) or isinstance(cost.unmasked, Bregman):
        return None
    graph = _affine_graph(model, tuple(inputs.shape[1:]), criterion)
    if graph is None:
        return None
    rhos = require_numbers("rho", rho, zero=True)
    epsilons = () if epsilon is None else require_numbers("epsilon", epsilon, zero=True)
    inputs = inputs.detach().cpu().double()
    check_batch(inputs, targets)
    check_geometry(inputs, cost, _EVERYWHERE)
    check_wrapper(wrapper, model, inputs)
    weights = None if split is None or split.weights is None else checked_weights(split.weights, len(inputs))
    if epsilons:
        labelled = not isinstance(criterion, SquaredError)
        require(labelled, "epsilon", "be left out for a regression: it has no errors", epsilon)
        require(weights is None, "epsilon", "be left out where samples have weights", epsilon)
    linear = _LinearScore(_problem(graph, criterion, cost, inputs, targets), cost)
    certificate = linear.certificate(rhos, epsilons, weights)
    certificate = replace(
        certificate,
        differing_predictions=_differing(model, linear, certificate),
        labels="predicted" if targets is None else "given",
    )
    if split is None or split.encoding is None or split.encoding.plain:
        return certificate
    costs, start = certificate.attained_error_cost, certificate.clean_loss[0]
    return replace(
        certificate,
        aggregates=tuple(replace(line, rho_hat=0.0, loss=start) for line in certificate.aggregates),
        attained_error_cost=None if costs is None else torch.where(costs == 0, 0.0, math.inf),
    )


def _affine_graph(model: nn.Module, shape: tuple[int, ...], criterion: Criterion) -> Graph | None:
    """Return the graph of an affine model whose loss is a function of one number: an output, or the
    difference of two. None for other models."""
    try:
        graph = read_network(model, shape).graph if len(shape) == 1 else None
    except UnreadableModelError:
        return None  # ``certify`` gives the reason
    if graph is None or len(graph.nodes) != 2 or not isinstance(graph.nodes[1].primitive, Affine):
        return None
    kinds: dict[int, tuple[type, ...]] = {1: (Logistic, Hinge, SquaredError), 2: (CrossEntropy,)}
    supported = type(criterion) in kinds.get(math.prod(graph.out_shape), ())
    return (
        graph if supported and (type(criterion) is not CrossEntropy or criterion == CrossEntropy()) else None
    )


def _problem(
    graph: Graph, criterion: Criterion, cost: Cost, inputs: Tensor, targets: Tensor | None
) -> trusted.Problem:
    loss: kernel_losses.Loss | None = Softmax(logistic=isinstance(criterion, Logistic))
    if isinstance(criterion, SquaredError):
        loss = None
        require(targets is not None, "data", "have targets for a regression", None)
        assert targets is not None
        checked = check_values(targets.detach().cpu().double(), torch.empty(len(inputs), 1))
    else:
        if isinstance(criterion, Hinge):
            loss = kernel_losses.Hinge(2 if criterion.squared else 1)
        outputs = graph.apply(inputs).flatten(1)
        ahead = outputs[:, -1] - (outputs[:, 0] if outputs.shape[1] == 2 else 0)
        labels = (ahead > 0).long() if targets is None else targets.detach().cpu()
        checked = check_targets(labels, len(inputs), 2)
    problem = trusted.Problem.of(graph, loss, kernel_cost(cost, graph.shape), Domain(), (inputs, checked))
    claim_norms(problem.graph)
    return problem


def _differing(model: nn.Module, linear: _LinearScore, certificate: Certificate) -> int:
    """Count the samples whose prediction by the model in its own precision differs. Raises
    ``ContradictionError`` unless the model computes the outputs of the graph there, at multiples, and at the
    moved samples."""
    graph, inputs = linear.problem.graph, linear.problem.inputs
    caller = OriginalModel(model, graph.shape, normalized=False)
    moved = [linear.transported(line.gamma).inputs for line in certificate.aggregates]
    for points in (*(factor * inputs for factor in _FAR), *moved):
        caller.check(points, *outputs_at(graph, points))
    labels = linear.problem.classes is not None
    return int(caller.differing(inputs, graph.apply(inputs), labels=labels).sum())


@dataclass(frozen=True, eq=False)
class _LinearScore:
    """A linear score at its samples, and the source of the certificate."""

    problem: trusted.Problem
    cost: Cost

    @cached_property
    def around(self) -> Neighborhoods:
        values, edges = Values.at(self.problem), torch.arange(2, dtype=torch.float64)
        return neighborhoods(self.problem, values, constants(self.problem, values), edges, ())

    @property
    def score(self) -> Score:
        return self.around.profile.score

    @property
    def floor(self) -> float:
        """Value of κ at or below which φ_γ is infinite."""
        return 1.0 if self.score.form is Form.SQUARE else 0.0

    @cached_property
    def steepness(self) -> float:
        """α."""
        return float(self.score.steepness.max())

    @cached_property
    def sign(self) -> Tensor:
        """(n,) sign of the slope of the loss in the score F, or F₁ − F₀."""
        problem = self.problem
        if problem.classes is None:
            return torch.where(problem.outputs(problem.inputs) < problem.targets, -1.0, 1.0)[:, 0].double()
        return torch.where(problem.targets == 1, -1.0, 1.0).double()

    @cached_property
    def direction(self) -> Tensor:
        """(features,) the cheapest move that raises the score by 1: the response to a linear loss."""
        leaf = torch.zeros_like(self.problem.inputs[:1]).requires_grad_()
        with torch.enable_grad():
            outputs = self.problem.outputs(leaf)
            score = outputs[:, -1] - (0 if outputs.shape[1] == 1 else outputs[:, 0])
            (slope,) = torch.autograd.grad(score.sum(), leaf)
        origin, slope = leaf.detach(), self.cost.free_part(slope)
        ones = torch.ones(1, dtype=torch.float64)
        move = self.cost.respond(slope, origin, origin, ones, _EVERYWHERE).target
        gained = float((move * slope).sum())
        return (move / gained)[0] if gained > 0 else torch.zeros_like(move)[0]

    def shift_at(self, gamma: float) -> Tensor:
        """Return (n,) approximate maximisers t ≥ 0 of h(v + t) − κt², the moves of the scores at γ. No upper
        bound depends on them."""
        level, price = self.score.level, gamma * self.problem.unit_cost
        if self.steepness <= 0:
            return torch.zeros_like(level)
        stiffness, roots = self.score.stiffness(price), softplus_roots(self.score, price)
        match self.score.form:
            case Form.SQUARE:
                return level.clamp_min(0) / (stiffness - 1)
            case Form.POSITIVE:
                return torch.where(level + 1 / (4 * stiffness) > 0, 1 / (2 * stiffness), 0.0)
        assert roots is not None
        return (torch.where(0.5 + 2 * stiffness * level < 0, -roots, roots) - level).clamp_min(0)

    def bounds(self, gamma: float) -> DualBounds:
        """Return the kernel's bounds at γ."""
        proposal = Proposal.at(self.problem, gamma, self.transported(gamma).inputs)
        roots = softplus_roots(self.score, gamma * self.problem.unit_cost)
        return dual_bounds(self.around, gamma, proposal, roots)

    def aggregate(self, gamma: float, weights: Tensor | None) -> DualAggregate:
        """Return the means that the moves at γ attain."""
        # At the points as float64 has them: the ideal ones may lie between its numbers.
        points = self.transported(gamma).inputs
        costs = self.problem.cost.raised(points, self.problem.inputs)
        return DualAggregate(
            gamma,
            mean_up(costs, weights),
            mean_down(_lowered(self.problem, points), weights),
            {"exact": 1.0},
        )

    def gammas(self, rho: float, weights: Tensor | None) -> tuple[float, ...]:
        """Return two neighbouring γ between which the mean cost of the moves, which falls with γ, is ρ."""
        if self.steepness <= 0 or not bool(self.direction.any()):
            return (1.0,)
        unit = self.score.weight * self.steepness**2 / self.problem.unit_cost

        def spent(log: float) -> float:
            squares = self.shift_at(unit * (self.floor + math.exp(log))) ** 2
            return float((squares if weights is None else squares * weights).mean()) / self.steepness**2

        low, high = math.log(_SOFTEST), math.log(_STIFFEST)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if spent(middle) > rho * self.problem.unit_cost else (low, middle)
            if high - low < SOME:
                break
        return tuple(unit * (self.floor + math.exp(log)) for log in (low, high))

    def certificate(
        self, rhos: tuple[float, ...], epsilons: tuple[float, ...], weights: Tensor | None
    ) -> Certificate:
        positive = [rho for rho in rhos if rho > 0] or [0.01]
        wanted = {*positive, min(positive) / _BESIDE, max(positive) * _BESIDE}
        gammas = sorted({gamma for rho in wanted for gamma in self.gammas(rho, weights)}, reverse=True)
        labelled = self.problem.classes is not None
        levels = [self.bounds(gamma) for gamma in gammas]
        certificate = Certificate(
            statement=Statement.of(SampleBounds.at(self.around), levels, weights=weights),
            rhos=rhos,
            aggregates=tuple(self.aggregate(gamma, weights) for gamma in gammas),
            attained_clean_loss=mean_down(self.around.values.start, weights),
            attained_error_cost=self._attained_error_cost() if labelled else None,
            classes=self.problem.classes,
            epsilons=epsilons,
            source=self,
        )
        certificate.curve()  # which raises where a bracket contradicts itself
        certificate.accuracies()
        return certificate

    def _attained_error_cost(self) -> Tensor:
        """(n,) costs of points just beyond the boundary; ∞ where they are not certainly errors."""
        problem = self.problem
        own = problem.outputs(problem.inputs)
        ahead = (own[:, 1] - own[:, 0]) * -self.sign
        _, error = outputs_at(problem.graph, problem.inputs)
        step = (ahead.clamp_min(0) + 8 * error) * (1 + SOME)
        points = problem.inputs + (self.sign * step)[:, None] * self.direction
        costs = torch.where(_wrong(problem, points), problem.cost.raised(points, problem.inputs), math.inf)
        return torch.where(_wrong(problem, problem.inputs), 0.0, costs)

    def transported(self, gamma: float | None) -> Samples:
        """Return the samples moved at γ, or unmoved for None."""
        inputs, targets = self.problem.inputs, self.problem.targets
        if gamma is None:
            return Samples(inputs, targets)
        return Samples(inputs + (self.sign * self.shift_at(gamma))[:, None] * self.direction, targets)

    def witnesses(
        self, gammas: Sequence[float], limits: Tensor | None = None
    ) -> tuple[trusted.Problem, Witnesses]:
        """Return the witnesses: roots of the Lipschitz rule, which is exact."""
        stored, everyone = grid_witnesses(self.around.profile.edges, ()), torch.ones(len(self.problem)).bool()
        for number, gamma in enumerate(gammas):
            stored |= root_witnesses(f"{number}.0.roots", self.around, gamma, everyone)
        return self.problem, stored

    def geometry(self) -> tuple[KernelCost, KernelDomain, tuple[tuple[int, ...], ...]]:
        """Cost, domain and discrete columns, as the kernel has them."""
        return self.problem.cost, self.problem.domain, ()

    def attacked(self, rho: float) -> Samples:
        """Raise ``UnsupportedError``: the worst case is known, so there are no attacks."""
        return self.transported(None)

    def nearest_errors(self, rhos: Sequence[float]) -> tuple[Tensor, Samples]:
        raise UnsupportedError("A certificate of a linear model stores the costs of errors, not the points.")

    def evaluate(self, data: Samples) -> tuple[float, float | None]:
        """Return the mean loss of unmoved samples, rounded down, and their share of certain errors."""
        other = self.problem.about(data.inputs.double(), data.targets)
        wrong = None if other.classes is None else float(_wrong(other, other.inputs).double().mean())
        return mean_down(_lowered(other, other.inputs)), wrong


def _lowered(problem: trusted.Problem, points: Tensor) -> Tensor:
    """Return (n,) losses at the points, rounded down."""
    losses = problem.losses(points)
    return losses - problem.slack(losses, rounding_at(problem.graph, points))


def _wrong(problem: trusted.Problem, points: Tensor) -> Tensor:
    """Return (n,) whether the other class leads by more than rounding."""
    raw, error = outputs_at(problem.graph, points)
    outputs, own = problem.margin_outputs(raw), problem.own
    return outputs[~own] - outputs[own] > 2 * error
