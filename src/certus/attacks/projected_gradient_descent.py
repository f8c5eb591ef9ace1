"""FGSM, BIM and PGD: steps along the steepest direction, kept in a norm ball around the original point.

    x ← Π_Z Π_{‖x − x₀‖_p ≤ ε}(x + α · argmax_{‖v‖_p ≤ 1} ⟨∇ℓ(x), v⟩)            [eqn:fgsm, eqn:madry]

The ball is around the original point; the paper prints the *present* point, a misprint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from certus._defaults import ATTACK_STEPS
from certus._eval_mode import loss_eval_mode
from certus._names import NORMS
from certus._tensor import as_float64, differentiable, per_sample
from certus._validation import check_batch, check_domain, check_loss
from certus.domains import Domain, Intervals, Unbounded
from certus.errors import ArgumentError, UnsupportedError, require, require_count
from certus.inner.methods import Method
from certus.losses import AnyLoss, evaluate_loss, loss_and_slope
from certus.norms import L2

_EVERYWHERE = Unbounded()
_STEP = 2.5  # the default step is this times ε/steps: enough to cross the ball, and to turn


@dataclass(frozen=True, eq=False)
class GradientAttack(Method):
    """Gradient attack within a ball of radius ε: ``attack(loss, inputs, targets) -> moved inputs``.

    Args:
        epsilon: the radius ε, a number or a (batch,) tensor of one for each sample.
        norm: p, one of 1, 2 and inf.
        steps: T_adv; each costs one gradient.
        step_size: α in units of the inputs; 2.5·ε/steps when None.
        domain: the set Z that moved inputs stay in, such as ``Box(0, 1)`` for images; unbounded by default.
        random_start: begin at a uniform point of the ball, drawn by torch's own generator.
        restarts: number of runs; for each sample the one with the largest loss is kept.
        targeted: lower the loss at the given targets instead: move *towards* them.
        free: bool tensor that broadcasts to the shape of one input: the coordinates that may move; all when
            None.

    It can serve as a training method. The state of the model is restored.

    >>> attack = GradientAttack(epsilon=0.5, norm=2.0, steps=1, step_size=0.5)
    >>> slope = torch.tensor([3.0, 4.0])
    >>> attack(lambda z: z @ slope, torch.zeros(1, 2))
    tensor([[0.3000, 0.4000]])
    """

    epsilon: float | Tensor
    norm: float = math.inf
    steps: int = ATTACK_STEPS
    step_size: float | Tensor | None = None
    domain: Domain = _EVERYWHERE
    random_start: bool = False
    restarts: int = 1
    targeted: bool = False
    free: Tensor | None = None

    def __post_init__(self) -> None:
        check_norm(self.norm)
        _check_lengths("epsilon", self.epsilon)
        if self.step_size is not None:
            _check_lengths("step_size", self.step_size)
        require_count("steps", self.steps)
        require_count("restarts", self.restarts)
        same = self.restarts > 1 and not self.random_start
        require(not same, "restarts", "be 1 without `random_start`, or all runs are the same", self.restarts)
        require(isinstance(self.domain, Domain), "domain", "be a Domain, such as Box(0, 1)", self.domain)
        if not isinstance(self.domain, Intervals) and self.norm != 2:
            raise UnsupportedError(f"{self.domain} goes with the norm 2 only; got the norm {self.norm}.")

    def __call__(self, loss: AnyLoss, inputs: Tensor, targets: Tensor | None = None, /) -> Tensor:
        """Return the moved inputs, detached. Shapes (batch, …) → (batch, …)."""
        check_batch(inputs, targets)
        check_loss(loss, targets)
        check_domain(inputs, self.domain)
        radius = _for_batch("epsilon", self.epsilon, inputs)
        length = radius * (_STEP / self.steps)
        if self.step_size is not None:
            length = _for_batch("step_size", self.step_size, inputs)
        length = -length if self.targeted else length
        with torch.inference_mode(False), torch.no_grad(), loss_eval_mode(loss):
            origin = differentiable(inputs).detach()
            targets = None if targets is None else differentiable(targets).detach()
            best = self._climb(loss, origin, targets, radius, length)
            if self.restarts == 1:
                return best
            height = self._height(loss, best, targets)
            for _ in range(self.restarts - 1):
                other = self._climb(loss, origin, targets, radius, length)
                reached = self._height(loss, other, targets)
                # A point where the loss is NaN never wins over one where it is not.
                higher = (reached > height) | (torch.isnan(height) & ~torch.isnan(reached))
                best = torch.where(per_sample(higher, best), other, best)
                height = torch.where(higher, reached, height)
            return best

    def _climb(
        self, loss: AnyLoss, origin: Tensor, targets: Tensor | None, radius: Tensor, length: Tensor
    ) -> Tensor:
        """Run all steps once."""
        point = origin
        if self.random_start:
            point = self._keep(origin + self._freed(uniform(origin, radius, self.norm)), origin, radius)
        for _ in range(self.steps):
            # The values are not kept: their graph would live on beside that of the next step.
            slope = self._freed(loss_and_slope(loss, point.detach().requires_grad_(), targets)[1])
            point = self._keep(steepest_step(point, slope, length, self.norm), origin, radius)
        return point

    def _keep(self, point: Tensor, origin: Tensor, radius: Tensor) -> Tensor:
        """Project onto the ball, then onto Z, which cannot lead out of the ball since x₀ is in Z."""
        return self.domain.project(project(point, origin, radius, self.norm))

    def _freed(self, moves: Tensor) -> Tensor:
        return moves if self.free is None else torch.where(self.free.to(moves.device), moves, 0)

    def _height(self, loss: AnyLoss, points: Tensor, targets: Tensor | None) -> Tensor:
        values = evaluate_loss(loss, points, targets)
        return -values if self.targeted else values


def _check_lengths(name: str, value: float | Tensor) -> None:
    """Require one length, or one per sample, finite and not negative."""
    try:
        lengths = as_float64(value)
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(f"`{name}` must be a number or a tensor; got {value!r}.") from None
    valid = lengths.dim() <= 1 and bool((torch.isfinite(lengths) & (lengths >= 0)).all())
    require(valid, name, "be finite and not negative, one number or one per sample", value)


def _for_batch(name: str, value: float | Tensor, inputs: Tensor) -> Tensor:
    """Return (batch,) lengths in the inputs' dtype."""
    lengths = torch.as_tensor(value, dtype=inputs.dtype, device=inputs.device).detach()
    fits = lengths.dim() == 0 or len(lengths) == len(inputs)
    rule = f"be one number, or one for each of the {len(inputs)} inputs"
    require(fits, name, rule, f"shape {tuple(lengths.shape)}")
    require(bool(torch.isfinite(lengths).all()), name, f"be finite in the inputs' {inputs.dtype}", value)
    return lengths.expand(len(inputs))


def default_step(epsilon: float, steps: int) -> float:
    """Return the default step size of BIM and PGD, 2.5·ε/steps."""
    return _STEP * epsilon / steps


@dataclass(frozen=True, eq=False)
class FGSM(GradientAttack):
    """Fast gradient sign method (eqn:fgsm; the paper's FGM): one step of length ε from the input itself.

    Args:
        epsilon, norm: radius ε of the ball, and its p.
        domain, targeted, free: as in ``GradientAttack``.
    """

    steps: int = field(default=1, init=False)
    step_size: float | Tensor | None = field(default=None, init=False)
    random_start: bool = field(default=False, init=False)
    restarts: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "step_size", self.epsilon)
        super().__post_init__()


@dataclass(frozen=True, eq=False)
class BIM(GradientAttack):
    """Basic iterative method (the paper's IFGM): shorter steps from the input itself, kept in the ball.

    Args:
        epsilon, norm: radius ε of the ball, and its p.
        steps, step_size: number and length of the steps; 2.5·ε/steps when None.
        domain, targeted, free: as in ``GradientAttack``.
    """

    random_start: bool = field(default=False, init=False)
    restarts: int = field(default=1, init=False)


@dataclass(frozen=True, eq=False)
class PGD(GradientAttack):
    """Projected gradient descent (eqn:madry; the paper's PGM): BIM from a random point of the ball.

    Args:
        epsilon, norm, steps, step_size: as in ``BIM``.
        restarts: number of runs from random points; for each sample the one with the largest loss is kept.
        domain, targeted, free: as in ``GradientAttack``.
    """

    random_start: bool = field(default=True, init=False)


FGM, IFGM, PGM = FGSM, BIM, PGD
"""The names of the paper."""


# -------------------- Lp balls {δ : ‖δ‖_p ≤ ε}, with one radius per sample --------------------


def check_norm(norm: float) -> None:
    """Raise ``ArgumentError`` unless attacks support this p."""
    require(norm in NORMS.values(), "norm", "be 1, 2 or inf", repr(norm))


def steepest(gradient: Tensor, p: float) -> Tensor:
    """Return argmax {⟨g, v⟩ : ‖v‖_p ≤ 1}, and 0 where g is 0. Shapes (batch, …) → (batch, …).

    >>> steepest(torch.tensor([[3.0, -4.0]]), 2.0), steepest(torch.tensor([[3.0, -4.0]]), 1.0)
    (tensor([[ 0.6000, -0.8000]]), tensor([[ 0., -1.]]))
    """
    if p == math.inf:
        return gradient.sign()
    flat = gradient.flatten(1)
    if p == 2:
        flat = flat / _largest(flat)
        return (flat / _safe(L2(flat)).unsqueeze(1)).reshape(gradient.shape)
    first = flat.abs().argmax(1, keepdim=True)
    signs = flat.gather(1, first).sign()
    return torch.zeros_like(flat).scatter(1, first, signs).reshape(gradient.shape)


def steepest_step(point: Tensor, slope: Tensor, length: Tensor, p: float) -> Tensor:
    """Take a step of this length along the steepest direction; slopes that are not finite count as 0.

    >>> steepest_step(torch.zeros(1, 2), torch.tensor([[3.0, -4.0]]), torch.tensor([0.5]), 2.0)
    tensor([[ 0.3000, -0.4000]])
    """
    if p == 2:
        size = L2(slope)
        scale = length / size
        if bool(_ordinary(size) & torch.isfinite(scale.sum())):  # no need of the direction itself
            return torch.addcmul(point, slope, per_sample(scale, point))
    if not bool(torch.isfinite(slope.sum())):
        slope = slope.nan_to_num(0.0, 0.0, 0.0)
    return torch.addcmul(point, per_sample(length, point), steepest(slope, p))


def project(point: Tensor, origin: Tensor, radius: Tensor, p: float) -> Tensor:
    """Return the nearest point, in L2, of the ball around ``origin``. Shapes (batch, …) → (batch, …).

    >>> project(torch.tensor([[3.0, -4.0]]), torch.zeros(1, 2), torch.tensor([2.0]), 1.0)
    tensor([[ 0.5000, -1.5000]])
    """
    offset = point - origin
    if p == 2:
        return torch.addcmul(origin, offset, per_sample(_shrinkage(offset, radius), offset), out=offset)
    if p == math.inf:
        limit = per_sample(radius, offset)
        return offset.maximum(-limit).minimum(limit).add_(origin)  # much faster than a clamp between tensors
    return _project_l1(offset.flatten(1), radius.unsqueeze(1)).reshape(offset.shape).add_(origin)


def uniform(like: Tensor, radius: Tensor, p: float) -> Tensor:
    """Draw points uniformly from the balls, by torch's own generator. Shapes (batch, …) → (batch, …)."""
    if p == math.inf:
        return per_sample(radius, like) * (2 * torch.rand_like(like) - 1)
    flat = like.flatten(1)
    if p == 2:
        direction = torch.randn_like(flat)
        direction = direction / _safe(L2(direction).unsqueeze(1))
    else:
        sizes = torch.empty_like(flat).exponential_()
        direction = sizes / sizes.sum(1, keepdim=True) * (2 * torch.randint_like(flat, 2) - 1)
    depth = torch.rand_like(flat[:, :1]) ** (1 / flat.shape[1])
    return per_sample(radius, like) * (depth * direction).reshape(like.shape)


def _project_l1(offset: Tensor, radius: Tensor) -> Tensor:
    """Soft-threshold at the level t for which the sizes sum to the radius; sorting finds it."""
    sizes = offset.abs()
    ordered = sizes.sort(1, descending=True).values
    count = torch.arange(1, sizes.shape[1] + 1, dtype=sizes.dtype, device=sizes.device)
    levels = (ordered.cumsum(1) - radius) / count
    last = (ordered > levels).sum(1, keepdim=True).clamp_min(1) - 1  # levels rise as long as this holds
    level = levels.gather(1, last).clamp_min(0)
    shrunk = (sizes - level).clamp_min(0)
    # The level of a far point has few digits of a small radius: the rest is scaled away.
    total = shrunk.sum(1, keepdim=True)
    return offset.sign() * torch.where(total > radius, shrunk * (radius / _safe(total)), shrunk)


def _shrinkage(offset: Tensor, radius: Tensor) -> Tensor:
    """Return (batch,) the factor that projects onto the L2 ball, min(1, ε/‖δ‖₂)."""
    largest = _largest(offset.flatten(1))
    length = L2(offset.flatten(1) / largest)
    return (radius / largest.squeeze(1) / _safe(length)).clamp_max(1)


def _ordinary(lengths: Tensor) -> Tensor:
    """Whether entries whose squares underflow or overflow are negligible for vectors of these lengths, as a
    tensor: to read it waits for the device."""
    smallest = torch.finfo(lengths.dtype).tiny ** 0.4
    low, high = torch.aminmax(lengths)
    ordinary: Tensor = (low > smallest) & (high < 1 / smallest)
    return ordinary


def _largest(flat: Tensor) -> Tensor:
    """Return (batch, 1) the largest entry; dividing by it first keeps squares from under- or overflowing."""
    return _safe(flat.abs().amax(1, keepdim=True))


def _safe(lengths: Tensor) -> Tensor:
    """Return lengths that are safe to divide by: never 0."""
    return lengths.clamp_min(torch.finfo(lengths.dtype).tiny)
