"""Properties of the gradient attacks: inside ball and domain, equivariance, restarts, odd inputs."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from certus import Box, CrossEntropy, ModelLoss, attacks
from certus._names import NORMS
from certus.attacks import BIM, FGSM, PGD, GradientAttack, Margin
from certus.attacks.evaluation import Trial
from certus.domains import Ball, Domain, Unbounded
from certus.errors import ArgumentError, LossError, UnsupportedError
from certus.losses import SquaredError
from certus.norms import Lp
from certus.runs.settings import Settings
from tests.attacks.models import convolutional, images, linear

EVERY_NORM = pytest.mark.parametrize("norm", NORMS.values())


def waves(points: Tensor) -> Tensor:
    """A smooth loss with many hills."""
    weights = torch.arange(1, points[0].numel() + 1).to(points)
    return torch.sin(3 * points.flatten(1) + weights).sum(1)


@EVERY_NORM
@given(
    seed=st.integers(0, 10**6),
    epsilon=st.floats(0, 3),
    steps=st.integers(1, 6),
    relative=st.floats(0, 4),
    domain=st.sampled_from([Unbounded(), Box(0, 1), Box(torch.tensor([0.0, -1.0, 0.0]), 1.0)]),
    double=st.booleans(),
)
def test_inside_the_ball_and_the_domain(
    norm: float, seed: int, epsilon: float, steps: int, relative: float, domain: Domain, double: bool
) -> None:
    torch.manual_seed(seed)
    inputs = torch.rand(4, 3, dtype=torch.float64 if double else torch.float32)
    attack = PGD(epsilon, norm, steps=steps, step_size=relative * epsilon, domain=domain, restarts=2)
    moved = attack(waves, inputs)
    assert moved.dtype == inputs.dtype
    rounding = 1e-12 if double else 1e-6
    assert (Lp(norm)(moved - inputs) <= epsilon * (1 + rounding) + rounding).all()
    assert domain.contains(moved).all()
    assert torch.isfinite(moved).all()


def test_a_ball_as_the_domain_goes_with_the_norm_2() -> None:
    torch.manual_seed(0)
    domain, inputs = Ball(0.0, 1.0), 0.5 * torch.rand(5, 3)
    moved = PGD(0.9, 2.0, domain=domain)(waves, inputs)
    assert domain.contains(moved).all()
    assert (Lp(2.0)(moved - inputs) <= 0.9 + 1e-6).all()
    for norm in (1.0, math.inf):
        with pytest.raises(UnsupportedError, match="goes with the norm 2 only; got the norm"):
            PGD(0.9, norm, domain=domain)


@EVERY_NORM
def test_no_gradient_moves_nothing(norm: float) -> None:
    inputs = torch.rand(3, 2, 2)
    for attack in (FGSM(0.5, norm), BIM(0.5, norm)):
        assert torch.equal(attack(lambda z: (z * 0).flatten(1).sum(1), inputs), inputs)


@EVERY_NORM
def test_where_the_gradient_is_not_finite_nothing_moves(norm: float) -> None:
    inputs = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    moved = BIM(0.5, norm)(lambda z: z.sqrt().sum(1) if norm else z, inputs)
    assert torch.equal(moved[0], inputs[0])  # the slope of √ at 0 is infinite
    assert (moved[1] >= 1).all()
    assert (moved[1] > 1).any()


@EVERY_NORM
@given(seed=st.integers(0, 10**6), power=st.integers(-6, 6))
def test_scale_equivariance(norm: float, seed: int, power: int) -> None:
    """Inputs, ε, step and domain in other units give the same attack in them; powers of 2 are exact."""
    unit = 2.0**power
    torch.manual_seed(seed)
    inputs = torch.rand(3, 4, dtype=torch.float64)
    plain = BIM(0.3, norm, steps=4, domain=Box(0, 1))(waves, inputs)
    scaled = BIM(0.3 * unit, norm, steps=4, domain=Box(0, unit))(lambda z: waves(z / unit), unit * inputs)
    torch.testing.assert_close(scaled, unit * plain, rtol=1e-9, atol=0)


@EVERY_NORM
def test_the_loss_may_be_multiplied(norm: float) -> None:
    """Only the direction of the gradient counts, even when its squares vanish in float32."""
    inputs = torch.rand(3, 4)
    plain = BIM(0.3, norm)(waves, inputs)
    for factor in (2.0**-80, 2.0**10):
        found = BIM(0.3, norm)(lambda z, f=factor: f * waves(z), inputs)
        torch.testing.assert_close(found, plain, rtol=1e-5, atol=1e-6)


@EVERY_NORM
def test_linear_losses_are_solved_exactly(norm: float) -> None:
    """max {⟨g, x + δ⟩ : ‖δ‖ ≤ ε} = ⟨g, x⟩ + ε‖g‖_*, attained by FGSM in one step."""
    torch.manual_seed(0)
    slope, inputs = torch.randn(6).double(), torch.rand(5, 6).double()
    epsilon = torch.tensor([0.0, 0.1, 0.5, 1.0, 3.0]).double()
    moved = FGSM(epsilon, norm)(lambda z: z @ slope, inputs)
    expected = inputs @ slope + epsilon * Lp(norm).dual(slope[None])
    torch.testing.assert_close(moved @ slope, expected)
    torch.testing.assert_close(Lp(norm)(moved - inputs), epsilon)
    iterated = BIM(epsilon, norm)(lambda z: z @ slope, inputs)
    torch.testing.assert_close(iterated @ slope, expected)


@EVERY_NORM
def test_each_sample_has_its_own_radius_and_step(norm: float) -> None:
    inputs = torch.rand(3, 4)
    radii, lengths = torch.tensor([0.1, 0.0, 2.0]), torch.tensor([0.05, 0.5, 0.3])
    together = BIM(radii, norm, step_size=lengths)(waves, inputs)
    for i in range(3):
        alone = BIM(float(radii[i]), norm, step_size=float(lengths[i]))(waves, inputs[i : i + 1])
        torch.testing.assert_close(together[i : i + 1], alone, atol=1e-6, rtol=1e-6)


@EVERY_NORM
def test_restarts_never_do_worse(norm: float) -> None:
    inputs = 3 * torch.rand(20, 3)
    heights = []
    for restarts in (1, 2, 5, 20):
        torch.manual_seed(0)  # the first starts are the same
        heights.append(waves(PGD(1.0, norm, steps=3, restarts=restarts)(waves, inputs)))
    for fewer, more in pairwise(heights):
        assert (more >= fewer).all()
    assert heights[-1].mean() > heights[0].mean() + 0.01
    torch.manual_seed(0)
    once = PGD(1.0, norm, steps=3, targeted=True)(waves, inputs)
    torch.manual_seed(0)
    often = PGD(1.0, norm, steps=3, restarts=20, targeted=True)(waves, inputs)
    assert (waves(often) <= waves(once)).all()


def test_restarts_leave_points_without_a_loss() -> None:
    """NaN never wins: neither over a number, nor as the first."""
    inputs = torch.zeros(50, 1)
    torch.manual_seed(0)
    moved = PGD(1.0, steps=1, step_size=0.0, restarts=10)(lambda z: z.sum(1).sqrt(), inputs)
    assert torch.isfinite(moved.sqrt()).all()


def test_random_starts_follow_torchs_generator() -> None:
    inputs = torch.zeros(3, 4)
    torch.manual_seed(1)
    first = PGD(1.0)(waves, inputs)
    second = PGD(1.0)(waves, inputs)
    torch.manual_seed(1)
    assert torch.equal(PGD(1.0)(waves, inputs), first)
    assert not torch.equal(first, second)
    state = torch.random.get_rng_state()
    BIM(1.0)(waves, inputs)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference"])
def test_callers_may_have_gradients_switched_off(context: type[torch.no_grad]) -> None:
    loss, (inputs, labels) = ModelLoss(convolutional()), images()
    expected = BIM(0.1)(loss, inputs, labels)
    with context():
        found = BIM(0.1)(loss, inputs.clone(), labels.clone())
    assert torch.equal(found, expected)


def test_the_margin_finds_a_way_where_cross_entropy_has_none() -> None:
    loss = linear(torch.tensor([[300.0, 0.0], [0.0, 300.0]]))
    inputs, labels = torch.tensor([[1.0, 0.0]]), torch.tensor([0])
    assert torch.equal(BIM(0.9)(loss, inputs, labels), inputs)
    moved = BIM(0.9)(ModelLoss(loss.model, Margin()), inputs, labels)
    assert loss.model(moved).argmax() == 1


def test_the_margin_is_positive_where_the_model_errs() -> None:
    torch.manual_seed(0)
    outputs, labels = torch.randn(200, 4), torch.randint(4, (200,))
    assert torch.equal(Margin()(outputs, labels) > 0, outputs.argmax(1) != labels)
    others = [[outputs[i, k] for k in range(4) if k != labels[i]] for i in range(200)]
    expected = torch.tensor([max(row) for row in others]) - outputs[range(200), labels]
    torch.testing.assert_close(Margin()(outputs, labels), expected)
    single = Margin()(torch.tensor([[2.0], [2.0], [-1.0]]), torch.tensor([0, 1, 1]))  # against 0
    assert single.tolist() == [2.0, -2.0, 1.0]
    with pytest.raises(LossError, match=r"Margin needs outputs of shape \(batch, classes\); got \(3,\)"):
        Margin()(torch.zeros(3), torch.zeros(3, dtype=torch.long))
    with pytest.raises(LossError, match="`targets` must be labels from 0 to 3; got 7 at sample 1"):
        Margin()(torch.zeros(2, 4), torch.tensor([0, 7]))
    with pytest.raises(LossError, match=r"Margin needs `targets` of shape \(2,\) and dtype torch.int64"):
        Margin()(torch.zeros(2, 4), torch.zeros(2))


@EVERY_NORM
def test_regression_on_rows(norm: float) -> None:
    """For F(x) = ⟨w, x⟩ the worst squared error in a ball is (|F − y| + ε‖w‖_*)²."""
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 1).double()
    inputs, targets = torch.randn(7, 5).double(), torch.randn(7).double()
    moved = PGD(0.3, norm, steps=40)(ModelLoss(model, SquaredError()), inputs, targets)
    found = SquaredError()(model(moved), targets)
    gap = (model(inputs).squeeze(1) - targets).abs()
    expected = (gap + 0.3 * Lp(norm).dual(model.weight.detach())) ** 2
    assert (found <= expected * (1 + 1e-9)).all()
    assert (found >= 0.95 * expected).all()


BAD = {
    "epsilon": (
        lambda: FGSM(-1.0),
        "`epsilon` must be finite and not negative, one number or one per sample",
    ),
    "nan": (lambda: FGSM(math.nan), "`epsilon` must be finite and not negative"),
    "matrix": (lambda: FGSM(torch.ones(2, 2)), "`epsilon` must be finite and not negative"),
    "text": (lambda: FGSM("x"), "`epsilon` must be a number or a tensor; got 'x'"),  # type: ignore[arg-type]
    "step": (lambda: BIM(1.0, step_size=math.inf), "`step_size` must be finite and not negative"),
    "steps": (lambda: BIM(1.0, steps=0), "`steps` must be a whole number, at least 1; got 0"),
    "restarts": (lambda: PGD(1.0, restarts=0), "`restarts` must be a whole number, at least 1; got 0"),
    "norm": (lambda: PGD(1.0, 3.0), "`norm` must be 1, 2 or inf; got 3.0"),
    "domain": (lambda: GradientAttack(1.0, domain=1), r"`domain` must be a Domain"),  # type: ignore[arg-type]
    "length": (
        lambda: FGSM(torch.ones(2))(waves, torch.zeros(3, 1)),
        r"`epsilon` must be one number, or one for each of the 3 inputs; got shape \(2,\)",
    ),
    "huge": (
        lambda: FGSM(1e300)(waves, torch.zeros(3, 1)),
        "`epsilon` must be finite in the inputs' torch.float32; got 1e[+]300",
    ),
    "outside": (
        lambda: FGSM(1.0, domain=Box(0, 1))(waves, torch.full((2, 1), 3.0)),
        "`inputs` must lie in the domain Box; .* got points outside at samples 0, 1",
    ),
    "not finite": (lambda: FGSM(1.0)(waves, torch.full((2, 1), math.nan)), "`inputs` must be finite"),
    "no targets": (
        lambda: FGSM(1.0)(ModelLoss(convolutional(), CrossEntropy()), images()[0]),
        r"`loss` must accept \(inputs\)",
    ),
}


@pytest.mark.parametrize(("work", "message"), BAD.values(), ids=BAD.keys())
def test_refused(work: object, message: str) -> None:
    with pytest.raises((ArgumentError, LossError), match=message):
        work()  # type: ignore[operator]


def test_the_names_of_the_paper_are_accepted() -> None:
    assert (attacks.FGM, attacks.IFGM, attacks.PGM) == (FGSM, BIM, PGD)
    assert Trial("pgm", 2.0, 1.0) == Trial("pgd", 2.0, 1.0)
    words = {"data": "digits", "model": "mlp:4", "epsilon": 0.1}
    for ours, theirs in (("fgsm", "fgm"), ("bim", "ifgm"), ("pgd", "pgm")):
        assert Settings.chosen(method=theirs, **words) == Settings.chosen(method=ours, **words)
