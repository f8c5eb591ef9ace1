"""Transport distance between data sets: exact, bounded and estimated.

    W_c(A, B) = inf over couplings of E c(z_A, z_B),        c = c_x + λ·1{y ≠ y'}               [sec:approach]

Small samples are coupled exactly. Large ones are cut into blocks of equal mass, in a random order, and
coupled block by block: any coupling costs at least W_c, so the mean over blocks is a proven upper bound. From
below, for a squared norm, W_c ≥ ‖mean A − mean B‖² + λ·TV(labels) by Jensen's inequality. In a table, a
category that is unknown to the encoding counts as one more value of its column. (Its inputs are all 0, which
would cost half of any other change: valid for upper bounds, but too small for a distance.)

The distance between the *populations* is usually smaller, since two samples of one population differ already.
The part that is due to sampling is measured on halves of each sample, and subtracted:

    Ŵ = mean over random disjoint halves of equal size of  ½(W(A₁, B₁) + W(A₂, B₂)) − ½(W(A₁, A₂) + W(B₁, B₂))

This is *estimated*: unbiased for translations, too small where the spread changes, and never a budget for a
certificate. For a separable cost the sum over columns, Σ_j w_j W(A_j, B_j), is a proven lower bound on
W_c; its one-dimensional parts are exact, by sorting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from certus._validation import checked_weights
from certus.costs import Cost, SquaredL2, WeightedL2
from certus.costs.claims import is_builtin
from certus.data import RowEncoding, Samples, halves
from certus.errors import UnsupportedError, require, require_count
from certus.kernel.rounding import FEW, MANY, SOME, down, up
from certus.kernel.transport import sorted_costs


def with_unknown(first: Samples, second: Samples, cost: Cost) -> tuple[Samples, Samples, Cost]:
    """Add an input for each categorical column, 1 where its value is unknown; return both samples and the
    cost, unchanged if all values are known."""
    encoding = first.encoding or second.encoding
    if encoding is None or not encoding.categories:
        return first, second, cost
    more = [encoding.unknown(part.inputs) for part in (first, second)]
    if not any(bool(part.any()) for part in more):
        return first, second, cost
    first, second = (
        replace(part, inputs=torch.cat([part.inputs, marks], 1), encoding=None)
        for part, marks in zip((first, second), more, strict=True)
    )
    return first, second, wider_cost(cost, encoding)


def wider_cost(cost: Cost, encoding: RowEncoding) -> Cost:
    """Return the cost with weights for the inputs that mark unknown categories."""
    if not isinstance(cost, WeightedL2):
        return cost
    weights = cost.weights.expand(len(encoding.means))
    more = weights[[column.inputs[0] for column in encoding.categories]]
    return WeightedL2(torch.cat([weights, more]))


_LARGEST = 500  # samples of a half that are coupled in one piece


def estimated_distance(
    first: Samples,
    second: Samples,
    cost: Cost,
    *,
    label_cost: float | None = None,
    seed: int = 0,
    rounds: int = 3,
) -> float | None:
    """Estimate the distance Ŵ between the populations of two unweighted samples; of inputs alone without a
    label cost.

    Returns: None if a half of a sample has fewer than 2 rows. The estimate may be negative where nothing has
    moved.
    """
    for name, data in (("first", first), ("second", second)):
        require(
            data.weights is None, name, "have no weights, for its random halves to be comparable", "weights"
        )
    size = min(len(first), len(second)) // 2
    if size < 2:
        return None
    if label_cost is None:
        first, second = _unlabelled(first), _unlabelled(second)
    size, estimates = min(size, _LARGEST), []
    for turn in range(rounds):
        (a, b), (c, d) = (_equal_halves(part, size, seed + turn) for part in (first, second))
        if min(len(a), len(c)) < 2:  # labels that occur once have no second half
            return None

        def between(first: Samples, second: Samples) -> float:
            return transport_distance(first, second, cost, label_cost=label_cost, seed=seed).high

        estimates.append((between(a, c) + between(b, d) - between(a, b) - between(c, d)) / 2)
    return sum(estimates) / rounds


def column_shifts(first: Tensor, second: Tensor, cost: Cost) -> Tensor | None:
    """Return (features,) w_j W(A_j, B_j) of (n, features) and (m, features) inputs, rounded down; their
    sum is a proven lower bound on W_c between the samples. None for a cost that is not a sum over columns."""
    if not isinstance(cost, SquaredL2 | WeightedL2) or first.dim() != 2:
        return None
    weights = cost.weights.double() if isinstance(cost, WeightedL2) else torch.ones(first.shape[1]).double()
    moved = sorted_costs(first.double(), second.double())
    return down(weights.expand_as(moved) * moved, SOME)


def _equal_halves(data: Samples, size: int, seed: int) -> tuple[Samples, Samples]:
    """Return two random halves of at most a given size, with the label shares of the sample."""
    first, second = halves(data, seed)
    rows = torch.linspace(0, len(first) - 1, min(size, len(first))).round().long()
    return first[rows], second[rows]


_SOLVED = 1e-7  # how exactly POT is taken to solve a transport problem, relative to its value


@dataclass(frozen=True)
class Shift:
    """W_c between two samples.

    Attributes:
        low, high: proven bounds; equal up to the solver's rounding if ``exact``.
        spread: standard error of ``high``, the mean over blocks; 0 if exact.
        blocks: number of solved couplings.
        labels: total variation between the label shares; None without labels.
        reason: reason for an infinite distance; None if it is finite.
    """

    low: float
    high: float
    exact: bool
    spread: float
    blocks: int
    labels: float | None
    reason: str | None = None


def transport_distance(
    first: Samples,
    second: Samples,
    cost: Cost,
    *,
    label_cost: float | None = None,
    exact_up_to: int = 1500,
    block: int = 500,
    seed: int = 0,
) -> Shift:
    """Bound W_c between two samples of one type; rows count by their weights, if given.

    In a table (``Samples.encoding``) all unknown values of a column count as one further category.

    Args:
        label_cost: λ; by default labels never move, and samples with different label shares have infinite
            distance.
        exact_up_to: size of the largest sample that is coupled exactly; block: size of the blocks of larger
            ones.
    """
    for name, value in (("exact_up_to", exact_up_to), ("block", block)):
        require_count(name, value)
    priced = label_cost is None or 0 < label_cost < math.inf
    require(priced, "label_cost", "be positive and finite", label_cost)
    if not cost.finite:
        raise UnsupportedError(
            "Masked costs are infinite between most samples: measure the free features alone."
        )
    first, second = _weighed(first, "first"), _weighed(second, "second")
    shape, other = (tuple(data.inputs.shape[1:]) for data in (first, second))
    require(shape == other, "second", f"have inputs of shape {shape}", other)
    labelled = not first.targets.is_floating_point()
    require(labelled or label_cost is None, "label_cost", "be left out for regression", label_cost)
    apart = _label_distance(first, second) if labelled else None
    if apart is not None and apart > SOME and label_cost is None:
        reason = f"the label shares differ by {apart:.4f} in total variation, and there is no label cost"
        return Shift(math.inf, math.inf, True, 0.0, 0, apart, reason)
    first, second, cost = with_unknown(first, second, cost)
    options = {"exact_up_to": exact_up_to, "block": block, "seed": seed}
    if apart is not None and label_cost is None:
        return _by_class(first, second, cost, options)
    largest = max(len(first), len(second))
    pieces = 1 if largest <= exact_up_to else -(-largest // block)
    generator = torch.Generator().manual_seed(seed)
    left, right = (_blocks(_masses(data), pieces, generator) for data in (first, second))
    couplings = zip(left, right, strict=True)
    values = [_exact(first, mine, second, yours, cost, label_cost) for mine, yours in couplings]
    distances = torch.tensor(values, dtype=torch.float64)
    mean = float(distances.mean())
    if pieces == 1:
        return Shift(down(mean, _SOLVED), up(mean, _SOLVED), True, 0.0, 1, apart)
    return Shift(
        low=_jensen(first, second, cost) + (label_cost or 0.0) * (apart or 0.0),
        high=up(mean, _SOLVED),
        exact=False,
        spread=float(distances.std()) / math.sqrt(pieces),
        blocks=pieces,
        labels=apart,
    )


def _unlabelled(data: Samples) -> Samples:
    return replace(data, targets=torch.zeros(len(data)))


def _by_class(first: Samples, second: Samples, cost: Cost, options: dict[str, int]) -> Shift:
    """Couple each class with itself, for fixed labels with equal shares."""
    parts, shares = [], []
    for label in first.targets.unique():
        mine, yours = (_unlabelled(data[data.targets == label]) for data in (first, second))
        parts.append(transport_distance(mine, yours, cost, **options))
        shares.append(float(_masses(first)[first.targets == label].sum()))

    def mean(values: list[float]) -> float:
        return sum(share * value for share, value in zip(shares, values, strict=True))

    return Shift(
        low=mean([part.low for part in parts]),
        high=mean([part.high for part in parts]),
        exact=all(part.exact for part in parts),
        spread=math.sqrt(sum((share * part.spread) ** 2 for share, part in zip(shares, parts, strict=True))),
        blocks=sum(part.blocks for part in parts),
        labels=0.0,
    )


def _weighed(data: Samples, name: str) -> Samples:
    """Return the rows of positive weight; all without weights."""
    require(len(data) > 0, name, "hold at least one row", "none")
    lowest = data.targets.min()
    numbered = data.targets.is_floating_point() or bool(lowest >= 0)
    require(numbered, name, "have labels that are numbered from 0 on", int(lowest))
    if data.weights is None:
        return data
    masses = checked_weights(data.weights, len(data)) / len(data)
    rule = f"have weights of 0, or of at least {MANY:g} of their sum, which the solver needs"
    require(
        bool(((masses == 0) | (masses >= MANY)).all()), name, rule, f"{float(masses[masses > 0].min()):.3g}"
    )
    return data[masses > 0]


def _masses(data: Samples) -> Tensor:
    """Return (n,) masses of the rows, of sum 1."""
    weights = torch.ones(len(data)) if data.weights is None else data.weights
    return checked_weights(weights, len(data)) / len(data)


def _blocks(masses: Tensor, pieces: int, generator: torch.Generator) -> list[_Block]:
    """Cut a sample of (n,) masses into blocks of mass 1/pieces, which may share a row."""
    order = torch.randperm(len(masses), generator=generator)
    ends = masses[order].cumsum(0)
    starts = ends - masses[order]
    parts = []
    for piece in range(pieces):
        share = ends.clamp_max((piece + 1) / pieces) - starts.clamp_min(piece / pieces)
        inside = share > FEW
        parts.append((order[inside], share[inside] / share[inside].sum()))
    return parts


_Block = tuple[Tensor, Tensor]
"""(m,) rows of a sample, and (m,) masses that sum to 1."""


def _exact(
    first: Samples, mine: _Block, second: Samples, yours: _Block, cost: Cost, price: float | None
) -> float:
    """Return the optimal transport cost between two weighted blocks, by a network simplex."""
    try:
        import ot
    except ImportError:
        raise UnsupportedError(
            "Distances between data sets need POT: pip install 'certus[transport]'."
        ) from None
    a, b = first[mine[0]], second[yours[0]]
    moved = b.inputs.double()
    costs = torch.stack([cost.value(moved, origin.expand_as(moved)) for origin in a.inputs.double()])
    if price is not None:
        costs = costs + price * (a.targets[:, None] != b.targets[None, :])
    if not bool(torch.isfinite(costs).all()):
        raise UnsupportedError(f"{cost} is infinite between some samples.")
    return float(ot.emd2(mine[1].numpy(), yours[1].numpy(), costs.numpy(), numItermax=10_000_000))


def _label_distance(first: Samples, second: Samples) -> float:
    classes = int(max(first.targets.max(), second.targets.max())) + 1
    shares = [torch.bincount(data.targets, _masses(data), minlength=classes) for data in (first, second)]
    return float((shares[0] - shares[1]).abs().sum()) / 2


def _jensen(first: Samples, second: Samples, cost: Cost) -> float:
    """g‖mean A − mean B‖², a lower bound on the transport of the inputs."""
    if not is_builtin(cost):
        return 0.0  # it would rest on a growth that is only claimed
    centre = first.inputs[:1].double()  # or means of large numbers would cancel
    means = [
        torch.einsum("n,n...->...", _masses(data), data.inputs.double() - centre) for data in (first, second)
    ]
    return down(float(cost.growth / 2 * cost.norm((means[1] - means[0]).unsqueeze(0)) ** 2))
