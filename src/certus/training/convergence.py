"""The step size and the rate of thm:convergence, as functions of the problem's constants.

With F(θ) = E[φ_γ(θ; Z)], an ε-approximate inner maximiser and L_φ = L_θθ + L_θz L_zθ/μ, the constant step
√(Δ/(L_φ T σ²)) gives

    (1/T) Σ_t E‖∇F(θ^t)‖² ≤ 4σ√(L_φ Δ/T) + 4 L_θz² ε/μ        for T ≥ L_φ Δ/σ²       [thm:convergence]

μ is the modulus of the inner problem, sγ − L⁺ (the paper's γ − L_zz for its costs of modulus 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from certus.errors import ArgumentError, require


@dataclass(frozen=True)
class ConvergenceConstants:
    """Constants of thm:convergence; every entry is the caller's claim.

    Attributes:
        parameter_smoothness: L_θθ, the Lipschitz constant of ∇_θ ℓ in θ.
        cross_smoothness: L_θz = L_zθ, that of ∇_θ ℓ in z (and of ∇_z ℓ in θ).
        modulus: μ > 0, strong concavity of the inner problem.
        initial_gap: Δ ≥ F(θ⁰) − inf F.
        noise: σ, with E‖∇F(θ) − ∇_θ φ_γ(θ; Z)‖² ≤ σ².
    """

    parameter_smoothness: float
    cross_smoothness: float
    modulus: float
    initial_gap: float
    noise: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in ("parameter_smoothness", "cross_smoothness"):
                require(0 <= value < math.inf, name, "be finite and not negative", value)
            else:
                require(0 < value < math.inf, name, "be positive and finite", value)
        if self.smoothness == 0:
            raise ArgumentError("The surrogate must not be linear in θ; got L_φ = 0.")

    @property
    def smoothness(self) -> float:
        """L_φ, the Lipschitz constant of ∇_θ φ_γ (lemma:smoothness)."""
        return self.parameter_smoothness + self.cross_smoothness**2 / self.modulus

    def least_steps(self) -> int:
        """Return the smallest T for which the theorem holds."""
        return max(1, math.ceil(self.smoothness * self.initial_gap / self.noise**2))

    def step_size(self, steps: int) -> float:
        """Return the constant step √(Δ/(L_φ T σ²)).

        >>> ConvergenceConstants(1.0, 1.0, 1.0, 2.0, 1.0).step_size(100)
        0.1
        """
        self._check(steps)
        return math.sqrt(self.initial_gap / (self.smoothness * steps * self.noise**2))

    def bound(self, steps: int, accuracy: float = 0.0) -> float:
        """Return the bound on the mean of E‖∇F(θ^t)‖² after ``steps`` steps with inner accuracy ε."""
        self._check(steps)
        require(accuracy >= 0, "accuracy", "not be negative", accuracy)
        rate = 4 * self.noise * math.sqrt(self.smoothness * self.initial_gap / steps)
        return rate + 4 * self.cross_smoothness**2 / self.modulus * accuracy

    def _check(self, steps: int) -> None:
        least = self.least_steps()
        require(steps >= least, "steps", f"be at least L_φΔ/σ² = {least}", steps)
