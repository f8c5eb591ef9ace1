"""Networks from files are the networks that were written, and nothing else is read."""

from __future__ import annotations

import copy
import itertools
import json
import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from certus.bounds.analysis import Analysis
from certus.bounds.norm_proposals import claim_norms
from certus.bounds.sklearn_models import read_estimator
from certus.certificates.graph_files import (
    describe_cost,
    describe_graph,
    describe_problem,
    load_graph,
    save_problem,
)
from certus.costs import Bregman, Cost, Mahalanobis, Masked, SquaredL2, SquaredLp, SquaredSup, WeightedL2
from certus.domains import Ball, Box, Unbounded
from certus.errors import ArgumentError, UnsupportedError
from certus.kernel import costs as kernel_costs
from certus.kernel.graph import Graph, Node
from certus.kernel.graph_files import build_graph, build_problem, parse_object, parse_tensors, read_bytes
from certus.kernel.losses import Hinge, Softmax
from certus.kernel.max_pool import MaxPool
from certus.kernel.operators import Dense, Gather, Product, Reshape
from certus.kernel.passes import Refused, Totals
from certus.kernel.pointwise import Pointwise, scalar
from certus.kernel.problem import Problem, outputs_at, rounding_at
from certus.layers import LogCosh, Normalize, Residual, Scale, SmoothAbs
from certus.losses import Criterion, CrossEntropy, Logistic, SmoothMargin, SquaredError

Shape = tuple[int, ...]


class Forked(nn.Module):
    """Two branches that are concatenated, and a node that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 3), nn.Linear(4, 2), nn.Linear(5, 3)

    def forward(self, points: Tensor) -> Tensor:
        both = torch.cat([torch.tanh(self.first(points)), torch.sigmoid(self.second(points))], 1)
        outputs: Tensor = self.last(both + both)
        return outputs


class Up(nn.Module):
    """A transposed convolution, which has a rule as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.last = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, bias=True), nn.Linear(75, 3)

    def forward(self, points: Tensor) -> Tensor:
        outputs: Tensor = self.last(torch.nn.functional.softplus(self.up(points)).flatten(1))
        return outputs


def image_network(*layers: nn.Module, side: int = 8) -> tuple[nn.Module, Shape]:
    features = nn.Sequential(*layers, nn.Flatten())
    size = features.eval()(torch.zeros(1, 2, side, side)).shape[1]
    return nn.Sequential(features, nn.Linear(size, 3)), (2, side, side)


def batch_norm() -> tuple[nn.Module, Shape]:
    network, shape = image_network(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Softplus())
    with torch.no_grad():
        network.train()(torch.randn(64, *shape) * 3 + 1)
    return nn.Sequential(Normalize([0.3, 0.5], [0.2, 0.4]), network), shape


def estimator(model: Any) -> tuple[nn.Module, Shape]:
    table, labels = load_iris(return_X_y=True)
    model.fit(table, labels)
    return read_estimator(model).network, (4,)


NETWORKS: dict[str, Callable[[], tuple[nn.Module, Shape]]] = {
    "linear": lambda: (nn.Linear(4, 3), (4,)),
    "dense": lambda: (nn.Sequential(nn.Linear(4, 6), nn.Softplus(), nn.Linear(6, 3)), (4,)),
    "no bias": lambda: (nn.Sequential(nn.Linear(4, 6, bias=False), nn.Tanh(), nn.Linear(6, 3)), (4,)),
    "scaled": lambda: (nn.Sequential(Scale(0.3), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), (4,)),
    "units first": lambda: (nn.Sequential(nn.Tanh(), nn.Linear(4, 3)), (4,)),
    "units last": lambda: (nn.Sequential(nn.Linear(4, 3), nn.Softplus()), (4,)),
    "strided": lambda: image_network(nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ELU()),
    "grouped": lambda: image_network(
        nn.Conv2d(2, 4, (3, 2), groups=2, dilation=2, padding=(0, 3)), nn.GELU()
    ),
    "pooled": lambda: image_network(nn.Conv2d(2, 3, 3), nn.SiLU(), nn.AvgPool2d(2), nn.MaxPool2d(3, 1, 1)),
    "convolutions": lambda: image_network(nn.Conv2d(2, 3, 3), nn.Conv2d(3, 2, 2), nn.Mish()),
    "batch norm": batch_norm,
    "residual": lambda: (
        nn.Sequential(nn.Linear(4, 5), Residual(nn.Sequential(nn.Linear(5, 5), nn.Tanh())), nn.Linear(5, 3)),
        (4,),
    ),
    "concatenated": lambda: (Forked(), (4,)),
    "transposed": lambda: (Up(), (2, 3, 3)),
    "sharp units": lambda: (
        nn.Sequential(
            nn.Linear(4, 6),
            LogCosh(torch.linspace(1, 3, 6)),
            nn.Linear(6, 4),
            SmoothAbs(2.0),
            nn.Linear(4, 3),
        ),
        (4,),
    ),
    "many classes": lambda: (nn.Sequential(nn.Linear(4, 6), nn.Sigmoid(), nn.Linear(6, 40)), (4,)),
    "last axis": lambda: (nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(6, 3)), (2, 4)),
    "perceptron": lambda: estimator(make_pipeline(StandardScaler(), MLPClassifier((5,), "tanh", tol=1.0))),
    "logistic regression": lambda: estimator(make_pipeline(StandardScaler(), LogisticRegression())),
}

COSTS: dict[str, Callable[[Shape], Cost]] = {
    "l2": lambda shape: SquaredL2(),
    "l1": lambda shape: SquaredLp(1.0),
    "l1.5": lambda shape: SquaredLp(1.5),
    "sup": lambda shape: SquaredSup(),
    "weighted": lambda shape: WeightedL2(torch.rand(shape) + 0.5),
    "masked": lambda shape: Masked(SquaredL2(), mask(shape)),
    "masked sup": lambda shape: Masked(SquaredSup(), mask(shape)),
    "matrix": lambda shape: Mahalanobis(matrix(math.prod(shape))),
    "masked matrix": lambda shape: Masked(Mahalanobis(matrix(math.prod(shape))), mask(shape)),
}

CRITERIA: dict[str, tuple[Criterion, int]] = {
    "cross-entropy": (CrossEntropy(), 3),
    "temperature": (CrossEntropy(temperature=0.5), 3),
    "smoothed labels": (CrossEntropy(label_smoothing=0.1), 3),
    "smooth margin": (SmoothMargin(sharpness=3.0, margin=0.5), 3),
    "logistic": (Logistic(), 1),
    "squared error": (SquaredError(), 2),
}

DOMAINS = {
    "box": Box(-1.0, 2.0),
    "half-line": Box(torch.tensor([0.0, -math.inf, -1.0, -math.inf]), math.inf),
    "ball": Ball(torch.tensor([0.1, 0.2, 0.3, 0.4]), 3.0),
    "everything": Unbounded(),
}

ACTIVATIONS = [
    ("sigmoid",),
    ("tanh",),
    ("softplus",),
    ("elu",),
    ("gelu",),
    ("gelu_tanh",),
    ("silu",),
    ("mish",),
    ("log_cosh",),
    ("smooth_abs",),
    ("piecewise_linear", 0.1, 1.0),
    ("clamp", 0.0, 6.0),
    ("clamp", -math.inf, 1.5),
    ("kinked_elu", 1.7, 1.05),
    ("softplus_threshold", 20.0),
]


def mask(shape: Shape) -> Tensor:
    flags = torch.ones(shape, dtype=torch.bool)
    flags.view(-1)[::3] = False
    return flags


def matrix(size: int) -> Tensor:
    root = torch.randn(size, size, dtype=torch.float64) / (4 * math.sqrt(size)) + torch.eye(size)
    return root @ root.T


def problem(model: nn.Module, shape: Shape, criterion: Criterion, cost: Cost, domain: Any = None) -> Problem:
    """The kernel's problem about four random samples."""
    analysis = Analysis(model, criterion, input_shape=shape, cost=cost)
    inputs = torch.rand(4, *shape, dtype=torch.float64)
    targets = torch.arange(4) % (analysis.problem.classes or 2)
    if analysis.problem.classes is None:
        targets = torch.randn(4, math.prod(analysis.graph.out_shape), dtype=torch.float64)
    wide = replace(analysis.problem, domain=(domain or Unbounded()).kernel())
    return wide.about(inputs, targets)


def stored(original: Problem) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Description and tensors after a way through bytes."""
    description, tensors = describe_problem(original)
    return parse_object(json.dumps(description, allow_nan=False).encode()), parse_tensors(save(tensors))


def read_back(original: Problem) -> Problem:
    return build_problem(*stored(original), (original.inputs, original.targets))


def numbers(problem: Problem) -> Iterator[Tensor]:
    """Bounds of a problem: everywhere, on balls, its rounding, outputs, losses and gaps."""
    for radius in (None, 0.1, 2.0):
        for part in problem.bounds(radius):
            for value in vars(part).values():
                several = value.convex if isinstance(value, Totals) else value
                yield from several.values() if isinstance(several, dict) else [] if value is None else [value]
    yield from outputs_at(problem.graph, problem.inputs)
    yield from map(torch.as_tensor, vars(rounding_at(problem.graph, problem.inputs)).values())
    yield problem.losses(problem.inputs)
    yield problem.reach
    moved = problem.inputs.flip(0)
    yield problem.cost.value(moved, problem.inputs)
    yield problem.cost.dual(moved)
    yield problem.cost.gap(moved, problem.inputs, torch.ones(len(moved)).double(), problem.domain)


def check_equal(first: Problem, second: Problem) -> None:
    pairs = list(zip(numbers(first), numbers(second), strict=True))
    assert len(pairs) > 20
    for expected, value in pairs:
        assert torch.equal(expected, value)


def quick(names: Iterable[str], *others: str) -> list[Any]:
    """All names, of which ``others`` wait for the soak."""
    return [pytest.param(name, marks=pytest.mark.soak if name in others else ()) for name in names]


@pytest.mark.parametrize(
    "name",
    quick(NETWORKS, "linear", "no bias", "scaled", "units first", "strided", "convolutions", "perceptron"),
)
def test_bounds_of_a_network_are_the_same(name: str) -> None:
    model, shape = NETWORKS[name]()
    original = problem(model, shape, CrossEntropy(), SquaredL2(), Box(0, 1))
    check_equal(original, read_back(original))


@pytest.mark.parametrize(
    ("name", "network"),
    [
        pytest.param(name, network, marks=() if "dense" in network or name == "masked" else pytest.mark.soak)
        for name in COSTS
        for network in ("dense", "strided", "units first", "pooled", "transposed")
    ],
)
def test_bounds_for_a_cost_are_the_same(name: str, network: str) -> None:
    """The cost is merged into the first layer again, and the claims about that are accepted again."""
    model, shape = NETWORKS[network]()
    original = problem(model, shape, CrossEntropy(), COSTS[name](shape))
    check_equal(original, read_back(original))


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        pytest.param(name, domain, marks=pytest.mark.soak if place % 3 else ())
        for place, (name, domain) in enumerate(itertools.product(CRITERIA, DOMAINS))
    ],
)
def test_bounds_for_losses_and_domains_are_the_same(name: str, domain: str) -> None:
    criterion, outputs = CRITERIA[name]
    model = nn.Sequential(nn.Linear(4, 5), nn.Softplus(), nn.Linear(5, outputs))
    original = problem(model, (4,), criterion, SquaredL2(), DOMAINS[domain])
    check_equal(original, read_back(original))


@pytest.mark.parametrize("power", [1, 2])
def test_hinges_of_linear_scores_are_the_same(power: int) -> None:
    graph = Graph((Node((), (4,)), Node((0,), (1,), Dense(torch.randn(1, 4).double(), None))))
    data = torch.randn(4, 4).double(), torch.arange(4) % 2
    cost = kernel_costs.Lp(shape=(4,), label_price=3.0)
    original = Problem.of(graph, Hinge(power), cost, kernel_costs.Domain(), data)
    again = read_back(original)
    assert again.loss == original.loss
    assert again.cost.label_price == 3.0
    check_equal(original, again)


@pytest.mark.parametrize("settings", ACTIVATIONS, ids=str)
@pytest.mark.parametrize(
    "sharpness",
    [torch.tensor([0.5, 2.0, 3.0]).double(), *(pytest.param(b, marks=pytest.mark.soak) for b in (1.0, 0.7))],
    ids=str,
)
def test_bounds_of_an_activation_are_the_same(settings: Any, sharpness: Any) -> None:
    units = Pointwise(scalar(*settings), (3,), sharpness)
    first, last = (Dense(torch.randn(3, 3).double(), torch.randn(3).double()) for _ in range(2))
    nodes = [Node((number,), (3,), part) for number, part in enumerate((first, units, last))]
    data = torch.randn(4, 3).double(), torch.arange(4) % 3
    graph, cost = Graph((Node((), (3,)), *nodes)), kernel_costs.Lp(shape=(3,))
    claim_norms(graph)
    original = Problem.of(graph, Softmax(), cost, kernel_costs.Domain(), data)
    check_equal(original, read_back(original))


def test_names_and_assumptions_are_kept() -> None:
    model, shape = NETWORKS["residual"]()
    graph = problem(model, shape, CrossEntropy(), SquaredL2()).graph
    nodes = tuple(replace(node, assumptions=("a claim",)) for node in graph.nodes)
    description, tensors = describe_graph(Graph(nodes))
    again = build_graph(description, tensors)
    for node, read in zip(nodes, again.nodes, strict=True):
        assert (node.name, node.kind, node.assumptions, node.shape) == (
            *(read.name, read.kind, read.assumptions, read.shape),
        )


# Parts of the user's own.


def test_an_activation_of_the_users_own_is_not_written() -> None:
    own = replace(scalar("tanh"), value=torch.sin)
    graph = Graph((Node((), (3,)), Node((0,), (3,), Pointwise(own, (3,)), name="act", kind="Sine")))
    with pytest.raises(UnsupportedError, match=r"layer act \(Sine\) .* the activation 'tanh'"):
        describe_graph(graph)
    clipped = replace(scalar("clamp", 0.0, 1.0), kinks=())
    with pytest.raises(UnsupportedError, match=r"node 1 .* the activation 'clamp'"):
        describe_graph(Graph((Node((), (3,)), Node((0,), (3,), Pointwise(clipped, (3,))))))
    moved = replace(scalar("clamp", 0.0, 1.0), value=scalar("clamp", 0.0, 2.0).value)
    with pytest.raises(UnsupportedError, match="the activation 'clamp'"):
        describe_graph(Graph((Node((), (3,)), Node((0,), (3,), Pointwise(moved, (3,))))))
    unknown = replace(scalar("tanh"), name="sine")
    with pytest.raises(UnsupportedError, match="the activation 'sine'"):
        describe_graph(Graph((Node((), (3,)), Node((0,), (3,), Pointwise(unknown, (3,))))))


def test_a_primitive_of_the_users_own_is_not_written() -> None:
    class Twice(Dense):
        pass

    part = Twice(2 * torch.eye(3).double(), None)
    for primitive in (part, Product((Reshape((3,), (3,)), part))):
        with pytest.raises(
            UnsupportedError, match=r"layer twice .* the code of Twice, which is not a primitive"
        ):
            describe_graph(Graph((Node((), (3,)), Node((0,), (3,), primitive, name="twice"))))


def test_a_cost_of_the_users_own_is_not_written() -> None:
    cost = Bregman(lambda z: (z**2).flatten(1).sum(1), 2.0).kernel((3,))
    with pytest.raises(UnsupportedError, match=r"of Bregman .* the code of Claimed, which is not a cost"):
        describe_cost(cost)


# Malformed files.


@pytest.fixture(name="dense")
def dense_problem() -> Problem:
    model = nn.Sequential(Scale(0.3), nn.Linear(4, 5), nn.Softplus(), nn.Linear(5, 3))
    return problem(
        model, (4,), CrossEntropy(), WeightedL2(torch.tensor([1.0, 2.0, 3.0, 4.0])), Ball(0.0, 3.0)
    )


def changed(description: Any, path: str, value: Any) -> Any:
    """A copy with another entry; the entry goes for ``...``."""
    description = copy.deepcopy(description)
    *places, last = [int(place) if place.isdigit() else place for place in path.split(".")]
    part = description
    for place in places:
        part = part[place]
    if value is ...:
        del part[last]
    else:
        part[last] = value
    return description


FIRST = "graph.nodes.1.primitive"
CYCLE = {
    "inputs": [0, 2],
    "shape": [5],
    "primitive": None,
    "axis": None,
    "name": "",
    "kind": "",
    "assumptions": [],
}
WRONG: list[tuple[str, Any, str]] = [
    ("graph", ..., "object with the entries graph, cost"),
    ("graph", 3, "graph: there must be an object"),
    ("graph.more", 1, "an object with the entries nodes, moves"),
    ("graph.nodes", {}, "nodes: there must be a list"),
    ("graph.nodes", [], "leads nowhere"),
    ("graph.nodes.1.inputs", [2], "leads nowhere"),
    ("graph.nodes.1.inputs", [-1], "inputs: 0: there must be a count"),
    ("graph.nodes.1.inputs", [False], "inputs: 0: there must be a count; got False"),
    ("graph.nodes.1.inputs", [0, 0], "shapes of node 1 do not fit"),
    ("graph.nodes.1.inputs", [], "leads nowhere"),
    ("graph.nodes.1.shape", [6], "shapes of node 1 do not fit"),
    ("graph.nodes.1.shape", [0], "the shape .* must have 1 to"),
    ("graph.nodes.1.shape", [1 << 20, 1 << 20], "the shape .* must have 1 to"),
    ("graph.nodes.1.axis", 0, "shapes of node 1 do not fit"),
    ("graph.nodes.1.name", None, "name: there must be a text"),
    ("graph.nodes.1", CYCLE, "node 1 uses a node that does not come before it"),
    (f"{FIRST}.type", "Sparse", "'Sparse' is not a primitive of the kernel"),
    (f"{FIRST}.type", ["Dense"], "is not a primitive of the kernel"),
    (f"{FIRST}.type", "Lp", "'Lp' is not a primitive of the kernel"),
    (f"{FIRST}.matrix", "cost.scales", "primitive: "),
    (f"{FIRST}.matrix", "nothing", "matrix: there must be the name of a tensor"),
    (f"{FIRST}.matrix", None, "matrix: there must be the name of a tensor"),
    (f"{FIRST}.in_shape", [2], "primitive: "),
    (f"{FIRST}.in_shape", [4, 1 << 40], "in_shape: .* there must be a count"),
    (f"{FIRST}.out_shape", [1], "entries of Dense do not fit together"),
    (f"{FIRST}.bias", None, "a bias has a bias_size"),
    (f"{FIRST}.bias_size", None, "a bias has a bias_size"),
    (f"{FIRST}.bias_size", "3.bias", "bias_size must be at least the size of the bias"),
    (f"{FIRST}.folds", -1, "folds: there must be a count"),
    (f"{FIRST}.folds", 1.0, "folds: there must be a count"),
    (f"{FIRST}.folds", True, "folds: there must be a count"),
    (f"{FIRST}.norms", [0.0], "a norm must be positive"),
    (f"{FIRST}.norms", [1e-3], "a norm is larger than the claim"),
    (f"{FIRST}.norms", ["inf"], "norms: 0: there must be a number"),
    (f"{FIRST}.norms", [True], "norms: 0: there must be a number; got True"),
    (f"{FIRST}.norms", [1e300], "norms: 0: there must be a number"),
    (f"{FIRST}.written", 1, "written: there must be a flag"),
    ("graph.nodes.2.primitive.scalar", ["sine"], "the activation 'sine' is not known"),
    ("graph.nodes.2.primitive.scalar", [], "scalar: "),
    ("graph.nodes.2.primitive.scalar", "tanh", "scalar: "),
    ("graph.nodes.2.primitive.scalar", ["tanh", 1.0], "the activation 'tanh' is not known"),
    ("graph.nodes.2.primitive.scalar", ["clamp", 1.0], "scalar: .* missing 1 required"),
    ("graph.nodes.2.primitive.scalar", ["clamp", 2.0, 1.0], "leave nothing between them"),
    ("graph.nodes.2.primitive.scalar", ["piecewise_linear", "inf", 1.0], "entries of Pointwise do not fit"),
    ("graph.nodes.2.primitive.scalar", ["kinked_elu", 1e60, 1e60], "entries of Pointwise do not fit"),
    ("graph.nodes.2.primitive.scalar", ["softplus_threshold", -1e4], "math range error"),
    ("graph.nodes.2.primitive.sharpness", 0.0, "a sharpness must be positive"),
    ("graph.nodes.2.primitive.sharpness", "cost.scales", "primitive: "),
    ("graph.moves", None, "problem: "),
    ("graph.moves.norms", [1e-3], "a norm is larger than the claim"),
    ("graph.moves.parts", [{}], "problem: "),
    ("cost.type", "Claimed", "'Claimed' is not a cost of the kernel"),
    ("cost.shape", [5], "cost: "),
    ("cost.p", 3.0, "the exponent of a cost"),
    ("cost.p", "-inf", "the exponent of a cost"),
    ("cost.p", "nan", "p: there must be a infinity"),
    ("cost.scales", "1.bias", "cost: "),
    ("cost.free", "cost.scales", "free: there must be the name of a tensor"),
    ("cost.label_price", -1.0, "entries of Lp do not fit"),
    ("loss.slope", 0.0, "constants of the loss do not fit together"),
    ("loss.spread", 0.5, "constants of the loss do not fit together"),
    ("loss.smoothing", 1.0, "constants of the loss do not fit together"),
    ("loss.logistic", True, "a logistic loss or a hinge has one output"),
    ("loss", {"type": "Hinge", "power": 3}, "entries of Hinge do not fit"),
    ("loss", {"type": "SquaredError"}, "samples must be finite"),
    ("domain.radius", 0.0, "entries of Domain do not fit"),
    ("domain.radius", "inf", "entries of Domain do not fit"),
    ("domain.center", None, "entries of Domain do not fit"),
    ("domain.lower", "domain.center", "entries of Domain do not fit"),
    ("domain.upper", "1.matrix", "limits of the domain|entries of Domain|The size of tensor"),
]


@pytest.mark.parametrize(("path", "value", "words"), WRONG, ids=lambda part: str(part)[:40])
def test_a_wrong_description_is_refused(dense: Problem, path: str, value: Any, words: str) -> None:
    description, tensors = stored(dense)
    tensors["domain.center"] = (
        tensors["domain.center"] + 1 if value == "domain.center" else tensors["domain.center"]
    )
    if value == "domain.center":
        tensors["domain.upper"] = torch.zeros(()).double()
    with pytest.raises(Refused, match=words):
        build_problem(changed(description, path, value), tensors, (dense.inputs, dense.targets))


def entries(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to everything in a description."""
    for place, inner in part.items() if isinstance(part, dict) else enumerate(part):
        yield (*path, place)
        if isinstance(inner, dict | list):
            yield from entries(inner, (*path, place))


JUNK: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    7,
    1 << 70,
    0.5,
    -3.0,
    1e300,
    math.nan,
    "",
    "inf",
    "1.matrix",
    [],
    [1],
    [[2]],
    {},
]


@pytest.mark.parametrize("count", [8, pytest.param(60, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "network", ["dense", "pooled", "grouped", "concatenated", "transposed", "batch norm"]
)
def test_any_other_entry_is_refused_or_makes_no_bound_smaller(network: str, count: int) -> None:
    """Where an entry says another network, its bounds hold for that one: its outputs differ, too."""
    model, shape = NETWORKS[network]()
    original = problem(model, shape, CrossEntropy(), WeightedL2(torch.rand(shape) + 0.5), Box(0, 1))
    description, tensors = stored(original)
    refused = 0
    generator = torch.Generator().manual_seed(0)
    paths = list(entries(description))
    for index in torch.randperm(len(paths), generator=generator).tolist()[:count]:
        path = paths[index]
        for junk in [JUNK[i] for i in torch.randperm(len(JUNK), generator=generator).tolist()[:6]]:
            forged = copy.deepcopy(description)
            part = forged
            for place in path[:-1]:
                part = part[place]
            if part[path[-1]] == junk and type(part[path[-1]]) is type(junk):
                continue
            part[path[-1]] = junk
            try:
                read = build_problem(forged, tensors, (original.inputs, original.targets))
            except Refused:
                refused += 1
                continue
            if path[0] == "graph":
                check_not_smaller(original, read)
    assert refused > count * 5 / 3


def check_not_smaller(original: Problem, read: Problem) -> None:
    """Unless it is another function, its bounds are no smaller, but for the room of a claimed norm, and for
    the jump of 2·10⁻⁹ of a softplus that gets a larger threshold."""
    points = torch.cat([original.inputs, 10 * torch.randn_like(original.inputs)])
    if torch.equal(read.graph.apply(points), original.graph.apply(points)):
        for radius in (None, 0.1):
            for old, new in zip(original.bounds(radius), read.bounds(radius), strict=True):
                assert bool((new.lipschitz >= old.lipschitz * (1 - 1e-7)).all())
                assert bool((new.curvature["max"] >= old.curvature["max"] * (1 - 1e-7)).all())


@given(st.data())
def test_changed_bytes_of_tensors_are_refused_or_are_other_numbers(data: st.DataObject) -> None:
    tensors = {
        "a": torch.arange(6.0).double().reshape(2, 3),
        "b": torch.tensor([True, False]),
        "c": torch.ones(2),
    }
    content = bytearray(save(tensors))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([0, 0, 1, 8, len(content) // 2]))
    try:
        read = parse_tensors(bytes(content[: len(content) - cut]))
    except Refused:
        return
    assert cut == 0
    assert all(tensor.dtype in (torch.float64, torch.int64, torch.bool) for tensor in read.values())
    assert sum(tensor.numel() for tensor in read.values()) <= 24


@given(st.binary(max_size=60))
def test_random_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(Refused, match=r"\w"):
        parse_tensors(content)
    with pytest.raises(Refused, match=r"not JSON|JSON object"):
        parse_object(b"\x00" + content)


def safetensors(header: Any, numbers: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + numbers


ONE = {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "ends before its header"),
        (b"\xff" * 8, "ends before its header"),
        (safetensors(b"[]"), "must be a JSON object"),
        (safetensors(b'{"a": 1, "a": 2}'), "occurs twice"),
        (safetensors(b"[" * 100_000), "not JSON"),
        (safetensors(b"9" * 5000), "not JSON"),
        (safetensors({"a": 1}), "there must be an object with the entries dtype"),
        (safetensors({"a": ONE}), "one behind the other"),
        (safetensors({"a": ONE}, bytes(9)), "one behind the other"),
        (safetensors({"a": ONE, "b": ONE}, bytes(8)), "one behind the other"),
        (safetensors({"a": ONE | {"data_offsets": [8, 0]}}, bytes(8)), "one behind the other"),
        (safetensors({"a": ONE | {"data_offsets": [0]}}, bytes(8)), "one behind the other"),
        (safetensors({"a": ONE | {"data_offsets": [0, 8, 8]}}, bytes(8)), "one behind the other"),
        (safetensors({"a": ONE | {"shape": [2]}}, bytes(8)), "as many bytes as its shape"),
        (safetensors({"a": ONE | {"shape": [-1]}}, bytes(8)), "there must be a count"),
        (safetensors({"a": ONE | {"shape": [1 << 30] * 4}}, bytes(8)), "as many bytes as its shape"),
        (safetensors({"a": ONE | {"dtype": "BF16"}}, bytes(8)), "must be of F64, F32, I64, BOOL"),
        (safetensors({"a": ONE | {"dtype": ["F64"]}}, bytes(8)), "there must be a text"),
        (safetensors({"a": ONE | {"dtype": "BOOL", "shape": [8]}}, b"\x02" * 8), "must hold 0 and 1"),
    ],
)
def test_a_wrong_file_of_tensors_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(Refused, match=words):
        parse_tensors(content)


def test_single_precision_is_read_exactly() -> None:
    values = torch.randn(5)
    assert torch.equal(parse_tensors(save({"a": values}))["a"], values.double())
    assert parse_tensors(save({})) == {}


def test_weights_that_are_not_finite_are_refused(dense: Problem) -> None:
    description, tensors = stored(dense)
    for bad in (math.nan, math.inf):
        tensors["1.matrix"][0, 0] = bad
        with pytest.raises(Refused, match="matrix: there must be the name of a tensor of floats"):
            build_problem(description, tensors, (dense.inputs, dense.targets))


def test_positions_outside_of_the_input_are_refused() -> None:
    gather = Gather(torch.tensor([2, -1, 0]), (3,))
    pool = MaxPool((torch.tensor([[0, 1], [1, 2]]),), (1, 3))
    nodes = Node((), (3,)), Node((0,), (3,), gather), Node((1,), (1, 3), Reshape((3,), (1, 3)))
    description, tensors = describe_graph(Graph((*nodes, Node((2,), (1, 2), pool))))
    points = torch.randn(5, 3).double()
    assert torch.equal(build_graph(description, tensors).apply(points)[:, 0, 0], points[:, 2].clamp_min(0))
    for name, place in (("1.index", 0), ("3.windows.0", (0, 0))):
        for bad in (4, 1 << 40):
            forged = {key: tensor.clone() for key, tensor in tensors.items()}
            forged[name][place] = bad
            with pytest.raises(Refused, match=r"primitive: .*(out of (range|bounds)|index)"):
                build_graph(description, forged)
    tensors["3.windows.0"][0] = -1
    with pytest.raises(Refused, match="a window of a maximum is empty"):
        build_graph(description, tensors)


def test_deep_nesting_is_refused() -> None:
    part: Any = {"type": "Reshape", "in_shape": [2], "out_shape": [2], "folds": 0, "bias_size": None}
    part |= {"norms": [], "written": False}
    for _ in range(2000):
        part = {**part, "type": "Transposed", "original": part, "bias": None}
        part.pop("in_shape", None), part.pop("out_shape", None)
    node = {
        "inputs": [0],
        "shape": [2],
        "primitive": part,
        "axis": None,
        "name": "",
        "kind": "",
        "assumptions": [],
    }
    with pytest.raises(Refused, match="recursion"):
        build_graph({"nodes": [node | {"inputs": [], "primitive": None}, node], "moves": None}, {})


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be read"):
        read_bytes(tmp_path / "nothing")
    with pytest.raises(Refused, match=r"cannot be read|not a regular file"):
        read_bytes(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refused, match="not a regular file"):
        read_bytes(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"abc")
    assert read_bytes(tmp_path / "file") == b"abc"


@pytest.mark.parametrize(
    "network",
    quick(["dense", "pooled", "concatenated", "batch norm", "transposed"], "pooled", "concatenated"),
)
def test_a_loaded_network_computes_what_the_model_does(network: str, tmp_path: Path) -> None:
    model, shape = NETWORKS[network]()
    save_problem(tmp_path, problem(model, shape, CrossEntropy(), WeightedL2(torch.rand(shape) + 0.5)))
    points = torch.randn(7, *shape)
    outputs = load_graph(tmp_path)(points)
    assert outputs.dtype == torch.float64
    torch.testing.assert_close(outputs, model.double().eval()(points.double()), rtol=1e-10, atol=1e-10)


def test_loading_tells_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"`folder` must hold .* cannot be read"):
        load_graph(tmp_path)
