"""Rules of the user's: assumed by name where they stand, refused where a point refutes them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import certus
from certus.bounds import RULES, Analysis, rule
from certus.bounds.claims import check_activation, check_bounds
from certus.bounds.layer_rules import Branches, find_rule
from certus.errors import CertusError, ClaimError
from certus.kernel.max_pool import MaxPool
from certus.kernel.operators import Affine, Claim, Dense, Diagonal, Weights
from certus.kernel.passes import (
    ForwardBound,
    GradientBound,
    Memory,
    Place,
    Primitive,
    Range,
    Rounded,
    Shape,
    Totals,
)
from certus.kernel.pointwise import Joint, Pointwise, Scalar, scalar
from certus.models import Residual

ELU, SILU, SMOOTH_ABS, SOFTPLUS, TANH = map(scalar, ("elu", "silu", "smooth_abs", "softplus", "tanh"))

OWN = [
    *(nn.Sigmoid(), nn.Tanh(), nn.Softplus(), nn.Softplus(4.0), nn.ELU(), nn.CELU(0.3), nn.GELU()),
    *(nn.GELU("tanh"), nn.SiLU(), nn.Mish(), certus.models.LogCosh(3.0), certus.models.SmoothAbs(0.5)),
    *(nn.ReLU(), nn.ReLU6(), nn.SELU(), nn.Hardtanh(), nn.LeakyReLU(0.2), nn.ELU(2.0)),
]


@pytest.fixture(autouse=True)
def rules_as_they_were() -> Iterator[None]:
    before = dict(RULES)
    yield
    RULES.clear()
    RULES.update(before)


class Mine(nn.Module):
    """tanh, which has no rule of its own here."""

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.tanh(inputs)


def model(layer: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), layer or Mine(), nn.Linear(4, 2)).double()


def claim(
    described: Scalar | Callable[[Any, Shape], Primitive | Branches], kind: type[nn.Module] = Mine
) -> None:
    """Register a rule, or the one that a layer is this activation."""
    rule(kind)(described if callable(described) else lambda module, shape: Pointwise(described, shape))


@pytest.mark.parametrize("module", OWN, ids=str)
def test_our_own_activations_stand(module: nn.Module) -> None:
    """The same trial as anybody's: autograd, secants and sampled ranges agree with the table."""
    found = find_rule(module)
    assert found is not None
    activation = found(module, (4,))
    assert isinstance(activation, Pointwise)
    check_activation("ours", activation)


def test_a_claim_that_stands_is_assumed_by_name() -> None:
    claim(TANH)
    mine, plain = certus.input_smoothness(model()), certus.input_smoothness(model(nn.Tanh()))
    assert mine.bounds == plain.bounds
    assert (plain.evidence, plain.assumptions) == ("proven", ())
    assert (mine.evidence, mine.assumptions) == ("assumed", ("the rule of Mine (layer 1)",))
    content = mine.as_json()
    assert content["evidence"] == "assumed"
    assert content["assumptions"] == ["the rule of Mine (layer 1)"]
    assert content["validity"].startswith("Assumed: the rule of Mine (layer 1). If that holds: Proven for")
    inputs, targets = torch.zeros(2, 3), torch.tensor([0, 1])
    near = certus.bounds.local_smoothness(model(), inputs, targets, 0.1)
    assert (near.evidence, near.assumptions) == ("assumed", mine.assumptions)
    assert certus.bounds.local_smoothness(model(nn.Tanh()), inputs, targets, 0.1).evidence == "proven"


def test_every_place_is_named() -> None:
    claim(lambda module, shape: Diagonal(torch.tensor(0.5).double(), None, shape), Halve)
    claim(TANH)
    branch = nn.Sequential(nn.Linear(4, 4), Mine())
    deep = nn.Sequential(Halve(), nn.Linear(3, 4), Residual(branch), nn.Sequential(Halve()), nn.Linear(4, 2))
    named = (
        "the rule of Halve (layer 0)",
        "the rule of Mine (layer 2.branch.1)",
        "the rule of Halve (layer 3.0)",
    )
    assert Analysis(deep.double(), input_shape=(3,)).problem.assumptions == named
    alone = Analysis(Halve(), input_shape=(3,))
    assert alone.problem.assumptions == ("the rule of Halve (the model itself)",)


class Halve(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs / 2


def test_our_rule_replaced_or_borrowed_is_the_users() -> None:
    """Whoever registers vouches: for nn.Tanh by a function of his own, or for his class by one of ours."""
    claim(TANH, nn.Tanh)
    assert certus.input_smoothness(model(nn.Tanh())).assumptions == ("the rule of Tanh (layer 1)",)
    rule(Mine)(RULES[nn.Identity])
    with pytest.raises(ClaimError, match=r"The rule of Mine \(layer 1\) is refuted: it claims the output"):
        certus.input_smoothness(model())


def test_a_bound_constructed_elsewhere_is_assumed() -> None:
    made = certus.bounds.SmoothnessBound({"mine": 1.0}, 1.0, 1.0, None, None, [], None, certus.SquaredL2())
    assert made.evidence == made.as_json()["evidence"] == "assumed"
    assert made.assumptions == ("the bounds themselves, which certus did not derive",)


def test_a_bound_that_was_altered_is_assumed() -> None:
    """The evidence of a bound is about its numbers: other numbers in its place have none."""
    network = model(nn.Tanh())
    inputs, targets = torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)
    everywhere, local = (
        certus.input_smoothness(network),
        certus.bounds.local_smoothness(network, inputs, targets, 0.1),
    )
    for bound, altered in (
        (everywhere, replace(everywhere, lipschitz=0.0)),
        (local, replace(local, lipschitz=torch.zeros(2))),
    ):
        assert (bound.evidence, bound.assumptions) == ("proven", ())
        assert copy.deepcopy(bound).evidence == "proven"
        assert altered.evidence == "assumed"
        assert altered.assumptions == ("the bounds themselves, which certus did not derive",)
    assert replace(everywhere, lipschitz=0.0).as_json()["evidence"] == "assumed"


def hidden(z: Tensor) -> Tensor:
    return 1e-3 * torch.sin(50 * z) * torch.exp(-((z - 5) ** 2))


def detached(activation: Scalar, factor: float) -> Scalar:
    """Without a gradient for autograd, and with derivatives too large by a factor."""
    return replace(
        activation,
        value=lambda z: activation.value(z.detach()),
        slope=lambda z: factor * activation.slope(z.detach()),
        curvature=lambda z: factor * activation.curvature(z.detach()),
    )


RELU = Scalar("relu", torch.relu, lambda z: (z >= 0).to(z), torch.zeros_like, slope_peaks=(-1e-300, 0.0))
JUMP = Scalar(
    *(
        "jump",
        lambda z: z + 1e-6 * torch.relu(z - 1.7),
        lambda z: 1 + 1e-6 * (z > 1.7).to(z),
        torch.zeros_like,
    ),
    slope_limits=(1.0, 1.000001),
)
WRONG: dict[str, tuple[Scalar, str]] = {
    "both 100 times too small": (
        replace(TANH, slope=lambda z: TANH.slope(z) / 100, curvature=lambda z: TANH.curvature(z) / 100),
        r"claims σ' = 0\.01 at z = 0\.0; autograd gives 1\.0",
    ),
    "no autograd": (
        detached(TANH, 0.01),
        r"σ' lies between 0\.0\d+ and 0\.0\d+ from z = .*; its mean there is",
    ),
    "σ''": (replace(TANH, curvature=lambda z: 0.999 * TANH.curvature(z)), r"claims σ'' = .*; autograd gives"),
    "hidden wave": (
        replace(TANH, value=lambda z: TANH.value(z) + hidden(z)),
        "claims σ' = .*; autograd gives",
    ),
    "no peaks": (replace(TANH, curvature_peaks=()), "σ''"),
    "one peak": (replace(TANH, curvature_peaks=TANH.curvature_peaks[:1]), "σ''"),
    "peaks a little off": (
        replace(TANH, curvature_peaks=(-0.6585, 0.6585)),
        r"all σ'' lie between .* by its",
    ),
    "no peak of σ'": (
        replace(TANH, slope_peaks=()),
        r"all σ' lie between .*, by its ends, peaks and limits; at",
    ),
    "limits": (replace(SOFTPLUS, slope_limits=(0.0, 0.5)), r"all σ' lie between .* to inf, by its"),
    "an unknown kink": (
        RELU,
        r"claims that σ'' lies between -1e-13 and 1e-13 from z = .*; its mean there is",
    ),
    "a small unknown kink": (JUMP, "claims that σ'' lies between"),
    "arc": (replace(SILU, joint=Joint.ARC), r"claims 0 ≤ σ'' ≤ 1 − σ'²; at z = .* σ' is .* and σ'' is"),
    "arc with σ'' < 0": (replace(TANH, joint=Joint.ARC), "claims 0 ≤ σ'' ≤ 1 − σ'²; at z = "),
    "logistic": (replace(SMOOTH_ABS, joint=Joint.LOGISTIC), r"claims σ'' = σ'\(1 − σ'\); at z = "),
    "not finite": (Scalar("exp", torch.exp, torch.exp, torch.exp), "σ must be finite; it is not at ±"),
    "another dtype": (replace(TANH, slope=lambda z: TANH.slope(z).float()), "σ' must map float64 tensors"),
}


@pytest.mark.parametrize(("wrong", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_activations_are_refused(wrong: Scalar, message: str) -> None:
    claim(wrong)
    with pytest.raises(ClaimError, match=rf"The rule of Mine \(layer 1\).*{message}"):
        certus.input_smoothness(model())


class Sharp(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return torch.sigmoid(5 * inputs) / 5


@pytest.mark.parametrize(
    ("layer", "described"),
    [
        (Sharp(), lambda module, shape: Pointwise(scalar("sigmoid"), shape, 5.0)),
        (Mine(), lambda module, shape: Pointwise(replace(TANH, name="sigmoid"), shape)),
    ],
    ids=["sharpened", "named"],
)
def test_the_constant_that_the_paper_prints_is_that_of_the_sigmoid_only(
    layer: nn.Module, described: Callable[[Any, Shape], Primitive]
) -> None:
    """sup|σ''| ≤ 1/10 holds for neither of these: one hidden unit, at inputs that are labelled wrong."""
    claim(described, type(layer))
    network = nn.Sequential(nn.Linear(1, 1), layer, nn.Linear(1, 2)).double()
    weights = ([[1.0]], [0.0], [[0.5], [-0.5]], [20.0, -20.0])
    for parameter, values in zip(network.parameters(), weights, strict=True):
        parameter.data = torch.tensor(values).double()
    points = torch.linspace(-3, 3, 201).double().unsqueeze(1)
    loss, labels = certus.ModelLoss(network), torch.ones(201, dtype=torch.long)
    attained = float(certus.inner.largest_curvature(loss, points, labels).largest.max())
    for bound in certus.input_smoothness(network).bounds.values():
        assert bound >= attained


def test_more_kinks_than_there_are_is_no_lie() -> None:
    claim(replace(ELU, kinks=(0.0,)), Elu)
    found = certus.input_smoothness(model(Elu()))
    assert found.curvature == math.inf
    assert found.assumptions


class Elu(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.elu(inputs)


class Far(nn.Module):
    """x/2, but for inputs beyond a thousand."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs / 2 + torch.relu(inputs.abs() - 1e3)


def halving(**changed: Any) -> Callable[[Any, Shape], Diagonal]:
    def made(module: nn.Module, shape: Shape) -> Diagonal:
        operator = Diagonal(torch.tensor(0.5).double(), None, shape)
        for name, factor in changed.items():
            setattr(operator, name, getattr(operator, name) * factor)
        return operator

    return made


class Permutation(Affine):
    """A permutation whose transpose is wrong: it is no involution."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape, shape, (), None, 1)

    def act(self, points: Tensor, weights: Weights) -> Tensor:
        return points.roll(1, 1)

    def transposed(self, rows: Tensor, weights: Weights) -> Tensor:
        return rows.roll(1, 1)

    @property
    def composed_norm(self) -> float:
        return 1.0


class Half(Affine):
    """x/2, without a norm of its own."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape, shape, (torch.tensor(0.5).double(),), None, 1)

    def act(self, points: Tensor, weights: Weights) -> Tensor:
        return points * weights[0]

    def transposed(self, rows: Tensor, weights: Weights) -> Tensor:
        return rows * weights[0]


class ShortByParts(Half):
    @property
    def composed_norm(self) -> float:
        return 0.1


class ShortByAnyClaim(Half):
    def check(self, claim: Claim) -> float:
        return 0.1


class Roll(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.roll(1, 1)


class Peculiar(Diagonal):
    pass


OPERATORS: dict[str, tuple[nn.Module, Callable[[Any, Shape], Primitive | Branches], str]] = {
    "factor": (
        Halve(),
        lambda module, shape: Diagonal(torch.tensor(0.50001).double(), None, shape),
        r"claims the output .*, at an input of size .* \(.*\); the layer computes",
    ),
    "far": (Far(), halving(), r"at an input of size [1-9]\d{3}"),
    "norm": (
        Halve(),
        lambda module, shape: ShortByParts(shape),
        r"claims `norm` of at most 0\.1; a tested vector has 0\.5",
    ),
    "check of a norm": (
        Halve(),
        lambda module, shape: ShortByAnyClaim(shape),
        r"claims `norm` of at most 0\.1; a tested vector has 0\.5",
    ),
    "rows": (Halve(), halving(row_norms=0.5), "claims `row_norms` of at most"),
    "columns": (Halve(), halving(column_norms=0.5), "claims `column_norms` of at most"),
    "sizes": (Halve(), halving(absolute_norm=0.5), "claims `absolute_norm` of at most"),
    "transpose": (Roll(), lambda module, shape: Permutation(shape), "claims a transpose with"),
    "shape": (
        Halve(),
        lambda module, shape: Dense(torch.ones(7, 4).double(), None),
        r"outputs of shape \(7,\)",
    ),
    "subclass": (
        Halve(),
        lambda module, shape: Peculiar(torch.tensor(0.5).double(), None, shape),
        "got Peculiar, a subclass of Diagonal",
    ),
    "branches": (
        Halve(),
        lambda module, shape: Branches({"a": nn.Identity(), "b": nn.Identity()}),
        "claims the output",
    ),
}


@pytest.mark.parametrize(("layer", "described", "message"), OPERATORS.values(), ids=OPERATORS.keys())
def test_wrong_operators_are_refused(
    layer: nn.Module, described: Callable[[Any, Shape], Primitive | Branches], message: str
) -> None:
    claim(described, type(layer))
    with pytest.raises(ClaimError, match=rf"The rule of {type(layer).__name__} \(layer 1\).*{message}"):
        certus.input_smoothness(model(layer))


def test_an_operator_of_another_kind_may_stand() -> None:
    claim(lambda module, shape: Half(shape), Halve)
    bound, plain = (certus.input_smoothness(model(layer)) for layer in (Halve(), certus.models.Scale(0.5)))
    assert bound.curvature == pytest.approx(plain.curvature, rel=1e-8)
    assert (bound.evidence, bound.assumptions) == ("assumed", ("the rule of Halve (layer 1)",))


REFUSED: dict[str, tuple[Callable[[Any, Shape], Primitive | Branches], str]] = {
    "sharpness": (
        lambda module, shape: Pointwise(TANH, shape, -1.0),
        r"a sharpness must be positive and finite; got -1\.0",
    ),
    "name": (lambda module, shape: Pointwise(scalar("tan"), shape), "the activation 'tan' is not known"),
    "input shape": (lambda module, shape: Pointwise(TANH, (5,)), "for inputs of shape"),
    "empty window": (
        lambda module, shape: MaxPool((torch.tensor([[0], [-1]]),), (1, *shape)),
        "a window of a maximum is empty",
    ),
}


@pytest.mark.parametrize(("described", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_primitives_that_cannot_be_are_refused(
    described: Callable[[Any, Shape], Primitive | Branches], message: str
) -> None:
    claim(described)
    with pytest.raises(CertusError, match=rf"layer 1.*{message}"):
        certus.input_smoothness(model())


class Twice(nn.Module):
    """Two layers of a rule of their own, added."""

    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * torch.tanh(inputs)


def test_branches_are_tried_too() -> None:
    claim(lambda module, shape: Branches({"left": Mine(), "right": nn.Tanh()}), Twice)
    claim(TANH)
    found = certus.input_smoothness(model(Twice()))
    assert found.assumptions == ("the rule of Mine (layer 1.left)", "the rule of Twice (layer 1)")
    wrong, _ = WRONG["σ''"]
    claim(wrong)
    with pytest.raises(ClaimError, match=r"The rule of Mine \(layer 1\.left\) is refuted: it claims σ'' ="):
        certus.input_smoothness(model(Twice()))
    claim(SILU)
    with pytest.raises(
        ClaimError, match=r"The rule of Mine \(layer 1\.left\) is refuted: it claims the output"
    ):
        certus.input_smoothness(model(Twice()))


class Scaled(Primitive):
    """Another primitive, some of whose forward bounds are multiplied by a factor."""

    def __init__(self, original: Primitive, **factors: float) -> None:
        self.original, self.factors = original, factors
        self.in_shape, self.out_shape = original.in_shape, original.out_shape

    def apply(self, points: Tensor) -> Tensor:
        return self.original.apply(points)

    def forward(self, before: ForwardBound, within: Range | None) -> tuple[ForwardBound, Memory]:
        bound, memory = self.original.forward(before, within)
        changed: dict[str, Any] = {name: by * getattr(bound, name) for name, by in self.factors.items()}
        return replace(bound, **changed), memory

    def backward(self, rows: GradientBound, memory: Memory, totals: Totals, place: Place) -> GradientBound:
        return self.original.backward(rows, memory, totals, place)

    def rounded(self, value: Tensor, error: Tensor) -> Rounded:
        return self.original.rounded(value, error)

    def backward_error(self, size: Tensor, error: Tensor, at: Rounded) -> tuple[Tensor, Tensor]:
        return self.original.backward_error(size, error, at)

    def amplify(self, size: float) -> float:
        return self.original.amplify(size)


def test_outputs_of_another_primitive_move_at_most_as_it_claims() -> None:
    halved = halving()(Halve(), (4,))
    for original in (
        *(Pointwise(each, (4,)) for each in (TANH, SILU)),
        Pointwise(SOFTPLUS, (4,), 3.0),
        halved,
    ):
        check_bounds("ours", Scaled(original))
        for name, factor in (("lipschitz", 0.5), ("unit", 0.3), ("curvature", 0.01)):
            if name == "curvature" and original is halved:
                continue
            with pytest.raises(ClaimError, match=rf"Theirs is refuted: it claims .*`{name}`"):
                check_bounds("Theirs", Scaled(original, **{name: factor}))


def test_another_primitive_in_a_network() -> None:
    claim(lambda module, shape: Scaled(Pointwise(TANH, shape)))
    found, plain = certus.input_smoothness(model()), certus.input_smoothness(model(nn.Tanh()))
    assert (found.curvature, found.lipschitz) == (plain.curvature, plain.lipschitz)
    assert (found.evidence, found.assumptions) == ("assumed", ("the rule of Mine (layer 1)",))
    claim(lambda module, shape: Scaled(Pointwise(TANH, shape), curvature=0.1))
    with pytest.raises(ClaimError, match=r"The rule of Mine \(layer 1\) is refuted: .*`curvature`"):
        certus.input_smoothness(model())


class Largest(nn.Module):
    """The larger of each pair of neighbours."""

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.maximum(inputs[..., :-1], inputs[..., 1:])


PAIRS = [[0, 1], [1, 2], [2, 3]]
WINDOWS: dict[str, tuple[list[list[int]], str]] = {
    "another entry": ([[0, 1], [1, 2], [1, 3]], "it claims the output"),
    "an entry too few": ([[0, 1], [1, -1], [2, 3]], "it claims the output"),
    "an entry too many": ([[0, 1, -1], [1, 2, -1], [1, 2, 3]], "it claims the output"),
    "a window too few": ([[0, 1], [1, 2]], r"it claims outputs of shape \(1, 2\)"),
}


def neighbours(layer: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), layer, nn.Flatten(), nn.Linear(3, 2)).double()


def test_windows() -> None:
    claim(lambda module, shape: MaxPool((torch.tensor(PAIRS),), shape), Largest)
    found, plain = (
        certus.input_smoothness(neighbours(layer), input_shape=(1, 3))
        for layer in (Largest(), nn.MaxPool1d(2, 1))
    )
    assert found.assumptions == ("the rule of Largest (layer 1)",)
    assert found.lipschitz == plain.lipschitz


@pytest.mark.parametrize(("windows", "message"), WINDOWS.values(), ids=WINDOWS.keys())
def test_wrong_windows_are_refused(windows: list[list[int]], message: str) -> None:
    claim(lambda module, shape: MaxPool((torch.tensor(windows),), shape), Largest)
    with pytest.raises(ClaimError, match=rf"The rule of Largest \(layer 1\) is refuted: {message}"):
        certus.input_smoothness(neighbours(Largest()), input_shape=(1, 3))


def test_a_layer_in_float32_is_tried_in_float64_and_left_alone() -> None:
    class Times(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.tensor(0.1))

        def forward(self, inputs: Tensor) -> Tensor:
            return self.factor * inputs

    claim(lambda module, shape: Diagonal(module.factor.detach().double(), None, shape), Times)
    network = nn.Sequential(nn.Linear(3, 4), Times(), nn.Linear(4, 2))
    assert certus.input_smoothness(network).evidence == "assumed"
    assert network[1].factor.dtype == torch.float32
    claim(
        lambda module, shape: Diagonal(torch.tensor(0.1).double(), None, shape), Times
    )  # not what is stored
    assert certus.input_smoothness(network).evidence == "assumed"  # .1 in float32, off by 10⁻⁸
    claim(lambda module, shape: Diagonal(torch.tensor(0.100001).double(), None, shape), Times)
    with pytest.raises(ClaimError, match="the layer computes"):
        certus.input_smoothness(network)


def test_criteria_of_the_users_are_refused() -> None:
    class Tenfold(certus.CrossEntropy):
        def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return 10 * super().__call__(outputs, targets)

    with pytest.raises(certus.errors.UnsupportedError, match=r"exactly .*; got Tenfold"):
        certus.input_smoothness(model(nn.Tanh()), Tenfold())


def test_attained_curvature_above_the_bound_is_an_alarm() -> None:
    network = model(nn.Tanh())
    bound = certus.input_smoothness(network)
    inputs, targets = torch.randn(50, 3).double(), torch.zeros(50, dtype=torch.long)
    curved = certus.inner.largest_curvature(certus.ModelLoss(network), inputs, targets)
    attained = float(curved.largest.max())
    bound.check_attained(attained)
    low = replace(bound, bounds={"max": attained * (1 - 1e-6)})
    words = r"the loss has curvature .* at some input, and at most .* rests on the max rule"
    with pytest.raises(certus.errors.ContradictionError, match=words):
        low.check_attained(attained)
