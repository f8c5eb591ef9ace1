"""Certified training's guard: Proj_Θ after each step, and a proof wherever the weights are kept."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from certus.certified import SAFETY, CertifiedSet
from certus.costs import SquaredL2
from certus.data import Split
from certus.errors import ArgumentError
from certus.losses import Criterion, CrossEntropy
from certus.smoothness import SmoothnessBound
from certus.surrogate import WRM
from certus.training.erm import Perturber


class Guard:
    """Keeps one model in Θ = {L̄ ≤ (1 − 10⁻³)·sγ}; where γ follows a ρ, Θ follows γ.

    Args:
        wrm: whose γ counts; None where ``theta`` has its own.
    """

    def __init__(self, theta: CertifiedSet, model: nn.Module, wrm: WRM | None) -> None:
        self._theta, self._model, self._wrm = theta, model, wrm
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
        if self._wrm is not None and self._wrm.gamma is not None:  # known from the first batch on
            self._theta.gamma = float(self._wrm.gamma)

    def settle(self) -> SmoothnessBound:
        """The same at the end; a γ that is yet to be set for a ρ must not fall below what is proven."""
        bound = self.prove()
        if self._wrm is not None and self._wrm.rho is not None:
            self._wrm.gamma_min = max(self._wrm.gamma_min, bound.gamma / (1 - SAFETY))
        return bound


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
        return Guard(certified, model, None)
    wrm = method if isinstance(method, WRM) else None
    if certified is True and wrm is None:
        raise ArgumentError("`certified` must be a number, γ, for a method that has none; got True.")
    if isinstance(criterion, CrossEntropy):
        criterion = replace(criterion, label_smoothing=0.0)
    theta = CertifiedSet(
        model,
        1.0 if certified is True else certified,
        input_shape=tuple(train.inputs.shape[1:]),
        criterion=criterion,
        cost=SquaredL2() if wrm is None else wrm.cost,
    )
    return Guard(theta, model, wrm if certified is True else None)
