"""500 fixed problems with the public results of the kernel, and the direction in which each may only move.

A result is an upper bound (1), a lower bound (−1), or a number that must not change (0). ``Refused`` counts
as an infinite bound. A mutant whose upper bounds are never smaller, and whose lower bounds are never larger,
only loosens; one that moves any of them the other way, or changes a number, does not.
"""

from __future__ import annotations

# ruff: noqa: B023  # every result is computed before the next one is drawn
import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.kernel import (
    binomial,
    concentration,
    error_rates,
    graph_files,
    rounding,
    smoothing,
    tree_profiles,
    trees,
)
from certus.kernel.costs import Claimed, Cost, Domain, Lp, Quadratic
from certus.kernel.error_rates import ClassCosts, complement
from certus.kernel.evidence import Evidence, mark
from certus.kernel.graph import Graph, Node
from certus.kernel.losses import Form, Hinge, Score, Softmax
from certus.kernel.majorants import Tangents, constants, hidden_layer, parabolas
from certus.kernel.max_pool import MaxPool
from certus.kernel.norms import checked_norm, checked_quadratic
from certus.kernel.operators import (
    Affine,
    AxisProduct,
    Convolution,
    Dense,
    Diagonal,
    Gather,
    Product,
    Reshape,
    Transposed,
)
from certus.kernel.passes import Primitive, Refused, Rounded
from certus.kernel.pointwise import Pointwise, scalar
from certus.kernel.problem import Problem, Values, rounding_at
from certus.kernel.radial import neighborhoods
from certus.kernel.rules import (
    DualBounds,
    Proposal,
    SampleBounds,
    bounds_by_rule,
    clip_within,
    dual_bounds,
    error_costs,
    gamma_within,
    over_labels,
)
from certus.kernel.statement import PopulationBounds, Statement, failure_shares
from tests.kernel import tree_oracle

Results = Iterator[tuple[int, Callable[[], Any]]]
UP, DOWN, SAME = 1, -1, 0


def names() -> list[str]:
    """All problems."""
    return [f"{family.__name__} {seed}" for family, count in _FAMILIES for seed in range(count)]


def evaluate(name: str) -> list[tuple[int, list[float] | str]]:
    """Results of one problem."""
    family, seed = name.split()
    families = {each.__name__: each for each, _ in _FAMILIES}
    return list(map(_evaluated, _guarded(families[family], int(seed))))


def _guarded(family: Callable[[int], Results], seed: int) -> Results:
    """Results of a problem that cannot even be built: one refusal."""
    try:
        yield from family(seed)
    except Refused as refused:
        message = refused

        def refuse() -> None:
            raise message

        yield UP, refuse


def _evaluated(result: tuple[int, Callable[[], Any]]) -> tuple[int, list[float] | str]:
    direction, compute = result
    try:
        return direction, _floats(compute())
    except Refused:
        return direction, "refused"
    except Exception as error:
        return direction, f"raises {type(error).__name__}"


def _floats(value: Any) -> list[float]:
    if isinstance(value, Tensor | np.ndarray):
        flat: list[float] = torch.as_tensor(value).detach().double().flatten().tolist()
        return flat
    if isinstance(value, Sequence):
        return [number for part in value for number in _floats(part)]
    return [float(value)]


def compare(before: Sequence[Any], after: Sequence[Any]) -> str:
    """Return "equal", "loosens", "tightens", "differs" or "raises": the worst of all results of a problem."""
    if len(before) != len(after):
        return "loosens" if [UP, "refused"] in after and len(after) == 1 else "differs"
    return worst({_moved(old[0], old[1], new[1]) for old, new in zip(before, after, strict=True)})


def worst(kinds: set[str]) -> str:
    """The worst of some kinds."""
    return next((kind for kind in ("raises", "tightens", "differs", "loosens") if kind in kinds), "equal")


def _moved(direction: int, old: list[float] | str, new: list[float] | str) -> str:
    if old == new:
        return "equal"
    if isinstance(new, str):
        return "loosens" if new == "refused" and direction else "raises"
    if isinstance(old, str):
        return "tightens"
    if direction == SAME or len(old) != len(new):
        pairs = list(zip(old, new, strict=False))
        same = len(old) == len(new) and all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in pairs)
        return "equal" if same else "differs"
    shifts = [(direction * a, direction * b) for a, b in zip(old, new, strict=True) if a != b]
    shifts = [(a, b) for a, b in shifts if not (math.isnan(a) and math.isnan(b))]
    if not shifts:
        return "equal"
    return "loosens" if all(b > a or math.isnan(a) for a, b in shifts) else "tightens"


def _random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _uniform(seed: int, *shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rounded(seed: int) -> Results:
    values = _random(seed, 4 + seed) * 10.0 ** (seed - 4)
    weights = _uniform(seed, 4 + seed)
    weights[0] = 0.0
    weights = weights / weights.mean()
    yield UP, lambda: rounding.mean_up(values)
    yield DOWN, lambda: rounding.mean_down(values)
    yield UP, lambda: rounding.mean_up(values.float(), weights)
    yield DOWN, lambda: rounding.mean_down(values, weights)
    yield UP, lambda: rounding.up(values.abs())
    yield DOWN, lambda: rounding.down(values.abs(), rounding.SOME)
    yield UP, lambda: rounding.slack(seed)
    yield UP, lambda: rounding.mean_up(torch.cat([values, values.new_tensor([math.inf])]))


def norms(seed: int) -> Results:
    rows, columns = 1 + seed % 5, 1 + seed // 3 % 5
    matrices = _random(seed, 2, rows, columns) * 10.0 ** (20 * (seed % 7) - 60)
    if seed % 2:
        matrices = torch.complex(matrices, _random(seed + 1, 2, rows, columns))
    largest = float(torch.linalg.matrix_norm(matrices, 2).max())
    for factor in (1 + 1e-9, 1.5, 1 - 1e-9, 0.5, 0.0, math.inf, math.nan):
        yield UP, lambda: checked_norm(matrices, factor * largest, 0.01 * (seed % 3))
    yield UP, lambda: checked_norm(0 * matrices, 1.0, 0.25)
    weights = _uniform(seed, 3, rows) * (_uniform(seed + 9, 3, 1) > 0.3)
    real = matrices.real.contiguous()[0] if matrices.is_complex() else matrices[0]
    yield UP, lambda: checked_quadratic(real, weights)
    yield UP, lambda: checked_quadratic(real, weights, 0.9 * checked_quadratic(real, weights))
    yield UP, lambda: checked_quadratic(real, weights, weights.new_tensor([math.nan, math.inf, 1e300]))


def _convolution(seed: int, axes: int = 2) -> Convolution:
    groups = 1 + seed % 2
    return Convolution(
        _random(seed, 2 * groups, 2, *([2 + seed % 2] * axes)),
        _random(seed + 1, 2 * groups, *([1] * axes)),
        (2 * groups, *([5] * axes)),
        stride=(1 + seed % 3,) * axes,
        padding=((seed % 3, 1),) * axes,
        dilation=(1 + seed // 2 % 2,) * axes,
        groups=groups,
    )


def _operator(seed: int) -> Affine:
    kinds: tuple[Callable[[], Affine], ...] = (
        lambda: Dense(_random(seed, 3, 4), _random(seed + 1, 3)),
        lambda: Dense(_random(seed, 4, 2), None),
        lambda: Diagonal(_random(seed, 4), _random(seed + 1, 4), (4,)),
        lambda: Gather(torch.tensor([[0, 0, -1], [1, 0, 2]]), (4,)),
        lambda: Reshape((2, 2), (4,)),
        lambda: AxisProduct((_random(seed, 3, 2),), _random(seed + 1, 3), (2, 2)),
        lambda: AxisProduct((_uniform(seed, 2, 4), _uniform(seed + 1, 3, 4)), None, (2, 4, 4)),
        lambda: _convolution(seed),
        lambda: _convolution(seed, 1 + 2 * (seed % 2)),
        lambda: Transposed(_convolution(seed), None),
        lambda: Product(
            (Diagonal(_random(seed, 4), _random(seed + 1, 4), (4,)), Dense(_random(seed, 3, 4), None))
        ),
    )
    return kinds[seed % len(kinds)]()


def claim(operator: Primitive | None, factor: float = 1 + 1e-6, *, written: bool = False) -> None:
    """Claim the norm that LAPACK computes, times a factor."""
    if not isinstance(operator, Affine):
        return
    parts = operator.weights if isinstance(operator, AxisProduct) else (operator.matrix(),)
    if isinstance(operator, Convolution) and not written:
        wide = float(operator.absolute_norm)  # of the torus
        operator.accept((wide * factor,))
        return
    operator.accept(
        tuple(float(torch.linalg.matrix_norm(part, 2)) * factor for part in parts), written=written
    )


def operators(seed: int) -> Results:
    points = _random(seed, 2, *_operator(seed).in_shape)
    rows = _random(seed + 1, 2, *_operator(seed).out_shape)
    for factor, written in ((None, False), (1 + 1e-6, True), (1 + 1e-6, False), (1 - 1e-6, True)):
        operator = _operator(seed)
        operator.folds = seed % 3

        def bounds(
            operator: Affine = operator, factor: float | None = factor, written: bool = written
        ) -> Any:
            if factor is not None:
                claim(operator, factor, written=written)
            at, ones = Rounded(points, 1e-6 * points.abs()), torch.ones(2).double()
            pulled = operator.backward_error(ones, 1e-3 * ones, at)
            parts = [operator.norm, operator.absolute_norm, operator.row_norms, operator.column_norms]
            return [
                *parts,
                operator.rounded(*at).error,
                *pulled,
                operator.amplify(0.7),
            ]

        yield UP, bounds
    plain = _operator(seed)
    yield SAME, lambda: [plain.apply(points), plain.transpose(rows), plain.matrix()]
    yield (
        UP,
        lambda: [
            plain.absolute(points.abs()),
            plain.absolute_transpose(rows.abs()),
            plain.sizes(points.abs()),
        ],
    )


_SCALARS = (
    *(("sigmoid",), ("tanh",), ("softplus",), ("elu",), ("gelu",), ("gelu_tanh",), ("silu",), ("mish",)),
    *(
        ("log_cosh",),
        ("smooth_abs",),
        ("piecewise_linear", 0.1, 1.0),
        ("clamp", -1.0, math.inf),
        ("clamp", 0.0, 6.0),
    ),
    *(("kinked_elu", 0.7, 1.3), ("softplus_threshold", 20.0), ("clamp", 1.0, 1.0), ("nothing",)),
)


def activations(seed: int) -> Results:
    name, *settings = _SCALARS[seed % len(_SCALARS)]
    sharpness: Any = (1.0, 2.5, torch.tensor([0.5, 1.0, 3.0]).double(), -1.0)[seed % 4]
    units = Pointwise(scalar(str(name), *map(float, settings)), (3,), sharpness)
    low = torch.cat([4 * _random(seed, 20, 3), torch.tensor([[-math.inf, 0.0, -1e-10]]).double()])
    high = low + torch.cat([_uniform(seed, 20, 3) ** 3 * 6, torch.full((1, 3), math.inf).double()])
    for ranges in (units.slope_range, units.curvature_range):
        yield DOWN, lambda: ranges(low, high)[0]
        yield UP, lambda: ranges(low, high)[1]
    yield DOWN, lambda: [units.extremes[0], units.extremes[2]]
    yield UP, lambda: [units.extremes[1], units.extremes[3]]
    yield SAME, lambda: units.apply(low[:20])
    at, ones = Rounded(low[:5], 1e-6 * low[:5].abs()), torch.ones(5).double()
    yield UP, lambda: units.rounded(*at).error
    yield UP, lambda: units.backward_error(ones, 1e-3 * ones, at)
    yield UP, lambda: units.amplify(0.7)


def pools(seed: int) -> Results:
    window = torch.tensor([[-1, 0, 1], [1, 2, 3], [2, 3, -1]][: 2 + seed % 2])
    pool = MaxPool((window,) * (1 + seed % 2), (2, *([4] * (1 + seed % 2))))
    points, ones = _random(seed, 2, *pool.in_shape), torch.ones(2).double()
    yield SAME, lambda: [pool.apply(points), pool.rounded(points, points.abs()).value]
    yield UP, lambda: [pool.gain, pool.overlap, pool.rounded(points, points.abs()).error]
    at = Rounded(points, points.abs())
    yield UP, lambda: [*pool.backward_error(ones, ones, at), pool.amplify(0.7)]
    yield UP, lambda: MaxPool((torch.tensor([[-1, -1], [0, 1]]),), (1, 2)).gain


def _cost(seed: int, shape: tuple[int, ...]) -> Cost:
    size, mask = math.prod(shape), None
    if seed // 9 % 2:
        mask = torch.ones(shape, dtype=torch.bool)
        mask.view(-1)[1] = False
    scales = (0.3 + _uniform(seed, *shape)) * 2
    factor = _random(seed, size, size)
    matrix = factor @ factor.T + torch.eye(size).double()
    free = torch.ones(size).bool() if mask is None else mask.flatten()
    part = matrix[free][:, free]
    values, vectors = torch.linalg.eigh(part)
    root = torch.zeros(size, size, dtype=torch.float64)
    root[free.nonzero(), free.nonzero().T] = vectors / values.sqrt() @ vectors.T
    kinds: tuple[Callable[[], Cost], ...] = (
        lambda: Lp(shape=shape, free=mask),
        lambda: Lp(shape=shape, free=mask, scales=scales),
        lambda: Lp(shape=shape, free=mask, p=1.5, scales=scales if seed % 2 else None),
        lambda: Lp(shape=shape, free=mask, p=1.0),
        lambda: Lp(shape=shape, free=mask, p=math.inf, scales=scales if seed % 2 else None),
        lambda: Quadratic(shape=shape, free=mask, matrix=matrix, root=root),
        lambda: Quadratic(shape=shape, free=mask, matrix=matrix, root=root * (1 + 1e-3)),
        lambda: _claimed(shape, mask),
        lambda: Lp(shape=shape, free=mask, label_price=0.2),
    )
    return kinds[seed % 9]()


def _claimed(shape: tuple[int, ...], free: Tensor | None) -> Cost:
    return Claimed(
        shape=shape,
        free=free,
        assumptions=("convex",),
        growth=2.0,
        strong_convexity=2.0,
        floor=1.0,
        values=lambda x, y: (
            (x**2 + x**4 / 9 - y**2 - y**4 / 9 - (2 * y + 4 * y**3 / 9) * (x - y)).flatten(1).sum(1)
        ),
        slopes=lambda x, y: 2 * (x - y) + 4 / 9 * (x**3 - y**3),
        length_of=lambda v: v.flatten(1).norm(dim=1),
        dual_of=lambda v: v.flatten(1).norm(dim=1),
        value_terms=lambda x, y: (x**2 + y**2).flatten(1).sum(1),
        gradient_terms=lambda x, y: (x.abs() + y.abs()).flatten(1).norm(dim=1),
    )


_DOMAINS: tuple[Callable[[], Domain], ...] = (
    Domain,
    lambda: Domain(torch.tensor(-1.0).double(), torch.tensor(1.0).double()),
    lambda: Domain(center=torch.zeros(1).double(), radius=2.5),
    lambda: Domain(
        torch.tensor(-1.0).double(), torch.tensor(math.inf).double(), torch.zeros(1).double(), 2.5
    ),
)


def costs(seed: int) -> Results:
    cost = _cost(seed, (3,))
    points, origins = _uniform(seed, 3, 3) * 2 - 1, _uniform(seed + 1, 3, 3) * 2 - 1
    origins[1] = points[1]
    gradients, modulus = 2 * _random(seed, 3, 3), _uniform(seed, 3) + 0.1
    moves = points - origins if cost.free is None else torch.where(cost.free, points - origins, 0.0)
    yield UP, lambda: [cost.length, cost.unit, cost.rounding]
    yield DOWN, lambda: [cost.floor, cost.growth, cost.strong_convexity]
    yield (
        SAME,
        lambda: [cost.norm(moves), cost.value(origins + moves, origins), cost.gradient(points, origins)],
    )
    yield UP, lambda: [cost.raised(points, origins), cost.dual(gradients), cost.dual_size(modulus)]
    yield UP, lambda: [cost.value_error(points, origins), cost.gradient_error(points, origins)]
    yield (
        UP,
        lambda: [
            cost.farthest(moves.abs()),
            cost.farthest(moves.abs() * torch.tensor([1, 1, math.inf]).double()),
        ],
    )
    for domain in _DOMAINS:
        yield UP, lambda: cost.gap(gradients, points, modulus, domain())
    if cost.whitening is not None:
        yield SAME, lambda: cost.whitening
    wrong: tuple[Callable[[], Cost], ...] = (
        lambda: Lp(shape=(3,), p=0.5),
        lambda: Lp(shape=(3,), p=3.0),
        lambda: Lp(shape=(3,), scales=torch.tensor([1.0, 0.0, 1.0])),
        lambda: Quadratic(shape=(2,), matrix=torch.eye(2).double(), root=2 * torch.eye(2).double()),
        lambda: Quadratic(
            shape=(2,), matrix=torch.tensor([[1.0, 0.1], [0.0, 1.0]]).double(), root=torch.eye(2).double()
        ),
    )
    yield UP, lambda: wrong[seed % len(wrong)]().length


def _chain(*primitives: Primitive) -> Graph:
    nodes = [Node((), primitives[0].in_shape)]
    nodes += [Node((k,), each.out_shape, each) for k, each in enumerate(primitives)]
    return Graph(tuple(nodes))


def _graph(seed: int, classes: int) -> Graph:
    def dense(rows: int, columns: int, step: int) -> Dense:
        return Dense(
            1.5 * _random(seed + step, rows, columns) / math.sqrt(columns),
            0.3 * _random(seed + step + 1, rows),
        )

    def units(name: str, size: int, *settings: float) -> Pointwise:
        return Pointwise(scalar(name, *settings), (size,), 1.0 if seed % 2 else 2.0)

    smooth = ("tanh", "elu", "softplus", "gelu", "silu", "mish", "sigmoid", "smooth_abs")
    kind = seed % 8
    if kind == 0:
        graph = _chain(dense(classes, 3, 0))
    elif kind in (1, 2):
        graph = _chain(dense(4, 3, 0), units("log_cosh", 4), dense(classes, 4, 5))
    elif kind == 3:
        graph = _chain(
            dense(4, 3, 0),
            units(smooth[seed // 8 % 8], 4),
            dense(4, 4, 3),
            units("tanh", 4),
            dense(classes, 4, 5),
        )
    elif kind == 4:
        graph = _chain(dense(4, 3, 0), units("piecewise_linear", 4, 0.0, 1.0), dense(classes, 4, 5))
    elif kind in (5, 6):
        first, act, last = (
            dense(4, 3, 0),
            units(smooth[seed // 8 % 8], 4),
            dense(classes, 4 if kind == 5 else 8, 5),
        )
        join = Node((2, 4), (4,)) if kind == 5 else Node((2, 4), (8,), axis=0)
        nodes = (
            Node((), (3,)),
            Node((0,), (4,), first),
            Node((1,), (4,), act),
            Node((2,), (4,), dense(4, 4, 7)),
        )
        graph = Graph((*nodes, Node((3,), (4,), units("tanh", 4)), join, Node((5,), (classes,), last)))
    else:
        convolution = Convolution(
            _random(seed, 2, 1, 2),
            _random(seed, 2, 1),
            (1, 3),
            stride=(1,),
            padding=((1, 0),),
            dilation=(1,),
            groups=1,
        )
        flat = Dense(_random(seed, classes, 6), _random(seed, classes), (2, 3), (classes,))
        graph = _chain(Reshape((3,), (1, 3)), convolution, Pointwise(scalar("tanh"), (2, 3)), flat)
    for node in graph.nodes:
        claim(node.primitive)
    return graph


_LOSSES: tuple[Any, ...] = (
    *(Softmax(), Softmax(smoothing=0.1), Softmax(2.0, 4.0, 2.0), Softmax(1.0, 3.0, 3.0, 0.5), None),
    *(Softmax(logistic=True), Hinge(1), Hinge(2), None, Softmax()),
)


def networks(seed: int) -> Results:
    loss = _LOSSES[seed % len(_LOSSES)]
    single = (
        isinstance(loss, Hinge) or (isinstance(loss, Softmax) and loss.logistic) or seed % len(_LOSSES) == 8
    )
    graph = _graph(seed // 2, 1 if single else 3)
    cost, domain = _cost(seed // 3, (3,)), _DOMAINS[seed // 5 % 4]()
    inputs = _uniform(seed, 2, 3) * 1.6 - 0.8
    inputs[0, 0] = 1.0
    targets = torch.tensor([0, 1]) if loss is not None else _random(seed, 2, 1 if single else 3)
    if loss is not None and not single:
        targets = graph.apply(inputs).argmax(1)
    problem = Problem.of(graph, loss, cost, domain, (inputs, targets))
    for node in problem.graph.nodes:
        claim(node.moves)
    values = Values.at(problem)
    yield (
        UP,
        lambda: [values.loss, values.slope, values.margins, values.steepness, values.level],
    )
    yield (
        UP,
        lambda: [
            values.root,
            problem.reach,
            problem.slack(values.loss, problem.rounding),
            problem.slope_error(values.loss, problem.rounding),
            rounding_at(graph, inputs).values,
            rounding_at(graph, inputs).slopes,
        ],
    )
    yield DOWN, lambda: values.start
    yield SAME, lambda: [problem.losses(inputs), problem.outputs(inputs)]
    everywhere = constants(problem, values)
    for bounds in (problem.bounds(None)[0], *(problem.bounds(0.3) if seed % 3 == 0 else ())):
        yield (
            UP,
            lambda: [*bounds.curvature.values(), bounds.lipschitz, bounds.output_lipschitz],
        )
        parts = (bounds.margin_lipschitz, bounds.margin_curvature, bounds.error, bounds.margins)
        yield UP, lambda: [part for part in parts if part is not None]
    if loss is not None and isinstance(cost, Lp) and cost.p == 2:
        sample, rival = (~problem.own).nonzero().unbind(1)
        point = inputs[sample] + 0.5 * _random(seed, len(sample), 3) * (_uniform(seed, len(sample), 1) > 0.3)
        factors, distances = torch.tensor([1.1, 2.0]).double(), 0.1 + _uniform(seed, len(sample), 2)
        start = everywhere
        for shaped in (False, True) if hidden_layer(problem) is not None else (False,):
            tangents = Tangents(sample, rival, point, factors, distances, shaped)
            above = parabolas(problem, values, start, tangents)
            everywhere = everywhere.beside(above)
            yield UP, lambda: [above.curvature, above.coefficient]
            for at in (0.0, 0.5, 3.0):
                yield UP, lambda: above.rise + above.coefficient / 2 * at**2
    clip = 1.5 if seed % 4 == 3 else None
    edges = torch.tensor([0.0, 0.3, 0.8, 2.0]).double()
    around = neighborhoods(problem, values, everywhere, edges, [1, 2] if seed % 4 == 1 else [1], clip)
    for part in around.balls:
        yield (
            UP,
            lambda: [
                part.margin_lipschitz,
                part.margin_curvature,
                part.slope,
                part.curvature,
                part.root,
            ],
        )
    if around.radius is not None:
        radius = around.radius
        yield DOWN, lambda: [radius, error_costs(problem, radius)]
    for gamma, move in ((0.4, 0.2), (30.0, 0.01)):
        proposal = Proposal.at(problem, gamma, inputs + cost.freed(move * _random(seed, 2, 3)))
        roots = _uniform(seed, 2) * 4
        yield (
            UP,
            lambda: list(bounds_by_rule(around, proposal, roots).values()),
        )
    yield UP, lambda: SampleBounds.at(around, 0.7).loss
    yield from _dual_bounds(seed, problem)


def _dual_bounds(seed: int, problem: Problem) -> Results:
    """Of a weighted label, and over all labels, of which some are left out."""
    edges, gamma, clip = torch.tensor([0.0, 0.4, 1.5]).double(), 1.7, 1.5 if seed % 4 == 2 else None
    weight = (1.0, 0.6, 3.0)[seed % 3]
    parts = []
    for label in range(problem.classes or 1) if seed % 2 == 0 else ():
        targets = problem.targets
        moved = problem.about(
            problem.inputs, (targets + label) % problem.classes if problem.classes else targets
        )
        values = Values.at(moved)
        around = neighborhoods(
            *(moved, values, constants(moved, values), edges, [1], clip_within(clip, weight))
        )
        proposal = Proposal.at(moved, gamma_within(gamma, weight), moved.inputs)
        yield UP, lambda: dual_bounds(around, gamma, proposal, values.loss, weight, clip).bound
        yield UP, lambda: dual_bounds(around, 2 * gamma, proposal, values.loss, weight, clip).bound
        yield UP, lambda: dual_bounds(around, gamma, proposal, values.loss, -weight, clip).bound
        yield UP, lambda: dual_bounds(around, gamma, proposal, values.loss, weight, 9.0).bound
        parts.append(dual_bounds(around, gamma, proposal, values.loss, weight, clip))
    if parts:
        empty = DualBounds.unknown(gamma, len(problem), clip, problem.assumptions)
        for others in (parts[1:], parts[1:-1], [*parts[1:-1], parts[0]]):
            yield UP, lambda: over_labels(parts[0], others).bound
            yield UP, lambda: _filled(empty, over_labels(parts[0], others))
        yield UP, lambda: _filled(empty, parts[0])


def _filled(whole: DualBounds, part: DualBounds) -> Tensor:
    whole = mark(replace(whole, bound=whole.bound.clone(), about=whole.about.clone()))
    whole.fill(slice(0, len(part.bound)), part)
    return whole.bound


def scores(seed: int) -> Results:
    level, steep = 3 * _random(seed, 6), _uniform(seed, 6) * 3
    steep[0] = 0.0
    for form, price in itertools.product(Form, (0.1, 2.0, 40.0)):
        score = Score(form, level, steep, 0.5 + seed % 3)
        yield UP, lambda: score.bound(price, _uniform(seed, 6) * 5)
        yield UP, lambda: score.bound(price)
        yield DOWN, lambda: score.stiffness(price)


def losses(seed: int) -> Results:
    loss = next(each for each in _LOSSES[seed % 4 :] if isinstance(each, Softmax))
    error, curvature, spread = _uniform(seed, 8), 3 * _uniform(seed + 1, 8), 3 * _uniform(seed + 2, 8)
    spread[0] = curvature[1] = error[2] = 0.0
    error[3] = 0.5
    own = torch.arange(3) == torch.arange(8)[:, None] % 3
    yield UP, lambda: [loss.weight(error, 3), loss.variance(error), loss.corrected(curvature, spread)]
    yield UP, lambda: [loss.combine(curvature, spread, error, classes) for classes in (2, 3)]
    yield UP, lambda: loss.error(4 * _random(seed, 8, 3), own)
    wrong: tuple[dict[str, Any], ...] = (
        *({"slope": 0.0}, {"spread": -1.0}, {"scale": math.inf}, {"offset": math.nan}, {"smoothing": 1.0}),
        *({"smoothing": -0.1}, {"slope": 2.0}, {"scale": 2.0}),
    )
    yield UP, lambda: Softmax(**wrong[seed % len(wrong)]).slope


def knapsacks(seed: int) -> Results:
    errors = _uniform(seed, 7) * 3
    errors[:2] = torch.tensor([math.inf, 0.0])
    weights = _uniform(seed, 7)
    weights = weights / weights.mean()
    for gamma in (0.0, 0.3, 2.0, -1.0, math.inf):
        yield UP, lambda: error_rates.error_gains(errors, gamma)
        yield UP, lambda: error_rates.worst_error_rate(errors, 0.1 * seed, gamma, weights)
        yield UP, lambda: error_rates.dual_bound({gamma: 0.3, 1.0: 0.2}, 0.1 * seed)
    yield UP, lambda: error_rates.worst_error_rate(errors, -1.0, 1.0)
    yield UP, lambda: error_rates.worst_error_rate(errors - 1, 0.1, 1.0)
    yield UP, lambda: error_rates.worst_error_rate(errors, 0.1, 1.0, -weights)
    yield UP, lambda: error_rates.dual_bound({}, 1.0)


def confidence(seed: int) -> Results:
    count = (1, 2, 5, 50, 400)[seed % 5]
    values, failure = 2 * _uniform(seed, count) ** 3, (0.3, 0.01)[seed % 2]
    for bound in (concentration.hoeffding, concentration.empirical_bernstein):
        yield UP, lambda: bound(values, 2.0, failure)
        yield UP, lambda: [bound(values, ceiling, 0.1) for ceiling in (-1.0, 0.1)]
    for mean in (-0.1, 0.0, 0.3, 0.6, 0.9, 1.3, 1.9, 2.0, 3.0):
        yield UP, lambda: concentration.betting(values, 2.0, failure, mean)
        if 0 <= mean < 2:
            yield DOWN, lambda: concentration.log_wealth(values, 2.0, failure, mean)
    for delta in (0.0, 0.01, 0.5, 0.6, 1.0):
        yield UP, lambda: concentration.dkw(count, delta)
        yield UP, lambda: concentration.hoeffding(values, 2.0, delta)
    yield UP, lambda: concentration.dkw(0, 0.1)


def probabilities(seed: int) -> Results:
    points, chances = 8 * _random(seed, 9).numpy(), np.append(_uniform(seed, 6).numpy(), [0.0, 1.0])
    count = (1, 2, 9, 40)[seed % 4]
    yield UP, lambda: [binomial.normal_up(points), binomial.relative_error(count)]
    yield DOWN, lambda: binomial.normal_down(points)
    yield SAME, lambda: [binomial.normal_cdf(points), binomial.binomial_probabilities(chances, count)]
    for hits in sorted({0, count // 2, count, count + 1, -1}):
        yield UP, lambda: binomial.binomial_tail(hits, count, chances)
        yield UP, lambda: binomial.largest_probability(hits, count)
        for guess in (0.0, 0.05, 0.4, 0.9, 1.0, 1.1):
            yield DOWN, lambda: binomial.clopper_pearson(hits, count, 0.1, guess)
    for chance, radius in itertools.product((0.4, 0.5, 0.7, 0.999), (0.0, 0.2, 1.0, -1.0)):
        yield DOWN, lambda: binomial.gaussian_radius(0.5 + seed, chance, radius)


def rates(seed: int) -> Results:
    """Rates by class of two to four classes, of which the last may not occur."""
    classes, count = 2 + seed % 3, 12
    targets = (_uniform(seed, count) * (classes - seed % 2)).long()
    table = 2 * _uniform(seed + 1, count, classes) ** 2
    table[_uniform(seed + 2, count, classes) < 0.2] = math.inf
    uneven = _uniform(seed + 3, count)
    weights = uneven / uneven.mean() if seed % 4 == 3 else None
    costs = ClassCosts.of(targets, table.amin(1), classes, None if classes == 2 else table, weights)
    matrix = _random(seed, classes, classes)
    yield DOWN, lambda: costs.shares
    for gamma, rho in itertools.product((0.0, 0.3, 4.0, 1e308, -1.0), (0.0, 0.1, -1.0)):
        yield UP, lambda: costs.worst_cost(matrix, rho, gamma)
        for name, label in itertools.product(
            ("recall", "fpr", "balanced_error", "none"), (0, classes - 1, classes)
        ):
            yield UP, lambda: costs.worst_rate(name, label, rho, gamma)
            for share in (0.0, 0.02, 0.2, 0.9):
                claims = [share] * (len(targets.unique()) if name == "balanced_error" else 1)
                yield UP, lambda: costs.population_rate(name, label, rho, gamma, claims, 0.2)
        yield DOWN, lambda: complement(costs.worst_rate("recall", 0, rho, gamma))
    yield UP, lambda: costs.gains(1e101 * matrix, 1.0)


def statements(seed: int) -> Results:
    count, failure = (1, 4, 60)[seed % 3], 0.1
    loss, clip = 2 * _uniform(seed, count) ** 2, 1.5 if seed % 4 == 1 else None
    costs = None if seed % 5 == 4 else 3 * _uniform(seed + 1, count)
    names = ("convex",) if seed % 2 else ()
    about = torch.stack([loss, loss, loss], 1)
    samples = mark(SampleBounds(loss, costs, 0.5, names, about))
    heights, rule = {gamma: (loss + 1 / gamma).clamp_max(clip or 9.0) for gamma in (0.5, 4.0)}, loss.long()
    levels = [mark(DualBounds(*each, rule, clip, about=about)) for each in heights.items()]
    uneven = _uniform(seed + 2, count)
    weights = uneven / uneven.mean() if seed % 2 else None
    options: dict[str, Any] = {"confidence": 1 - failure, "seed": seed, "clip": clip or 2.0}
    known: list[PopulationBounds] = []
    for inequality in ("hoeffding", "bernstein", "none"):
        yield UP, lambda: list(_population(samples, levels, inequality, 0.3, options).means.values())
    for claim in (0.2, 0.5, 0.8, 1.1, 1.4, 1.7, 2.0):

        def bounds(claim: float = claim) -> list[float]:
            population = _population(samples, levels, "betting", claim, options)
            known.append(population)
            parts = [*population.means.values(), *population.error_means.values()]
            return [*parts, population.error_margin or 0.0, population.loss(0.1), population.error(0.1, 0.3)]

        yield UP, bounds
    yield SAME, lambda: failure_shares(0.9, seed % 2 == 0)
    for wrong in ({"confidence": 1.0}, {"confidence": 0.0}):
        yield UP, lambda: _population(samples, levels, "hoeffding", 2.0, options | wrong).loss(0.1)
    yield (
        UP,
        lambda: _population(SampleBounds(loss, costs, 0.5, (), about), levels, "hoeffding", 2, options).loss(
            0.1
        ),
    )
    yield UP, lambda: _population(samples, levels[:0], "hoeffding", 2, options).loss(0.1)
    population = None if weights is not None or not known else known[-1]
    statement = Statement.of(samples, levels, weights=weights, clip=clip, population=population)
    yield SAME, lambda: [statement.evidence is Evidence.PROVEN, len(statement.assumptions)]
    for rho in (0.0, 0.05, 0.7, -1.0, math.nan):
        yield UP, lambda: [statement.loss(rho)[0], statement.population_loss(rho)]
        yield UP, lambda: [statement.error(rho, gamma) for gamma in (0.0, 0.4, 2.0)]
        yield UP, lambda: [statement.population_error(rho, gamma) for gamma in (0.0, 0.4, 2.0)]
        yield UP, lambda: Statement.of(samples).loss(rho)[0]
    for epsilon in (0.0, 0.3, 1.0, 1.7, -1.0):
        yield DOWN, lambda: [statement.certified_samples(epsilon), statement.certified(epsilon)]
        yield DOWN, lambda: statement.population_certified(epsilon)
        yield DOWN, lambda: [statement.fixed_certified(epsilon, claim) for claim in (0.0, 0.05)]
        yield DOWN, lambda: statement.fixed_certified(epsilon, 0.5)
    short, other = levels[0][: count - 1], mark(SampleBounds(loss, costs, 0.6, about=about))
    elsewhere = mark(replace(levels[0], about=2 * about))
    wrong_statements: tuple[Callable[[], Statement], ...] = (
        lambda: Statement.of(replace(samples), levels, clip=clip),
        lambda: Statement.of(samples, [replace(levels[0])], clip=clip),
        lambda: Statement.of(samples, [short], clip=clip),
        lambda: Statement.of(samples, [elsewhere], clip=clip),
        lambda: Statement.of(samples, levels, clip=2.5),
        lambda: Statement.of(samples, levels, clip=clip, weights=torch.ones(count + 1)),
        lambda: Statement.of(samples, levels, clip=clip, weights=torch.full((count,), 1.5)),
        lambda: Statement.of(samples, levels, clip=clip, weights=torch.linspace(-1, 3, count)),
        lambda: Statement.of(samples, levels, clip=clip, weights=torch.ones(count), population=known[-1]),
    )
    for build in wrong_statements:
        yield UP, lambda: build().clean_loss
    yield UP, lambda: SampleBounds.joined([samples, samples], torch.arange(2 * count).flip(0)).loss
    yield UP, lambda: SampleBounds.joined([samples, other]).loss
    yield UP, lambda: SampleBounds.joined([samples, replace(samples)]).loss
    if costs is not None:
        yield DOWN, lambda: SampleBounds.joined([samples, samples]).error_cost
    empty = DualBounds.unknown(0.5, count, clip)
    for part in (levels[0], levels[1], short, replace(levels[0])):
        yield UP, lambda: _filled(empty, part)
    yield UP, lambda: _filled(empty, mark(replace(levels[0], assumptions=("convex",))))
    yield SAME, lambda: [len(concentration.random_order(count, seed)), concentration.random_order(9, seed)]


def _population(
    samples: SampleBounds, levels: list[DualBounds], inequality: str, claim: float, options: dict[str, Any]
) -> PopulationBounds:
    claims = {level.gamma: claim for level in levels}
    errors = {1.0: min(1.0, claim / 2), 0.2: 1.0}
    return PopulationBounds.of(
        samples, levels, inequality=inequality, claims=claims, error_claims=errors, **options
    )


def _description(seed: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A problem as ``kernel.graph_files`` reads it: three outputs, and inputs of shape (4,) or (1, 4)."""
    tensors: dict[str, Tensor] = {
        "square": _random(seed, 4, 4),
        "bias": _random(seed, 4),
        "size": _random(seed, 4).abs() + 0.1,
        "last": _random(seed + 1, 3, 4),
        "window": torch.tensor([[0, -1], [1, 2], [2, 3], [3, -1]]),
        "index": torch.tensor([3, 0, -1, 1]),
        "kernel": _random(seed, 1, 1, 3),
        "ones": torch.ones(4).double(),
        "free": torch.tensor([True, True, False, True]),
        "matrix": 4 * torch.eye(4).double(),
        "root": 0.5 * torch.eye(4).double(),
        "low": torch.tensor(-1.0).double(),
        "high": torch.tensor(math.inf).double(),
        "center": torch.zeros(1).double(),
    }
    images = seed % 6 in (3, 4)
    shape = [1, 4] if images else [4]

    def affine(kind: str, norms: Sequence[float] = (), **entries: Any) -> dict[str, Any]:
        size = "size" if entries.get("bias") else None
        rounding = {"folds": seed % 2, "bias_size": size, "norms": list(norms), "written": False}
        return {"type": kind, **entries, **rounding}

    def dense(matrix: str, rows: int, inputs: list[int], bias: str | None) -> dict[str, Any]:
        norm = float(torch.linalg.matrix_norm(tensors[matrix], 2)) * (1 + 1e-6)
        shapes = {"in_shape": inputs, "out_shape": [rows]}
        return affine("Dense", [norm], matrix=matrix, bias=bias, **shapes)

    def node(inputs: list[int], shape: list[int], primitive: Any = None, axis: int | None = None) -> Any:
        words = {"name": "a", "kind": "layer", "assumptions": ["smooth"] if seed % 5 == 4 else []}
        return {"inputs": inputs, "shape": shape, "primitive": primitive, "axis": axis, **words}

    scaling = affine("Diagonal", factors="ones", bias="bias", shape=[4])
    windows: dict[str, Any] = {"stride": [1], "padding": [[1, 1]], "dilation": [1], "groups": 1}
    convolution = affine("Convolution", weight="kernel", bias=None, in_shape=[1, 4], **windows)
    plain = convolution | {"folds": 0}
    first = (
        dense("square", 4, [4], "bias"),
        affine("Product", parts=[scaling, dense("square", 4, [4], None)]),
        affine("Gather", index="index", in_shape=[4]),
        convolution,
        affine("Transposed", original=plain, bias=None),
        affine("AxisProduct", matrices=["square"], bias="bias", in_shape=[4]),
    )[seed % 6]
    units: dict[str, Any] = {"type": "Pointwise", "scalar": ["tanh"], "in_shape": shape, "sharpness": 1.5}
    if seed % 6 == 5:
        units |= {"scalar": ["clamp", -1.0, "inf"], "sharpness": "size"}
    if seed % 6 == 3:
        units = {"type": "MaxPool", "windows": ["window"], "in_shape": shape}
    nodes = [node([], shape), node([0], shape, first), node([1], shape, units)]
    nodes += [node([1, 2], shape), node([3], [3], dense("last", 3, shape, None))]
    costs = (
        {"type": "Lp", "p": 2.0, "scales": None},
        {"type": "Lp", "p": "inf", "scales": "ones"},
        {"type": "Quadratic", "matrix": "matrix", "root": "root"},
    )
    slopes = {"slope": 2.0, "spread": 4.0, "scale": 2.0, "offset": 0.5, "smoothing": 0.0}
    losses = {"type": "Softmax", **slopes, "logistic": False}, {"type": "SquaredError"}
    shared = {"shape": shape, "free": None if images else "free", "label_price": (0.5, "inf")[seed % 2]}
    ball = {"center": "center", "radius": 2.5} if seed % 2 else {"center": None, "radius": "inf"}
    problem = {
        "graph": {"nodes": nodes, "moves": None},
        "cost": {**costs[0 if images else seed % 3], **shared},
        "loss": losses[seed % 4 == 3],
        "domain": {"type": "Domain", "lower": "low", "upper": "high", **ball},
    }
    return problem, tensors


_FORGED: tuple[Any, ...] = (
    *(None, -1, 0, 2, 1.5, 1e200, math.nan, True),
    *("inf", "size", "index", "x", [], [1, 2], {}, {"type": "Lp"}),
)


def _forged(entry: Any) -> Iterator[Any]:
    """Copies of a description with one entry that is replaced, left out, repeated or new."""
    if isinstance(entry, dict):
        yield {**entry, "new": 1}
        for name, part in entry.items():
            yield {other: each for other, each in entry.items() if other != name}
            yield from ({**entry, name: forged} for forged in _forged(part))
    elif isinstance(entry, list):
        yield from ([*entry[:index], *entry[index + 1 :]] for index in range(len(entry)))
        yield from ([*entry[:index], *entry[index:][:1], *entry[index:]] for index in range(len(entry)))
        for index, part in enumerate(entry):
            yield from ([*entry[:index], forged, *entry[index + 1 :]] for forged in _forged(part))
    yield from _FORGED


def descriptions(seed: int) -> Results:
    """Graphs and problems from files, most of them forged."""
    description, tensors = _description(seed)
    shape = description["cost"]["shape"]
    inputs = _uniform(seed, 2, *shape)
    numeric = description["loss"]["type"] == "SquaredError"
    data = inputs, _random(seed, 2, 3) if numeric else torch.tensor([0, 2])

    def bounds(description: Any, tensors: dict[str, Tensor]) -> list[Any]:
        problem = graph_files.build_problem(description, tensors, data)
        bound = problem.bounds(None)[0]
        norms = [node.primitive.norm for node in problem.graph.nodes if isinstance(node.primitive, Affine)]
        return [*norms, bound.lipschitz, problem.reach, rounding_at(problem.graph, inputs).values]

    yield UP, lambda: bounds(description, tensors)
    yield SAME, lambda: graph_files.build_graph(description["graph"], tensors).apply(inputs)
    every = list(_forged(description))
    for forged in every[seed % 64 :: 64]:
        yield UP, lambda: bounds(forged, tensors)
    for name, tensor in tensors.items():
        other = tensor.double() * math.nan
        if tensor.dim() and seed % 4:
            other = (tensor[:1], tensor.float(), -tensor.double())[seed % 4 - 1]
        yield UP, lambda: bounds(description, tensors | {name: other})
    header = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    header["b"] = {"dtype": ("F64", "I64", "BOOL")[seed % 3], "shape": [1], "data_offsets": [8, 16]}
    if seed % 3 == 2:
        header["b"]["shape"] = [8]
    for each in (header, *list(_forged(header))[seed % 16 :: 16]):
        content = json.dumps(each).encode()
        numbers = np.array([1.5, 2.5], "<f4").tobytes() + bytes([1, 0, 1, 0, 0, 0, 0, seed % 2])
        size = len(content).to_bytes(8, "little")
        yield SAME, lambda: list(graph_files.parse_tensors(size + content + numbers).values())
        yield UP, lambda: len(graph_files.parse_tensors(size + content + numbers[:-1]))
        yield UP, lambda: len(graph_files.parse_tensors(size + content[:-1] + numbers))
    twos = bytes([2] * 8)
    content = json.dumps({"b": {"dtype": "BOOL", "shape": [8], "data_offsets": [0, 8]}}).encode()
    yield UP, lambda: graph_files.parse_tensors(len(content).to_bytes(8, "little") + content + twos)["b"]
    for content in (b'{"a": 1, "a": 1}', b"[]", b"{", b"\xff", b'{"a": 1}'):
        yield UP, lambda: len(graph_files.parse_object(content))
    yield SAME, lambda: [len(graph_files.read_bytes(Path(__file__))) > 0]
    for path in ("/dev/null", "/", "/none", "a\0b"):
        yield UP, lambda: len(graph_files.read_bytes(Path(path)))


_RULES = (
    ("one", 1, 1, None),
    ("ideal", None, 0, None),
    ("plain", 9, 5, None),
    ("abstaining", 20, 4, 0.05),
    ("lost", 5, 0, 0.01),
)


def smoothed(seed: int) -> Results:
    _, votes, threshold, level = _RULES[seed % len(_RULES)]
    rule = smoothing.VotingRule(votes, threshold, level)
    for claimed in range(7):
        yield (
            UP,
            lambda: 0 * smoothing.VotingRule(9, claimed, (None, 0.5, 0.05)[seed % 3]).failure_threshold,
        )
    marks = np.sort(_uniform(seed, 30).numpy() * 10 - 5)
    penalty, places = (0.05, 0.6, 4.0)[seed % 3], np.linspace(-5, 5, 11)
    yield UP, lambda: [rule.failure_probability(places)]
    yield UP, lambda: rule.bend
    yield UP, lambda: smoothing.worst_failure(rule, penalty, places, marks)
    bound = smoothing.NeymanPearsonBound.of(rule, penalty, marks, np.linspace(-5, 5, 90), 0.1 * (seed % 3))
    yield UP, lambda: [bound.values, bound.at(places)]
    yield UP, lambda: smoothing.dominate(_random(seed, 6).numpy(), bound, np.linspace(-4, 4, 40))
    yield UP, lambda: smoothing.NeymanPearsonBound.of(rule, penalty, marks[::-1], marks).values
    yield UP, lambda: smoothing.NeymanPearsonBound.of(rule, penalty, marks, marks, 1.5).values
    yield UP, lambda: smoothing.worst_failure(rule, -penalty, places, marks)
    line = np.arange(6) / 5
    designs = [
        smoothing.GammaDesign(2.0, line, 0.7),
        smoothing.GammaDesign(1.0, 0.2 + 0.8 * line**2, 0.3, 0.7),
    ]
    counts = (_uniform(seed, 60) ** 3 * 6).long()
    values = smoothing.smoothed_values(designs, counts)
    yield SAME, lambda: [values, smoothing.poisson_binomial(_uniform(seed, 3, 4))]
    yield SAME, lambda: [smoothing.stake(designs, values, 0.1, index)[0] for index in (0, 1)]
    for guess in (0.2, 0.45, 0.7, 2.0):
        yield (
            UP,
            lambda: list(smoothing.upper_means(designs, values, 0.1, [guess, guess]).values()),
        )
    yield UP, lambda: smoothing.smoothed_values(designs, counts + 1)


def ensembles(seed: int) -> Results:
    """Trees, prices and multipliers drawn at random, and losses of one row."""
    kind = list(tree_profiles.TreeLoss)[seed % 4]
    outputs = 1 if kind in ("squared", "absolute") else (3, 1)[seed % 8 == 0]
    largest, rounding = bool(seed % 2), 1e-3 * (seed % 3)
    options: dict[str, Any] = {
        "largest": largest,
        "rounding": rounding,
        "probabilities": kind == "probabilities",
    }
    case = tree_oracle.random_case(seed, outputs=outputs, **options)
    prices = replace(case.prices, label_price=(math.inf, 0.3)[seed % 2])
    target = torch.tensor([1]) if kind in ("softmax", "probabilities") else torch.tensor([0.3]).double()
    problem = tree_profiles.TreeProblem(case.ensemble, prices, kind, case.row[None], target)
    rows = torch.from_numpy(case.rows[::5])
    yield SAME, lambda: [case.ensemble.scores(rows), problem.scores[0], problem.inputs]
    yield SAME, lambda: [problem.errors, problem.classes or 0]
    yield UP, lambda: prices.value(rows, case.row.expand_as(rows))
    yield UP, lambda: [problem.start, problem.top, problem.lost, problem.values(problem.start)]
    count = problem.scores[1].shape[1]
    levels = problem.levels(7)
    profiles, drawn = tree_profiles.Profiles.trivial(problem, levels), np.random.default_rng(seed)
    weights = torch.full((1,), 1.7).double()

    def bounds(weights: Tensor | None, clip: float | None) -> list[Any]:
        return [level.bound for level in profiles.dual([0.1, 1.0, 20.0], weights, clip)]

    for _ in range(2):
        for score in range(count):
            proof = tree_oracle.random_proof(drawn, case.ensemble, prices)
            yield DOWN, lambda: [profiles.raise_by(0, score, proof), profiles.costs]
        yield DOWN, lambda: profiles.error_costs
        yield UP, lambda: [*bounds(None, None), *bounds(weights, 1.5), profiles.samples(weights).loss]
    wrong = (replace(proof, slope=-proof.slope), replace(proof, weight=proof.weight * 1.1))
    about = problem.scores[0][0, 0], 0.1
    for each in (proof, *wrong):
        yield (
            DOWN,
            lambda: trees.least_costs(case.ensemble, prices, case.row, about, levels[0, 0], each),
        )
    yield UP, lambda: tree_profiles.Profiles.trivial(problem, levels.flip(2)).dual([1.0])[0].bound
    yield UP, lambda: replace(profiles, costs=profiles.costs + 1).dual([1.0])[0].bound
    yield UP, lambda: profiles.dual([-1.0])[0].bound
    yield UP, lambda: profiles.dual([1.0], -weights)[0].bound
    yield UP, lambda: tree_profiles.TreeProblem(case.ensemble, prices, kind, rows / 0, target).errors
    yield UP, lambda: len(replace(case.ensemble, threshold=case.ensemble.threshold * math.nan).roots)
    yield UP, lambda: len(replace(case.ensemble, right=case.ensemble.left - 1).roots)


_FAMILIES: tuple[tuple[Callable[[int], Results], int], ...] = (
    *((rounded, 10), (norms, 50), (operators, 66), (activations, 68), (pools, 4), (costs, 54)),
    *((networks, 60), (scores, 18), (losses, 24), (knapsacks, 20), (confidence, 25), (probabilities, 20)),
    *((smoothed, 30), (statements, 15), (rates, 8), (descriptions, 16), (ensembles, 12)),
)
assert sum(count for _, count in _FAMILIES) == 500
