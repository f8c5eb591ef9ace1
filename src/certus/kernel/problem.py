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
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from certus.kernel.costs import Claimed, Cost, Domain, Quadratic
from certus.kernel.evidence import Evidence
from certus.kernel.graph import Graph, Node
from certus.kernel.losses import Softmax
from certus.kernel.operators import Affine, Convolution, Dense, Diagonal, Product, Reshape
from certus.kernel.passes import Refused, norm
from certus.kernel.rounding import FEW, HUNDREDS, SOME, TENS, slack, up
from certus.kernel.smoothness import MOST_CLASSES, Bounds, Smoothness

_NUMBERS = 1 << 18  # in one tensor of a pass: 2 MB, which fits into the cache


@dataclass(frozen=True)
class Hinge:
    """max(0, 1 + m)^power for one output F beside an output 0, m its margin, and power 1 or 2."""

    power: int = 1


Loss = Softmax | Hinge | None
"""None is the squared error ‖F − y‖²."""


@dataclass(frozen=True, eq=False)
class Rounding:
    """Error bounds at each of n points; every entry is (n,).

    Attributes:
        outputs: largest absolute computed output; values: bound on |computed − true| of every output.
        rows: bound on the L2 norm of the gradient of Σ rₖFₖ, for every ‖r‖ ≤ 1.
        slopes: bound on the L2 error of such a gradient, if r itself is exact.
    """

    outputs: Tensor
    values: Tensor
    rows: Tensor
    slopes: Tensor

    def gradient(self, row: Tensor, error: Tensor) -> Tensor:
        """(n,) error of gradients for rows with ‖r‖ ≤ ``row`` and ‖r̂ − r‖ ≤ ``error``, both (n,)."""
        return up((row + error) * self.slopes + error * self.rows)


def outputs_at(graph: Graph, points: Tensor) -> tuple[Tensor, Tensor]:
    """(n, …) outputs and (n,) ``Rounding.values`` at (n, *shape) float64 points, which are taken as exact."""
    outputs, error, _ = graph.rounded(points)
    return outputs, _largest(error)


def rounding_at(graph: Graph, points: Tensor) -> Rounding:
    """All errors at (n, *shape) points, for about the cost of two evaluations."""
    outputs, error, memory = graph.rounded(points)
    start = torch.ones(len(points), dtype=torch.float64)
    rows, slopes = graph.backward_error(memory, start, torch.zeros_like(start))
    return Rounding(outputs.abs().flatten(1).amax(1), _largest(error), rows, 2 * slopes)


def _largest(error: Tensor) -> Tensor:
    """Largest error, doubled to cover the rounding of this computation; NaN becomes ∞."""
    return 2 * error.flatten(1).amax(1).nan_to_num(math.inf, math.inf)


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
    """

    smoothness: Smoothness
    loss: Loss
    cost: Cost
    domain: Domain
    inputs: Tensor
    targets: Tensor
    claimed: Bounds | None = None

    @staticmethod
    def of(
        graph: Graph,
        loss: Loss,
        cost: Cost,
        domain: Domain,
        data: tuple[Tensor, Tensor],
        claimed: Bounds | None = None,
    ) -> Problem:
        """Merge the cost into the first layer of a graph; its norm there may be claimed before use."""
        if cost.shape != graph.shape:
            raise Refused(f"the cost is for points of shape {cost.shape}; the graph takes {graph.shape}")
        moved = graph if cost.whitening is None else whitened(graph, cost.whitening)
        softmax = Softmax(logistic=True) if isinstance(loss, Hinge) else loss
        if softmax is not None and softmax.logistic != (math.prod(graph.out_shape) == 1):
            raise Refused("a logistic loss or a hinge has one output, others of the softmax family several")
        smoothness = Smoothness(moved, softmax, length=cost.length, unit=cost.unit)
        return Problem(smoothness, loss, cost, domain, *data, claimed).about(*data)

    def about(self, inputs: Tensor, targets: Tensor) -> Problem:
        """The same problem for other samples, which are checked."""
        count, classes, outputs = len(inputs), self.classes, math.prod(self.graph.out_shape)
        fits = (
            inputs.shape[1:] == self.graph.shape and inputs.dtype == torch.float64 and len(targets) == count
        )
        if classes is None:
            fits = fits and targets.dtype == torch.float64 and targets.numel() == count * outputs
        else:
            fits = fits and targets.dtype == torch.int64 and targets.shape == (count,)
            fits = fits and bool(((targets >= 0) & (targets < classes)).all())
        if not fits or not bool(torch.isfinite(inputs).all()):
            raise Refused(
                "samples must be finite, of the graph's shape, with a label or float64 numbers each"
            )
        return replace(self, inputs=inputs, targets=targets)

    def select(self, index: slice | Tensor) -> Problem:
        """The problem restricted to some samples."""
        return replace(self, inputs=self.inputs[index], targets=self.targets[index])

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def graph(self) -> Graph:
        return self.smoothness.graph

    @property
    def classes(self) -> int | None:
        """Number of labels; None for a squared error. A single logit stands for two."""
        softmax = self.smoothness.softmax
        return None if softmax is None else math.prod(self.graph.out_shape) + softmax.logistic

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Names of everything that bounds of this problem rest on without proof."""
        names = [name for node in self.graph.nodes for name in node.assumptions]
        if isinstance(self.cost, Claimed):
            names += self.cost.assumptions or ("the cost",)
        return tuple(dict.fromkeys(names + ["the bounds given as `smoothness`"] * (self.claimed is not None)))

    @property
    def evidence(self) -> Evidence:
        """That of its bounds."""
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
        """(batch, classes) outputs of the graph; a single logit gets a 0 before it."""
        return self.margin_outputs(self.graph.apply(points))

    def margin_outputs(self, values: Tensor) -> Tensor:
        """The same from the graph's raw outputs."""
        values, softmax = values.flatten(1), self.smoothness.softmax
        single = softmax is not None and softmax.logistic
        return torch.cat([torch.zeros_like(values), values], 1) if single else values

    def losses(self, points: Tensor) -> Tensor:
        """(batch,) ℓ at one point for each sample, as computed."""
        outputs = self.outputs(points)
        if self.loss is None:
            return ((outputs - self.targets.reshape(outputs.shape)) ** 2).sum(1)
        own, labels = self.own, self.targets.unsqueeze(1)
        if isinstance(self.loss, Hinge):
            margins = (outputs - outputs.gather(1, labels))[~own]
            return (1 + margins).clamp_min(0) ** self.loss.power
        lifted = torch.where(own, outputs, outputs + self.loss.offset)  # a float times a bool is float32
        logs = torch.log_softmax(self.loss.scale * lifted, 1)
        share = self.loss.smoothing
        heights = -(1 - share) * logs.gather(1, labels)[:, 0] - share * logs.mean(1)
        return self.loss.slope / self.loss.scale * heights

    @cached_property
    def rounding(self) -> Rounding:
        """Rounding errors of the graph at the samples."""
        return rounding_at(self.graph, self.inputs)

    def slack(self, losses: Tensor, rounding: Rounding) -> Tensor:
        """(batch,) bound on the rounding of these losses."""
        own = SOME * (1 + losses.abs())
        if isinstance(self.loss, Softmax):
            return 2 * self.loss.slope * rounding.values + self._softmax_rounding(self.loss, rounding) + own
        error = rounding.values * math.sqrt(self.smoothness.outputs.classes)
        if self.loss == Hinge(1):
            return 2 * error + own
        return 2 * losses.clamp_min(0).sqrt() * error + error**2 + own

    def slope_error(self, losses: Tensor, rounding: Rounding) -> Tensor:
        """(batch,) L2 bound on the rounding of the gradients of these losses; ∞ for a hinge and its kink.

        A softmax is ½-Lipschitz from the sup-norm of its arguments to each of its entries, and ‖p − t‖² ≤ 2.
        """
        root = math.sqrt(self.smoothness.outputs.classes)
        if isinstance(self.loss, Hinge):
            return torch.full_like(losses, math.inf)
        if self.loss is not None:
            row = torch.full_like(losses, 1.5 * self.loss.slope)
            off = self.loss.slope * self.loss.scale / 2 * rounding.values
            off = off + self.loss.scale * self._softmax_rounding(self.loss, rounding)
            return rounding.gradient(row, root * off)
        away = 2 * (losses + self.slack(losses, rounding)).clamp_min(0).sqrt()
        sizes = rounding.outputs + self.targets.abs().reshape(len(self), -1).amax(1)
        return rounding.gradient(away, root * (2 * rounding.values + slack(8) * sizes))

    def _softmax_rounding(self, loss: Softmax, rounding: Rounding) -> Tensor:
        """(batch,) the rounding of the loss itself, relative to the terms that cancel."""
        sizes = 1 + loss.scale * (rounding.outputs + abs(loss.offset))
        return loss.slope / loss.scale * slack(self.smoothness.outputs.classes + 16) * sizes

    @cached_property
    def reach(self) -> Tensor:
        """(n,) bound on the distance of points of Z from the sample, in the cost's norm; may be ∞."""
        low, high = self.inputs - self.domain.lower, self.domain.upper - self.inputs
        return self.cost.farthest(torch.maximum(low.abs(), high.abs()))

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
        widest = max(math.prod(node.shape) for node in self.graph.nodes)
        few = max(1, _NUMBERS // (self.smoothness.outputs.classes * widest))
        targets = self.targets if self.loss is not None else self.targets.reshape(len(self), -1)
        radii = torch.full((len(self),), radius, dtype=torch.float64)
        parts = zip(self.inputs.split(few), targets.split(few), radii.split(few), strict=True)
        return [self.smoothness.bound(*part) for part in parts]


@dataclass(frozen=True, eq=False)
class Values:
    """Losses and margins F_k − F_y at n samples; all but ``start`` rounded up, (n,) or (n, classes).

    Attributes:
        loss, start: ℓ, and ℓ rounded down; slope: the dual norm of ∇ℓ.
        margins, steepness: F_k − F_y and the dual norms of their gradients, ∞ for too many classes; of shape
            (n, 0) for a squared error. error: (n,) of these gradients, in the dual norm.
        level: v of the loss as a function of one number (``scores``).
        root: the dual norm of ∇F, for one affine output and a squared error; ∞ otherwise.
    """

    loss: Tensor
    start: Tensor
    slope: Tensor
    margins: Tensor
    steepness: Tensor
    error: Tensor
    level: Tensor
    root: Tensor

    @staticmethod
    def at(problem: Problem) -> Values:
        problem.smoothness.check_scales()
        cost, rounding, own = problem.cost, problem.rounding, problem.own
        leaf = problem.inputs.clone().requires_grad_()
        with torch.enable_grad():
            losses = problem.losses(leaf)
            (slope,) = torch.autograd.grad(losses.sum(), leaf)
            outputs = problem.outputs(leaf)
            few = outputs.shape[1] <= MOST_CLASSES and (problem.loss is not None or problem.affine)
            rows = [
                torch.autograd.grad(outputs[:, k].sum(), leaf, retain_graph=True, allow_unused=True)[0]
                for k in range(outputs.shape[1] if few else 0)
            ]
        losses, outputs = losses.detach(), outputs.detach()
        rows = [torch.zeros_like(leaf) if row is None else row for row in rows]
        room = problem.slack(losses, rounding)
        if not bool(torch.isfinite(losses + room).all()):
            raise Refused("the network overflows float64 at some samples")
        slopes = cost.dual(problem.feasible(slope)) + cost.dual_size(problem.slope_error(losses, rounding))
        # Two gradients of outputs, each with its error, and the rounding of their difference.
        error = 2 * cost.dual_size(rounding.slopes + FEW * rounding.rows)
        margins, steepness = losses.new_empty(len(losses), 0), losses.new_empty(len(losses), 0)
        level, root = losses + room, torch.full_like(losses, math.inf)
        if problem.loss is None:
            away, width = outputs - problem.targets.reshape(outputs.shape), outputs.shape[1]
            level = up(norm(away), slack(width)) + math.sqrt(width) * (rounding.values + FEW * norm(outputs))
            if len(rows) == 1:
                # |F − y| grows where F rises, and where it falls.
                both = [cost.dual(problem.feasible(row)) for row in (rows[0], -rows[0])]
                root = torch.maximum(*both) + error
        else:
            margins = outputs - outputs[own].unsqueeze(1)
            margins = margins + 2 * rounding.values.unsqueeze(1) + TENS * margins.abs()
            margins = torch.where(own, 0.0, margins)
            steepness = torch.where(own, 0.0, torch.full_like(margins, math.inf))
            if rows:
                stacked = torch.stack(rows)
                mine = stacked[problem.targets, torch.arange(len(leaf))]
                duals = [cost.dual(problem.feasible(row - mine)) + error for row in stacked]
                steepness = torch.where(own, 0.0, torch.stack(duals, 1))
        if isinstance(problem.loss, Hinge):
            level = (1 + margins[~own]) + FEW * (1 + margins[~own].abs())
        elif problem.loss is not None and not problem.loss.smoothing:
            lifted = torch.where(own, -math.inf, problem.loss.scale * (margins + problem.loss.offset))
            sizes = 1 + torch.where(own, 0.0, lifted).abs().amax(1)
            level = torch.logsumexp(lifted, 1) + max(HUNDREDS, slack(lifted.shape[1])) * sizes
        return Values(losses + room, losses - 1.1 * room, slopes, margins, steepness, error, level, root)
