"""500 fixed problems with the public results of the kernel, and the direction in which each may only move.

A result is an upper bound (1), a lower bound (−1), or a number that must not change (0). ``Refused`` counts
as an infinite bound. A mutant whose upper bounds are never smaller, and whose lower bounds are never larger,
only loosens; one that moves any of them the other way, or changes a number, does not.
"""

from __future__ import annotations

# ruff: noqa: B023  # every result is computed before the next one is drawn
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.kernel import binomial, concentration, knapsack, rounding, smoothing
from certus.kernel.costs import Claimed, Cost, Domain, Lp, Quadratic
from certus.kernel.graph import Graph, Node
from certus.kernel.losses import Softmax
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
    LastAxis,
    Product,
    Reshape,
    Transposed,
)
from certus.kernel.passes import Refused
from certus.kernel.pointwise import Pointwise, scalar
from certus.kernel.primitive import Primitive
from certus.kernel.problem import Hinge, Problem, Values, rounding_at
from certus.kernel.radial import neighborhoods
from certus.kernel.rules import Proposal, bounds_by_rule, error_costs, over_labels
from certus.kernel.scores import Form, Score

Results = Iterator[tuple[int, Callable[[], Any]]]
UP, DOWN, SAME = 1, -1, 0


def evaluate() -> dict[str, list[tuple[int, list[float] | str]]]:
    """All results, by problem."""
    return {name: list(map(_evaluated, results)) for name, results in _problems()}


def _problems() -> Iterator[tuple[str, Results]]:
    for family, count in _FAMILIES:
        for seed in range(count):
            yield f"{family.__name__} {seed}", _guarded(family, seed)


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


def compare(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return "equal", "loosens", "tightens", "differs" or "raises": the worst of all results."""
    kinds = set()
    if before.keys() != after.keys():
        return "differs"
    for name, results in before.items():
        if len(results) != len(after[name]):
            kinds.add("loosens" if [UP, "refused"] in after[name] and len(after[name]) == 1 else "differs")
            continue
        kinds |= {_moved(old[0], old[1], new[1]) for old, new in zip(results, after[name], strict=True)}
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
        lambda: LastAxis(_random(seed, 3, 2), _random(seed + 1, 3), (2, 2)),
        lambda: AxisProduct((_uniform(seed, 2, 4), _uniform(seed + 1, 3, 4)), (2, 4, 4)),
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
            pulled = operator.backward_error(torch.ones(2).double(), torch.full((2,), 1e-3).double(), None)
            parts = [operator.norm, operator.absolute_norm, operator.row_norms, operator.column_norms]
            return [
                *parts,
                operator.rounded(points, 1e-6 * points.abs()).error,
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
    yield UP, lambda: [units.extremes[1], units.extremes[3], units.extremes.steepest, units.extremes.sharpest]
    yield SAME, lambda: [units.apply(low[:20]), units.smooth]
    yield UP, lambda: units.rounded(low[:5], 1e-6 * low[:5].abs()).error
    ones = torch.ones(5).double()
    yield (
        UP,
        lambda: units.backward_error(ones, 1e-3 * ones, units.rounded(low[:5], 1e-6 * low[:5].abs()).memory),
    )
    yield UP, lambda: units.amplify(0.7)


def pools(seed: int) -> Results:
    window = torch.tensor([[-1, 0, 1], [1, 2, 3], [2, 3, -1]][: 2 + seed % 2])
    pool = MaxPool((window,) * (1 + seed % 2), (2, *([4] * (1 + seed % 2))))
    points, ones = _random(seed, 2, *pool.in_shape), torch.ones(2).double()
    yield SAME, lambda: [pool.apply(points), pool.rounded(points, points.abs()).value, pool.smooth]
    yield UP, lambda: [pool.gain, pool.overlap, pool.rounded(points, points.abs()).error]
    yield UP, lambda: [*pool.backward_error(ones, ones, None), pool.amplify(0.7)]
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
        lambda: [values.loss, values.slope, values.margins, values.steepness, values.error, values.level],
    )
    yield (
        UP,
        lambda: [
            values.root,
            problem.reach,
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
        yield UP, lambda: [part for part in (bounds.error, bounds.margins) if part is not None]
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
    yield UP, lambda: over_labels(values.loss, [2 * values.loss], 3.0, 0.2)


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
        yield UP, lambda: knapsack.error_gains(errors, gamma)
        yield UP, lambda: knapsack.worst_error_rate(errors, 0.1 * seed, gamma, weights)
        yield UP, lambda: knapsack.dual_bound({gamma: 0.3, 1.0: 0.2}, 0.1 * seed)
    yield UP, lambda: knapsack.worst_error_rate(errors, -1.0, 1.0)
    yield UP, lambda: knapsack.worst_error_rate(errors - 1, 0.1, 1.0)
    yield UP, lambda: knapsack.worst_error_rate(errors, 0.1, 1.0, -weights)
    yield UP, lambda: knapsack.dual_bound({}, 1.0)


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


_FAMILIES: tuple[tuple[Callable[[int], Results], int], ...] = (
    *(
        (rounded, 10),
        (norms, 60),
        (operators, 77),
        (activations, 68),
        (pools, 4),
        (costs, 72),
        (networks, 72),
    ),
    *((scores, 18), (losses, 24), (knapsacks, 20), (confidence, 25), (probabilities, 20), (smoothed, 30)),
)
assert sum(count for _, count in _FAMILIES) == 500
