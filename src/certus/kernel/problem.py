"""The certified problem: a graph, a loss, a cost, a domain and samples; and its values there, with rounding.

*Rounding.* A running error analysis in float64 (``Primitive.rounded``, ``backward_error``). Forwards, entry
by entry, with ẑ computed, z true and |ẑ − z| ≤ e; backwards, in L2, for a row of length m, computed up to t:

    affine        e ← |A|e + u_k(|A||ẑ| + |b|)              t ← ‖A‖t + u_k‖|A|‖(m + t),   m ← ‖A‖m
    activation    e ← s·e + u₈(|σ(ẑ)| + |ẑ| + 1/b) + j/b    t ← d·t + (m + t)(h − l + u₈(1 + b|ẑ|)),  m ← d·m

with u_k = ``slack(k)``, s ≥ |σ'| everywhere, and l ≤ σ' ≤ h, d ≥ |σ'| on [ẑ − e, ẑ + e]. The row starts with
length 1 and t = 0; all others follow, as everything is linear in (m, t).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from certus.kernel import deployment
from certus.kernel.costs import Claimed, Cost, Domain, Quadratic
from certus.kernel.evidence import Evidence
from certus.kernel.graph import Graph, Node
from certus.kernel.groups import Grouped
from certus.kernel.losses import Hinge, Loss, Rounding, Softmax, SquaredError, margins_above
from certus.kernel.operators import Affine, Convolution, Dense, Diagonal, Product, Reshape
from certus.kernel.passes import Refused, norm
from certus.kernel.rounding import FEW, SOME, up
from certus.kernel.smoothness import MOST_CLASSES, Bounds, Smoothness

_NUMBERS = 1 << 18  # in one tensor of a pass: 2 MB, which fits into the cache


def outputs_at(graph: Graph, points: Tensor) -> tuple[Tensor, Tensor]:
    """(n, …) outputs and (n,) ``Rounding.values`` at (n, *shape) float64 points, which are taken as exact."""
    outputs, error, _ = graph.rounded(points)
    return outputs, _largest(error)


def rounding_at(graph: Graph, points: Tensor) -> Rounding:
    """All errors at (n, *shape) points, for about the cost of two evaluations."""
    outputs, error, memory = graph.rounded(points)
    start = torch.ones(len(points), dtype=torch.float64)
    rows, slopes = graph.backward_error(memory, start, torch.zeros_like(start))
    width = math.prod(graph.out_shape)
    return Rounding(outputs.abs().flatten(1).amax(1), _largest(error), rows, 2 * slopes, width)


def _largest(error: Tensor) -> Tensor:
    """Largest error, doubled to cover the rounding of this computation; NaN becomes ∞."""
    return 2 * error.flatten(1).amax(1).nan_to_num(math.inf, math.inf)


def with_gradient(function: Callable[[Tensor], Tensor], points: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) values of a function of each of n points, and (n, *shape) its gradients, as computed."""
    leaf = points.detach().clone().requires_grad_()
    with torch.enable_grad():
        values = function(leaf)
        (slope,) = torch.autograd.grad(values.sum(), leaf)
    return values.detach(), slope


def whitened(graph: Graph, whitening: Tensor) -> Graph:
    """The graph for moves x = x₀ + Su, S the whitening of a cost, merged into the first layer."""
    nodes, users = list(graph.nodes), [node for node in graph.nodes if 0 in node.inputs]
    if len(users) > 1 or not isinstance(users[0].primitive, Affine):
        behind = [replace(node, inputs=tuple(index + 1 for index in node.inputs)) for node in nodes[1:]]
        nodes = [nodes[0], Node((0,), graph.shape, Reshape(graph.shape, graph.shape), kind="inputs"), *behind]
    first = nodes[1].primitive
    assert isinstance(first, Affine)
    return Graph((nodes[0], replace(nodes[1], moves=_behind(whitening, first)), *nodes[2:]))


def _behind(whitening: Tensor, first: Affine) -> Affine:
    """A∘S; folded where each weight of the product is rounded once."""
    shapes = first.in_shape, first.out_shape
    folded: Affine | None = None
    if whitening.shape != first.in_shape:
        return Product((Dense(whitening, None, first.in_shape, first.in_shape), first))
    if isinstance(first, Reshape) and shapes[0] == shapes[1]:
        return Diagonal(whitening, None, first.in_shape)
    if isinstance(first, Dense):
        folded = Dense(first.weights[0] * whitening.flatten(), None, *shapes)
    elif isinstance(first, Diagonal):
        folded = Diagonal(first.weights[0] * whitening, None, first.in_shape)
    elif isinstance(first, Convolution) and first.groups == 1:
        channels = whitening.flatten(1)
        if bool((channels == channels[:, :1]).all()):
            folded = first.with_weight(first.weights[0] * channels[:, 0].reshape(-1, *([1] * first.axes)))
    if folded is None:
        return Product((Diagonal(whitening, None, first.in_shape), first))
    folded.folds = first.folds + 1
    return folded


@dataclass(frozen=True, eq=False)
class Problem:
    """The certified loss at n samples; constructed by ``Problem.of``.

    Attributes:
        smoothness: the graph in the units of the cost, with its bounds everywhere and on balls.
        inputs: (n, *shape) float64; targets: (n,) labels, or (n, …) float64 numbers for a squared error.
        claimed: bounds everywhere that the caller claims in place of the kernel's own; None without.
        columns: discrete columns, where only rows of a table count (``rows``); None without.
        precision: "float32" if the bounds are about the network in float32; None for real arithmetic.
    """

    smoothness: Smoothness
    loss: Loss
    cost: Cost
    domain: Domain
    inputs: Tensor
    targets: Tensor
    claimed: Bounds | None = None
    columns: Columns | None = None
    precision: str | None = None

    @staticmethod
    def of(
        graph: Graph,
        loss: Loss | None,
        cost: Cost,
        domain: Domain,
        data: tuple[Tensor, Tensor],
        claimed: Bounds | None = None,
    ) -> Problem:
        """Merge the cost into the first layer of a graph; its norm there may be claimed before use. The loss
        is a squared error for None."""
        if cost.shape != graph.shape:
            raise Refused(f"the cost is for points of shape {cost.shape}; the graph takes {graph.shape}")
        moved = graph if cost.whitening is None else whitened(graph, cost.whitening)
        loss = loss or SquaredError()
        if loss.labelled and loss.logistic != (math.prod(graph.out_shape) == 1):
            raise Refused("a logistic loss or a hinge has one output, others of the softmax family several")
        smooth = Softmax(logistic=True) if isinstance(loss, Hinge) else loss
        softmax = smooth if isinstance(smooth, Softmax) else None
        smoothness = Smoothness(moved, softmax, length=cost.length, unit=cost.unit)
        return Problem(smoothness, loss, cost, domain, *data, claimed).about(*data)

    def about(self, inputs: Tensor, targets: Tensor) -> Problem:
        """Return the same problem for other samples, checked."""
        count, classes = len(inputs), self.classes
        if classes is None:
            fits = targets.dtype == torch.float64 and targets.numel() == count * self.width
        else:
            fits = targets.dtype == torch.int64 and targets.shape == (count,)
            fits = fits and bool(((targets >= 0) & (targets < classes)).all())
        fits = fits and inputs.dtype == torch.float64 and len(targets) == count
        if not (fits and inputs.shape[1:] == self.graph.shape and bool(torch.isfinite(inputs).all())):
            raise Refused(
                "samples must be finite, of the graph's shape, with a label or float64 numbers each"
            )
        return self._with(inputs, targets)

    def select(self, index: slice | Tensor) -> Problem:
        """Return the problem restricted to some samples."""
        return self._with(self.inputs[index], self.targets[index])

    def relabelled(self, targets: Tensor) -> Problem:
        """Return the problem with other targets of the same samples."""
        return self._with(self.inputs, targets)

    def settled(self, domain: Domain, label_price: float, claimed: Bounds | None) -> Problem:
        """Return the problem with another domain and label price; claims leave columns out."""
        columns = self.columns if claimed is None else None
        if columns is not None:
            columns = columns._replace(frozen=columns.frozen.settled(domain, label_price, None))
        cost = replace(self.cost, label_price=label_price)
        return replace(self, cost=cost, domain=domain, claimed=claimed, columns=columns)

    def deployed(self, precision: str | None) -> Problem:
        """Return the problem about the network as it computes in some precision; None for real arithmetic."""
        if precision is not None:
            plain = self.claimed is None and self.columns is None
            if precision != deployment.FLOAT32 or not plain:
                raise Refused("float32 is covered without claimed bounds and discrete columns alone")
            if not isinstance(self.loss, Softmax) or self.loss.smoothing:
                raise Refused("float32 is covered for losses of the softmax family without smoothing alone")
        return replace(self, precision=precision)

    @cached_property
    def deviation(self) -> deployment.Deviation | None:
        """What the precision may change in the margins; None for real arithmetic."""
        if self.precision is None:
            return None
        return deployment.deviation(self.graph, self.inputs, self.smoothness.start())

    def _with(self, inputs: Tensor, targets: Tensor) -> Problem:
        columns = self.columns
        if columns is not None:
            columns = columns._replace(frozen=columns.frozen._with(inputs, targets))
        return replace(self, inputs=inputs, targets=targets, columns=columns)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def graph(self) -> Graph:
        return self.smoothness.graph

    @property
    def width(self) -> int:
        """Number of outputs; a single logit has a 0 beside it."""
        return math.prod(self.graph.out_shape) + self.loss.logistic

    @property
    def classes(self) -> int | None:
        """Number of labels; None for a squared error."""
        return self.width if self.loss.labelled else None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Names of the assumptions of all bounds of this problem."""
        names = [name for node in self.graph.nodes for name in node.assumptions]
        names += deployment.assumptions(self.graph) if self.precision else ()
        if isinstance(self.cost, Claimed):
            names += self.cost.assumptions or ("the cost",)
        return tuple(dict.fromkeys(names + ["the bounds given as `smoothness`"] * (self.claimed is not None)))

    @property
    def evidence(self) -> Evidence:
        """The evidence of its bounds."""
        return Evidence.ASSUMED if self.assumptions else Evidence.PROVEN

    @property
    def unit_cost(self) -> float:
        """g with c(x, x₀) ≥ g‖x − x₀‖²: half of the growth."""
        return self.cost.growth / 2

    @cached_property
    def affine(self) -> bool:
        """Whether every node is affine, so that the gradients at a sample hold everywhere."""
        return all(isinstance(node.primitive, Affine | None) for node in self.graph.nodes)

    @property
    def own(self) -> Tensor:
        """(n, classes) bool, the label of each sample."""
        return torch.arange(self.classes or 0) == self.targets.reshape(len(self), -1)[:, :1]

    def outputs(self, points: Tensor) -> Tensor:
        """(batch, width) outputs of the graph; a single logit gets a 0 before it."""
        return self.margin_outputs(self.graph.apply(points))

    def margin_outputs(self, values: Tensor) -> Tensor:
        """Return (batch, width) outputs from the graph's raw outputs; a single logit gets a 0 before it."""
        values = values.flatten(1)
        return torch.cat([torch.zeros_like(values), values], 1) if self.loss.logistic else values

    def losses(self, points: Tensor) -> Tensor:
        """(batch,) ℓ at one point for each sample, as computed."""
        return self.loss.values(self.outputs(points), self.targets)

    @cached_property
    def rounding(self) -> Rounding:
        """Rounding errors of the graph at the samples."""
        return rounding_at(self.graph, self.inputs)

    def slack(self, losses: Tensor, rounding: Rounding) -> Tensor:
        """(batch,) bound on the rounding of these losses."""
        return self.loss.slack(losses, rounding)

    def slope_error(self, losses: Tensor, rounding: Rounding) -> Tensor:
        """(batch,) L2 bound on the rounding of the gradients of these losses; ∞ for a hinge and its kink."""
        return self.loss.slope_error(losses, self.targets, rounding)

    @cached_property
    def reach(self) -> Tensor:
        """(n,) bound on the distance of points of Z from the sample, in the cost's norm; may be ∞."""
        low, high = self.inputs - self.domain.lower, self.domain.upper - self.inputs
        return self.cost.farthest(torch.maximum(low.abs(), high.abs()))

    def check_domain(self) -> None:
        """Raise ``Refused`` unless Z holds all samples: the gap rule says nothing of points outside."""
        domain, inputs = self.domain, self.inputs
        inside = ((inputs >= domain.lower) & (inputs <= domain.upper)).flatten(1).all(1)
        if domain.center is not None:
            inside &= norm(inputs - domain.center) <= domain.radius
        if not bool(inside.all()):
            raise Refused("samples must lie in the domain")

    @property
    def traits(self) -> Tensor:
        """(n, 2) the dual norm of each sample, and its reach: numbers that tell samples, costs and domains
        apart, so that bounds of one problem are not taken for those of another by mistake."""
        return torch.stack([self.cost.dual(self.inputs), self.reach], 1)

    def feasible(self, slopes: Tensor) -> Tensor:
        """Gradients at the samples without components along which Z, or a mask, allows no move.

        ⟨g, δ⟩ ≤ ⟨g', δ⟩ for every move δ inside Z, where g' drops gᵢ if xᵢ is at a bound and gᵢ points
        outwards. Behind a full matrix g' may be longer than g, which then stays.
        """
        slopes = self.cost.freed(slopes)
        if isinstance(self.cost, Quadratic):
            return slopes
        below, above = self.inputs <= self.domain.lower, self.inputs >= self.domain.upper
        return torch.where((below & (slopes < 0)) | (above & (slopes > 0)), 0.0, slopes)

    def bounds(self, radius: float | None) -> list[Bounds]:
        """Bounds on a ball around each sample, in portions that fit into the cache; everywhere for None."""
        if radius is None:
            return [self.smoothness.everywhere if self.claimed is None else self.claimed]
        few = max(1, _NUMBERS // (self.width * max(math.prod(node.shape) for node in self.graph.nodes)))
        targets = self.targets if self.loss.labelled else self.targets.reshape(len(self), -1)
        radii = torch.full((len(self),), radius, dtype=torch.float64)
        parts = zip(self.inputs.split(few), targets.split(few), radii.split(few), strict=True)
        return [self.smoothness.bound(*part) for part in parts]


class Columns(NamedTuple):
    """Discrete columns of a table.

    Attributes:
        groups: the 0/1 inputs of each; weights: (features,) of the cost.
        frozen: the problem in which none of them changes.
    """

    groups: tuple[tuple[int, ...], ...]
    weights: Tensor
    frozen: Problem


@dataclass(frozen=True, eq=False)
class Values:
    """Losses and margins F_k − F_y at n samples; all but ``start`` rounded up, (n,) or (n, classes).

    Attributes:
        loss, start: ℓ, and ℓ rounded down; slope: the dual norm of ∇ℓ; level: v of ``Loss.level``.
        margins, steepness: F_k − F_y and the dual norms of their gradients, ∞ for too many classes; of shape
            (n, 0) for a squared error.
        root: the dual norm of ∇F, for one affine output and a squared error; ∞ otherwise.
    """

    loss: Tensor
    start: Tensor
    slope: Tensor
    level: Tensor
    margins: Tensor
    steepness: Tensor
    root: Tensor

    @staticmethod
    def at(problem: Problem) -> Values:
        problem.smoothness.check_scales()
        problem.check_domain()
        cost, loss, targets, rounding = problem.cost, problem.loss, problem.targets, problem.rounding
        losses, slope = with_gradient(problem.losses, problem.inputs)
        room = problem.slack(losses, rounding)
        if not bool(torch.isfinite(losses + room).all()):
            raise Refused("the network overflows float64 at some samples")
        steep = cost.dual(problem.feasible(slope)) + cost.dual_size(problem.slope_error(losses, rounding))
        outputs, rows = _output_gradients(problem)
        root, margins = torch.full_like(losses, math.inf), losses.new_empty(len(losses), 0)
        steepness, error = margins, cost.dual_size(rounding.difference())
        if loss.labelled:
            margins = margins_above(outputs, targets, rounding)
            steepness = torch.where(problem.own, 0.0, math.inf).double()
        if loss.labelled and rows:
            stacked = torch.stack(rows)
            mine = stacked[targets, torch.arange(len(targets))]
            duals = [cost.dual(problem.feasible(row - mine)) + error for row in stacked]
            steepness = torch.where(problem.own, 0.0, torch.stack(duals, 1))
        elif len(rows) == 1 and problem.affine:
            # |F − y| grows where F rises, and where it falls.
            both = [cost.dual(problem.feasible(row)) for row in (rows[0], -rows[0])]
            root = torch.maximum(*both) + error
        level = loss.level(outputs, targets, rounding)
        values = Values(losses + room, losses - 1.1 * room, steep, level, margins, steepness, root)
        return values if problem.deviation is None else values.deployed(problem, problem.deviation)

    def deployed(self, problem: Problem, off: deployment.Deviation) -> Values:
        """Return the values of the network in float32: no margin moves by more than the deviation."""
        loss, own = problem.loss, problem.own
        assert isinstance(loss, Softmax)
        rise = up(loss.slope * off.start, SOME)
        return replace(
            self,
            loss=up(self.loss + rise, SOME),
            start=self.start - up(rise, SOME),
            level=self.level + up(loss.scale * off.start, SOME) + SOME * self.level.abs(),
            margins=torch.where(own, 0.0, self.margins + off.start.unsqueeze(1) + FEW * self.margins.abs()),
            steepness=torch.where(own, 0.0, up(self.steepness + off.slope, SOME)),
        )


def _output_gradients(problem: Problem) -> tuple[Tensor, list[Tensor]]:
    """(n, width) outputs at the samples, and (n, *shape) gradients of each; none if they are many, or if no
    rule uses them."""
    leaf = problem.inputs.clone().requires_grad_()
    with torch.enable_grad():
        outputs = problem.outputs(leaf)
        used = problem.width <= MOST_CLASSES and (problem.loss.labelled or problem.affine)
        # Behind a sort or a length no ball has a finite curvature, so that no rule uses gradients.
        used &= not any(isinstance(node.primitive, Grouped) for node in problem.graph.nodes)
        rows = [
            torch.autograd.grad(column.sum(), leaf, retain_graph=True)[0]
            for column in outputs.unbind(1)[: problem.width if used else 0]
        ]
    return outputs.detach(), rows
