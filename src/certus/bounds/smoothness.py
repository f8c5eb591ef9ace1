"""Bounds on ∇_x ℓ and its derivative: for all inputs, or on a ball around each sample."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from certus.costs import Cost
from certus.errors import contradiction
from certus.kernel.evidence import Evidence
from certus.kernel.problem import Problem
from certus.kernel.rounding import MANY, THOUSANDS
from certus.storage.files import plain_json

VALIDITY = (
    "Proven for the real-valued network with the stored weights, in exact arithmetic; computed in float64 "
    "with rounding counted in. The network as deployed in float32 differs from it by its own rounding."
)

UNSPECIFIED = ("the bounds themselves, which certus did not derive",)
"""Assumption of a bound that was not computed by certus."""


def format_assumptions(assumptions: tuple[str, ...]) -> str:
    """Return assumptions as a sentence."""
    return f"Assumed: {'; '.join(assumptions)}."


def validity_statement(assumptions: tuple[str, ...]) -> str:
    """Return the validity of a bound in one or two sentences."""
    return f"{format_assumptions(assumptions)} If that holds: {VALIDITY}" if assumptions else VALIDITY


@dataclass(frozen=True)
class LayerBound:
    """A row of the layer table.

    Attributes:
        path, kind: location in the model, and type.
        norm: operator norm of an affine layer, or largest ``|σ'|`` of an activation.
        second_derivative: largest ``|σ''|`` of an activation; 0 for an affine layer.
        lipschitz: Lipschitz constant of the network up to and including this layer, in the cost's norm.
        curvature: contribution of the layer to the bound by the sum rule.
    """

    path: str
    kind: str
    norm: float
    second_derivative: float
    lipschitz: float
    curvature: float


class Derived:
    """Base of bounds that certus derives: proven, or assumed if they rest on ``assumptions``, by name.

    Bounds that are constructed elsewhere, or altered by ``dataclasses.replace``, are assumed.
    """

    _basis: ClassVar[tuple[Evidence, tuple[str, ...]]] = (Evidence.ASSUMED, UNSPECIFIED)

    @property
    def evidence(self) -> Evidence:
        return self._basis[0]

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Names of everything that the bounds rest on without proof."""
        return self._basis[1]


_Bound = TypeVar("_Bound", bound=Derived)


def derived(bound: _Bound, problem: Problem) -> _Bound:
    """Give bounds the evidence of the problem of the kernel that they were computed for."""
    object.__setattr__(bound, "_basis", (problem.evidence, problem.assumptions))
    return bound


@dataclass(frozen=True, eq=False)
class SmoothnessBound(Derived):
    """Upper bounds for every input and label, in the norm of a cost.

    Attributes:
        bounds: L⁺ ≥ sup λ_max(∇²_x ℓ) by each rule: "paper" (as printed), "corrected", "sum" and "max".
        lipschitz: Lipschitz constant of the loss.
        output_lipschitz: Lipschitz constant of the vector of all outputs, in L2.
        margin_lipschitz: (classes, classes) [k, y] Lipschitz constant of F_k − F_y; None for regression.
        margin_curvature: (classes, classes) [k, y]: sup λ⁺_max(∇²(F_k − F_y)); None for regression.
        layers: the layer table; the last row is the loss itself.
        obstacle: path of the layer, or a reason, that prevents a finite L⁺; None if L⁺ is finite.
        cost: the cost whose norm all bounds refer to.
    """

    bounds: dict[str, float]
    lipschitz: float
    output_lipschitz: float
    margin_lipschitz: Tensor | None
    margin_curvature: Tensor | None
    layers: list[LayerBound]
    obstacle: str | None
    cost: Cost

    @property
    def curvature(self) -> float:
        """The bound L⁺: the smallest of ``bounds``."""
        return min(self.bounds.values())

    @property
    def rule(self) -> str:
        """The name of the rule that gives the smallest bound."""
        return min(self.bounds, key=lambda name: self.bounds[name])

    @property
    def gamma(self) -> float:
        """γ above which sγ > L⁺, so that the inner problem is strongly concave everywhere; may be ∞."""
        return self.gammas[self.rule]

    @property
    def gammas(self) -> dict[str, float]:
        """``gamma`` by each rule. (The paper's tables print L⁺ itself, for a cost of modulus 1.)"""
        modulus = self.cost.strong_convexity
        return {
            name: 0.0 if bound == 0 else (bound / modulus if modulus > 0 else math.inf)
            for name, bound in self.bounds.items()
        }

    def check_attained(self, curvature: float) -> None:
        """Raise ``ContradictionError`` if a curvature that was attained somewhere exceeds the bound.

        Args:
            curvature: computed in float64, such as ``largest_curvature(…).largest``; its rounding, relative
                to itself and to the terms that may cancel, is subtracted.
        """
        sizes = [bound for bound in self.bounds.values() if math.isfinite(bound)]
        lowered = curvature - MANY * abs(curvature) - THOUSANDS * max(sizes, default=0.0)
        if lowered > self.curvature:
            raise contradiction(
                f"the loss has curvature {lowered!r} at some input, and at most {self.curvature!r} at all",
                (f"the {self.rule} rule",),
                self,
            )

    @property
    def dominant_layer(self) -> LayerBound:
        """The layer with the largest contribution to the curvature."""
        return max(self.layers, key=lambda layer: layer.curvature)

    def as_json(self) -> dict[str, Any]:
        """Return all but the margin matrices; infinities become None."""
        content: dict[str, Any] = plain_json(
            {
                "evidence": self.evidence,
                "assumptions": self.assumptions,
                "validity": validity_statement(self.assumptions),
                "curvature": self.curvature,
                "rule": self.rule,
                "bounds": self.bounds,
                "gammas": self.gammas,
                "lipschitz": self.lipschitz,
                "output_lipschitz": self.output_lipschitz,
                "obstacle": self.obstacle,
                "layers": self.layers,
            }
        )
        return content


@dataclass(frozen=True, eq=False)
class LocalBound(Derived):
    """Upper bounds on a ball around each sample, in the cost's norm.

    Attributes:
        curvature: (batch,) L⁺ there; bounds: by rule, "corrected", "sum" and "max".
        lipschitz: (batch,) Lipschitz constant of the loss.
        margin_lipschitz: (batch, classes) that of F_k − F_y; 0 for k = y; None for regression.
        margin_curvature: (batch, classes) sup λ⁺_max(∇²(F_k − F_y)); None for regression.
        margins: (batch, classes) F_k − F_y at the sample itself, rounded up; None for regression.
        error: (batch,) largest probability q of all other classes; None for regression.
        radius: (batch,).
    """

    bounds: dict[str, Tensor]
    curvature: Tensor
    lipschitz: Tensor
    margin_lipschitz: Tensor | None
    margin_curvature: Tensor | None
    margins: Tensor | None
    error: Tensor | None
    radius: Tensor
