"""thm:convergence for linear softmax classifiers: constants, step size and bound, beside a training.

ℓ(W, v; x, y) = lse(Wx + v) − (Wx + v)_y has, for all W with ‖W‖₂ ≤ b and all inputs that WRM reaches,
‖(x, 1)‖ ≤ R (without the 1 if there is no bias v), with c = ‖z − z₀‖₂² and a penalty γ,

    L_θθ = R²/2,   L_θz = bR/2 + √2,   ‖∇_θ ℓ‖ ≤ √2·R,   L⁺ = b²/2,   μ = 2γ − b²/2

since the softmax Hessian is at most ½, and ∇_θ ℓ = (p − e_y)(x, 1)ᵀ with ‖p − e_y‖₂ ≤ √2. T_γ moves an
input by at most ‖∇ℓ‖/2γ ≤ √2·b/2γ, in a convex domain too. σ² = 2R² bounds the variance of a sample's
gradient. ℓ ≥ 0, and φ_γ ≤ ℓ(z₀) + b²/2γ, so that Δ = E ℓ(θ⁰; Z) + b²/2γ.

b is the largest norm of the weights in this training, at the start and after each step. That other runs stay
within it too is *assumed*, and so is what the theorem says of the optimizer: plain steps of a constant size
along the gradients of single samples, drawn independently. Networks with hidden layers are refused: no
constants are proven for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from certus.costs import SquaredL2
from certus.data import Samples
from certus.errors import UnsupportedError, require_count
from certus.inner import WRM
from certus.inner.methods import Method
from certus.kernel.evidence import Evidence
from certus.losses import Criterion, CrossEntropy
from certus.training.optimizers import ConvergenceConstants


@dataclass(frozen=True)
class TheoryReport:
    """What thm:convergence says of a linear softmax classifier: *assumed*, see ``premises``.

    Attributes:
        constants: those of the theorem.
        norm_bound: b, the largest ‖W‖₂ in the training.
        largest_input: the largest ‖x‖ of the training data.
        steps: T, the steps of the training.
    """

    constants: ConvergenceConstants
    norm_bound: float
    largest_input: float
    steps: int
    evidence: Evidence = Evidence.ASSUMED

    @property
    def premises(self) -> tuple[str, ...]:
        """What the bound rests on."""
        return (
            f"every run keeps ‖W‖₂ ≤ {self.norm_bound:.4g}, as this one did",
            "samples are drawn independently, one for each step",
            "each step is along the gradient, with the constant step size",
        )

    @property
    def least_steps(self) -> int:
        """The smallest T for which the theorem holds."""
        return self.constants.least_steps()

    @property
    def step_size(self) -> float | None:
        """The theorem's constant step for T steps; None if T is too small for it."""
        return self.constants.step_size(self.steps) if self.steps >= self.least_steps else None

    def bound(self, accuracy: float = 0.0) -> float | None:
        """Return the bound on the mean of E‖∇F(θ^t)‖² for inner problems solved to ``accuracy``; None if T is
        too small for the theorem."""
        return self.constants.bound(self.steps, accuracy) if self.steps >= self.least_steps else None


def softmax_constants(
    largest_input: float, norm_bound: float, gamma: float, initial_loss: float, *, bias: bool
) -> ConvergenceConstants:
    """Return the constants of the module's docstring.

    Args:
        largest_input: the largest ‖x‖ of the data.
        norm_bound: b.
        initial_loss: E ℓ(θ⁰; Z).
    """
    modulus = 2 * gamma - norm_bound**2 / 2
    if modulus <= 0:
        raise UnsupportedError(
            "The theorem needs an inner problem that is strongly concave, 2γ > ‖W‖₂²/2; got "
            f"γ = {gamma:g} and ‖W‖₂ = {norm_bound:.4g}. A larger γ or weight decay would do."
        )
    reach = math.hypot(largest_input + math.sqrt(2) * norm_bound / (2 * gamma), float(bias))
    return ConvergenceConstants(
        parameter_smoothness=reach**2 / 2,
        cross_smoothness=norm_bound * reach / 2 + math.sqrt(2),
        modulus=modulus,
        initial_gap=initial_loss + norm_bound**2 / (2 * gamma),
        noise=math.sqrt(2) * reach,
    )


class SoftmaxTheory:
    """Record of a training of a linear softmax classifier, from which its ``TheoryReport`` follows.

    Args:
        model: a linear layer, alone or after ``Flatten``, at its initial weights.
        data: all training samples.
    """

    def __init__(self, model: nn.Module, criterion: Criterion, method: Method, data: Samples) -> None:
        self._layer, self._gamma = _linear_layer(model), _penalty(method)
        if criterion != CrossEntropy():
            raise UnsupportedError(f"`theory` needs plain cross-entropy; got {criterion}.")
        self._largest_input = float(data.inputs.flatten(1).double().norm(dim=1).max())
        with torch.no_grad():
            losses = [criterion(model(part.inputs), part.targets).double() for part in data.batches(1024)]
        self._initial_loss = float(torch.cat(losses).mean())
        self._norm, self._steps = self._present_norm(), 0

    def record_step(self) -> None:
        """Record the weights after a step."""
        self._norm, self._steps = max(self._norm, self._present_norm()), self._steps + 1

    def report(self) -> TheoryReport:
        """Return the report; ``UnsupportedError`` where the inner problem is not strongly concave."""
        require_count("steps", self._steps)
        constants = softmax_constants(
            self._largest_input,
            self._norm,
            self._gamma,
            self._initial_loss,
            bias=self._layer.bias is not None,
        )
        return TheoryReport(constants, self._norm, self._largest_input, self._steps)

    def _present_norm(self) -> float:
        return float(torch.linalg.matrix_norm(self._layer.weight.detach().double(), 2))


def _linear_layer(model: nn.Module) -> nn.Linear:
    layers = [part for part in model.modules() if not list(part.children())]
    layers = [part for part in layers if not isinstance(part, nn.Flatten | nn.Identity)]
    known = isinstance(model, nn.Linear) or type(model) is nn.Sequential
    if not known or len(layers) != 1 or not isinstance(layers[0], nn.Linear):
        raise UnsupportedError(
            "`theory` needs a linear layer, alone or after Flatten: the constants of thm:convergence are "
            "known for linear softmax only. Give constants of your own to ConvergenceConstants."
        )
    return layers[0]


def _penalty(method: Method) -> float:
    fits = isinstance(method, WRM) and type(method.cost) is SquaredL2
    if not (isinstance(method, WRM) and fits and method.rho is None and method.label_cost is None):
        raise UnsupportedError(
            f"`theory` needs WRM at a fixed γ, with the squared L2 cost and fixed labels; got {method}."
        )
    assert isinstance(method.gamma, float | int)
    return float(method.gamma)
