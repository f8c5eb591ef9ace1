"""Proj_Θ of Algorithm 1 onto weights whose smoothness is proven (alg:thealg, section:three-choose-two).

    Θ = {θ : L̄(θ) ≤ (1 − 10⁻³)·sγ},        s the strong convexity of the cost (2 for ‖·‖₂²)

so that at every step the inner problem is strongly concave with modulus at least 10⁻³·sγ, as thm:convergence
asks. For units with σ'' ≤ b(1 − σ'²) the max rule of ``certus.smoothness`` leaves, with τ = (1 − 10⁻³)·sγ,

    ‖W_l‖ ≤ 1,      h·D²/4 ≤ τ,      b_n ≤ τ/(g·e_n)

D the largest distance between two rows of the last layer, e_n the largest slope of a margin in unit n, g and
h the constants of the loss (1 and 1 for cross-entropy). So after each step: singular values are clipped at 1,
the last layer shrinks until D fits, and every unit gets the sharpness that is left to it. In other networks
the last layer is scaled by the proven bound itself, which costs an analysis per step.
"""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor, nn

from certus.batches import widened
from certus.costs import Cost, SquaredL2
from certus.errors import UnsupportedError, require, require_number
from certus.losses import Criterion, CrossEntropy
from certus.smoothness import SmoothnessBound, input_smoothness
from certus.smoothness.criteria import read_criterion
from certus.smoothness.geometry import geometry_of
from certus.smoothness.operators import Diagonal
from certus.smoothness.stage import Shape
from certus.smoothness.tracing import Traced, graphs_kept_in
from certus.training.certified.structure import Layer, read_structure

SAFETY = 1e-3
"""How far below sγ the proven bound stays, as a share."""

_CROSS_ENTROPY, _L2 = CrossEntropy(), SquaredL2()
_ROUNDING = 2e-4  # a share that is kept free for float32 between proofs: a hundred times its rounding
_SHARPEST = 40.0  # beyond it units are absolute values for all practical purposes, and gradients jump


class CertifiedSet:
    """Θ for one model, as a projection: ``certified(model)`` moves its weights into Θ, in place.

    Args:
        gamma: γ, the penalty at which the inner problem is to be strongly concave; it may be changed later.
        input_shape: the shape of one input.
        criterion, cost: the loss and the transport cost that the proof is about.
        sharpest: upper limit on the sharpness of units.

    >>> from certus.models import certified_mlp
    >>> model = certified_mlp(4, [32], 3)
    >>> certified = CertifiedSet(model, 1.5, input_shape=(4,))
    >>> certified(model)
    >>> certified.prove(model).curvature <= 3 * (1 - SAFETY)
    True
    """

    def __init__(
        self,
        model: nn.Module,
        gamma: float,
        *,
        input_shape: Shape,
        criterion: Criterion = _CROSS_ENTROPY,
        cost: Cost = _L2,
        sharpest: float = _SHARPEST,
    ) -> None:
        require(0 < sharpest < math.inf, "sharpest", "be positive and finite", sharpest)
        if not cost.strong_convexity > 0:
            raise UnsupportedError(
                f"`cost` must be strongly convex to certify a training, so that sγ can exceed L̄; got {cost}."
            )
        softmax = read_criterion(criterion)
        if softmax is None:
            raise UnsupportedError(
                "A squared error cannot be certified over all inputs: its residuals F − y have no bound."
            )
        self._softmax, self._criterion, self._cost = softmax, criterion, cost
        self._model, self._shape, self._sharpest = model, tuple(input_shape), sharpest
        whitening = geometry_of(cost, self._shape).whitening
        metric = whitening.weights[0].flatten() if isinstance(whitening, Diagonal) else None
        self._graphs: dict[tuple[nn.Module, Shape], Traced] = {}
        with graphs_kept_in(self._graphs):
            self._structure = read_structure(model, self._shape, metric)
        plain = whitening is None or metric is not None
        self._layers = self._structure.layers if plain else None
        self.gamma = gamma

    @property
    def gamma(self) -> float:
        """γ; the set follows it."""
        return self._gamma

    @gamma.setter
    def gamma(self, value: float) -> None:
        self._gamma = require_number("gamma", value)

    @property
    def criterion(self) -> Criterion:
        """The loss that the proof is about."""
        return self._criterion

    @property
    def ceiling(self) -> float:
        """(1 − 10⁻³)·sγ."""
        return (1 - SAFETY) * self._cost.strong_convexity * self._gamma

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> None:
        require(model is self._model, "model", "be the one that the set was made for", "another")
        for part in self._structure.clipped:
            part.clip()
        if self._layers is None:
            with graphs_kept_in(self._graphs):  # training changes weights, not what a forward does
                self._scale_by_proof(model)
        else:
            self._scale(self._layers)

    def prove(self, model: nn.Module) -> SmoothnessBound:
        """The proven bound at the present weights, in float64.

        Should it be above the ceiling, the last layer shrinks, with a warning.
        """
        require(model is self._model, "model", "be the one that the set was made for", "another")
        bound = self._bound(model)
        if bound.curvature > self.ceiling:
            warnings.warn(
                f"The proven curvature {bound.curvature:.6g} exceeded {self.ceiling:.6g}; the last layer was "
                "scaled down.",
                stacklevel=2,
            )
            self._scale_by_proof(model)
            bound = self._bound(model)
            rule = f"have a proven curvature of at most {self.ceiling:.6g} once its last layer shrinks"
            require(bound.curvature <= self.ceiling, "model", rule, bound.curvature)
        return bound

    def _bound(self, model: nn.Module) -> SmoothnessBound:
        return input_smoothness(model, self._criterion, input_shape=self._shape, cost=self._cost)

    @torch.no_grad()
    def _scale_by_proof(self, model: nn.Module) -> None:
        """Every term of L̄ is of first or second order in the last layer, so s·L̄ bounds what s ≤ 1 leaves."""
        target = self.ceiling * (1 - _ROUNDING)
        for _ in range(8):  # the second order makes s = τ/L̄ too small: from √s on, a few steps come near
            bound = self._bound(model).curvature
            require(math.isfinite(bound), "model", "have a finite proven curvature", bound)
            if bound <= self.ceiling:
                return
            self._structure.head.weight.mul_(math.sqrt(target / bound))
        self._structure.head.weight.mul_(min(1.0, target / self._bound(model).curvature))

    def _scale(self, layers: list[Layer]) -> None:
        """The max rule, solved for the last layer's size and for the sharpness of every unit."""
        head, softmax, parts = self._structure.head, self._softmax, self._structure.behind
        limit = self.ceiling * (1 - _ROUNDING)
        below = math.prod(layer.norm for layer in layers)  # of all that stands before the units
        weight = widened(head.weight).clone()  # a float64 one would shrink along
        rows = torch.cat([torch.zeros_like(weight[:1]), weight]) if softmax.logistic else weight
        apart = float(torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").max())
        most = 2 * math.sqrt(limit / softmax.spread) / (below * math.prod(part.norm for part in parts))
        shrink = min(1.0, most / apart) if apart > 0 else 1.0
        head.weight.mul_(shrink)
        slope = (rows.amax(0) - rows.amin(0)).unsqueeze(0) * (softmax.slope * shrink)
        length = softmax.slope * apart * shrink  # of the gradient of a margin
        for layer in reversed(layers):
            for part in reversed(parts):
                slope = part.slopes(slope, length)
                length *= part.norm
            allowed = limit / below**2 / slope[0].clamp_min(1e-30)
            _sharpen(layer.units.sharpness, allowed.clamp_max(self._sharpest))
            below, parts = below / layer.norm, layer.affine


def _sharpen(sharpness: Tensor, allowed: Tensor) -> None:
    """Write what is allowed for each unit into a sharpness that units may share."""
    shape = (1,) * (allowed.dim() - sharpness.dim()) + tuple(sharpness.shape)
    shared = [axis for axis, size in enumerate(shape) if size == 1]
    least = allowed.amin(shared, keepdim=True) if shared else allowed
    sharpness.copy_(least.reshape(sharpness.shape))
