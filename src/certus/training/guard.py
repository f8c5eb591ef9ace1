"""Certified training's guard: Proj_Θ after each step, and a proof wherever the weights are kept."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

from torch import nn

from certus.costs import Cost, SquaredL2
from certus.errors import ArgumentError, UnsupportedError
from certus.losses import Criterion, CrossEntropy, ModelLoss
from certus.perturbers import Penalty, Perturber
from certus.smoothness import SmoothnessBound
from certus.split import Split
from certus.surrogate import largest_curvature
from certus.training.certified import SAFETY, CertifiedSet

_SAMPLES, _PRODUCTS = 32, 8


class Guard:
    """Keeps one model in Θ = {L̄ ≤ (1 − 10⁻³)·sγ}; where γ follows a ρ, Θ follows γ.

    Args:
        penalty: whose γ counts; None where ``theta`` has its own.
        samples: at which the final bound is held against the curvature that is there.
    """

    def __init__(
        self, theta: CertifiedSet, model: nn.Module, penalty: Penalty | None, samples: Split
    ) -> None:
        self._theta, self._model, self._penalty = theta, model, penalty
        self._samples = samples[:: max(1, len(samples) // _SAMPLES)]
        self(model)

    def __call__(self, model: nn.Module) -> None:
        """Proj_Θ, in place."""
        self._follow()
        self._theta(model)

    def prove(self) -> SmoothnessBound:
        """The proven bound at the present weights."""
        self._follow()
        return self._theta.prove(self._model)

    def _follow(self) -> None:
        if self._penalty is not None and self._penalty.gamma is not None:  # known from the first batch on
            self._theta.gamma = float(self._penalty.gamma)

    def settle(self) -> SmoothnessBound:
        """The same at the end; a γ that is yet to be set for a ρ must not fall below what is proven.

        Raises ``ContradictionError`` if the loss bends more at some sample.
        """
        bound = self.prove()
        bound.check_attained(self._attained(bound.cost))
        if self._penalty is not None and self._penalty.rho is not None:
            self._penalty.gamma_min = max(self._penalty.gamma_min, bound.gamma / (1 - SAFETY))
        return bound

    def _attained(self, cost: Cost) -> float:
        """The largest curvature that a few products with the Hessian find at some samples, in float64."""
        network = copy.deepcopy(self._model).cpu().double().eval()
        loss = ModelLoss(network, self._theta.criterion)
        inputs, targets = self._samples.inputs.cpu().double(), self._samples.targets.cpu()
        try:
            found = largest_curvature(loss, inputs, targets, cost=cost, max_products=_PRODUCTS)
        except UnsupportedError:
            return -math.inf  # in this norm curvature is no eigenvalue
        return float(found.largest.nan_to_num(-math.inf).max())


def make_guard(
    certified: bool | float | CertifiedSet,
    model: nn.Module,
    method: Perturber,
    criterion: Criterion,
    train: Split,
) -> Guard | None:
    """What ``fit`` needs for its argument ``certified``; None if that is False.

    The proof is about the loss without label smoothing, which bends no more with it.
    """
    if certified is False:
        return None
    if isinstance(certified, CertifiedSet):
        return Guard(certified, model, None, train)
    penalty = method.penalty
    if certified is True and penalty is None:
        raise ArgumentError("`certified` must be a number, γ, for a method that has none; got True.")
    if isinstance(criterion, CrossEntropy):
        criterion = replace(criterion, label_smoothing=0.0)
    theta = CertifiedSet(
        model,
        1.0 if certified is True else certified,
        input_shape=tuple(train.inputs.shape[1:]),
        criterion=criterion,
        cost=SquaredL2() if penalty is None else penalty.cost,
    )
    return Guard(theta, model, penalty if certified is True else None, train)
