"""WRM: the method of Algorithm 1, the robust surrogate φ_γ, and the penalty that follows ρ.

φ_γ(θ; z₀) = sup_{z ∈ Z} ℓ(θ; z) − γ c(z, z₀)                                      [eqn:inner-sup]
T_γ(θ; z₀) = argmax_{z ∈ Z} ℓ(θ; z) − γ c(z, z₀)                               [eqn:transport-map]

The dual γ ↦ γρ + E[φ_γ] (eqn:constrained) is convex with the derivative ρ − E[c(T_γ, Z)]: where the data
are moved by more than ρ the penalty must rise, where by less it must fall. The step is taken on log γ and
relative to ρ, so that it has the same effect on every scale,

    log γ ← log γ + rate · min(E[c(T_γ, Z)]/ρ − 1, 1)

Where ρ asks for a γ close to the threshold sγ = L⁺, E[c(T_γ, Z)] explodes as γ falls, and γ swings around.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor, distributed

from certus._eval_mode import loss_eval_mode
from certus._tensor import differentiable
from certus._validation import (
    check_batch,
    check_geometry,
    check_label_cost,
    check_loss,
    check_penalty,
    penalties,
)
from certus.costs import Cost, LabelCost, SquaredL2
from certus.domains import Domain, Unbounded
from certus.errors import ArgumentError, UnsupportedError, require
from certus.inner.half import PRECISIONS, frozen, in_precision
from certus.inner.maximizers import Callback, Maximizer, default_maximizer
from certus.inner.methods import Method, Perturbation
from certus.inner.objective import InnerSolution, Objective
from certus.losses import AnyLoss, evaluate_loss

_RATE = 0.1  # of the steps on log γ
_L2, _EVERYWHERE = SquaredL2(), Unbounded()


class WRM(Method):
    """Wasserstein risk minimisation: moves each input to (nearly) T_γ, ``wrm(loss, inputs, targets)``.

    Args:
        gamma: the penalty γ > 0: a number, or a (batch,) tensor of one penalty per sample.
        rho: instead of γ, the mean transport cost E[c(T_γ, Z)] to aim for. γ then follows it, one small step
            for each batch solved in ``train()`` mode, and stays fixed in ``eval()`` mode.
        cost, domain: c and Z. Labels never move unless ``label_cost`` is given.
        maximizer: algorithm and tolerance of the inner problem; ``default_maximizer`` when None.
        gamma_min: with ``rho``, the smallest γ, 1e-4 by default; ``at_floor`` is True where it is reached.
        precision: "bfloat16" for the passes of the ascent in bfloat16 (``certus.inner.half``); "float32" for
            passes in the precision of the model; "auto" for bfloat16 in ``perturb`` and in calls, where the
            device has it and the layers are wide, and never in ``solve``. ``used_precision`` says what the
            last ascent used.

    In a training loop of your own, with the same loss inside and outside (lemma:smoothness)::

        wrm = certus.WRM(gamma=2.0)
        for inputs, targets in loader:
            moved = wrm(loss, inputs, targets)
            loss(moved, targets).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """

    def __init__(
        self,
        gamma: float | Tensor | None = None,
        *,
        rho: float | None = None,
        cost: Cost = _L2,
        domain: Domain = _EVERYWHERE,
        maximizer: Maximizer | None = None,
        label_cost: LabelCost | None = None,
        gamma_min: float | None = None,
        precision: str = "auto",
    ) -> None:
        require(precision in PRECISIONS, "precision", f"be one of {', '.join(PRECISIONS)}", repr(precision))
        if (gamma is None) == (rho is None):
            raise ArgumentError(f"Give either `gamma` or `rho`; got gamma={gamma} and rho={rho}.")
        rule = "be left out with a fixed γ"
        require(gamma_min is None or rho is not None, "gamma_min", rule, gamma_min)
        if gamma is not None:
            check_penalty(gamma)
        for name, value in (("rho", rho), ("gamma_min", gamma_min)):
            valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
            require(value is None or valid, name, "be positive and finite", value)
        maximizer = default_maximizer(cost, domain) if maximizer is None else maximizer
        require(
            isinstance(maximizer, Maximizer),
            "maximizer",
            "be a Maximizer, such as BarzilaiBorwein()",
            maximizer,
        )
        valid = label_cost is None or isinstance(label_cost, LabelCost)
        require(valid, "label_cost", "be a LabelCost or None", label_cost)
        self._gamma = gamma.detach() if isinstance(gamma, Tensor) else gamma
        self._rho, self._gamma_min = rho, gamma_min or (0.0 if rho is None else 1e-4)
        self.cost, self.domain, self.maximizer = cost, domain, maximizer
        self.label_cost = label_cost
        self.precision, self.used_precision = precision, "float32"
        self.training = True

    @property
    def gamma(self) -> float | Tensor | None:
        """Current penalty; None before a WRM that follows ρ has solved its first batch."""
        return self._gamma

    @property
    def rho(self) -> float | None:
        """Transport cost that γ follows, if any."""
        return self._rho

    @property
    def gamma_min(self) -> float:
        """Smallest γ of a WRM that follows ρ; 0 where γ is given."""
        return self._gamma_min

    @gamma_min.setter
    def gamma_min(self, value: float) -> None:
        require(self.rho is not None, "gamma_min", "not be set with a fixed γ", value)
        require(0 < value < torch.inf, "gamma_min", "be positive and finite", value)
        self._gamma_min = value
        if self._gamma is not None:
            self._gamma = max(float(self._gamma), value)

    @property
    def at_floor(self) -> bool:
        """Whether γ is at ``gamma_min``, so that ``rho`` cannot be reached."""
        return self.rho is not None and self._gamma is not None and float(self._gamma) <= self.gamma_min

    def train(self, mode: bool = True) -> WRM:
        """Switch to the mode in which γ follows ρ, the initial one."""
        self.training = mode
        return self

    def eval(self) -> WRM:
        """Switch to the mode in which γ stays fixed."""
        return self.train(False)

    def state_dict(self) -> dict[str, float | None]:
        """Return the state for a checkpoint: γ, if it follows ρ."""
        if self.rho is None:
            return {}
        return {"gamma": None if self._gamma is None else float(self._gamma)}

    def load_state_dict(self, state: dict[str, float | None]) -> None:
        """Restore the result of ``state_dict``."""
        if state.keys() != self.state_dict().keys():
            expected = sorted(self.state_dict())
            raise ArgumentError(f"`state` must have the keys {expected}; got {sorted(state)}.")
        if self.rho is not None:
            if state["gamma"] is not None:
                check_penalty(state["gamma"])
            self._gamma = state["gamma"]

    def __repr__(self) -> str:
        level = f"gamma={self.gamma}" if self.rho is None else f"rho={self.rho}, gamma now {self.gamma}"
        return f"WRM({level}, cost={self.cost}, domain={self.domain}, maximizer={self.maximizer})"

    @property
    def penalty(self) -> WRM:
        return self

    def careful(self) -> WRM:
        """Return WRM at the present γ, with an ascent that is precise enough to measure ρ̂.

        An ascent that is good enough for training stops short of T_γ, so that its cost is too low.
        """
        assert self.gamma is not None
        precise, label_cost = self.maximizer.careful(), self.label_cost
        return WRM(self.gamma, cost=self.cost, domain=self.domain, maximizer=precise, label_cost=label_cost)

    def perturb(
        self, loss: AnyLoss, inputs: Tensor, targets: Tensor | None = None, weights: Tensor | None = None
    ) -> Perturbation:
        """Return the ``onward`` points of ``solve``, its targets, and φ, c, gradients and convergence."""
        solution = self._solve(loss, inputs, targets, weights=weights, precision=self.precision)
        measured = {
            "phi": solution.value,
            "rho_running": solution.transport_cost,
            "gradients": solution.gradients,
            "converged": solution.converged,
        }
        return Perturbation(solution.onward, solution.targets, measured)

    def __call__(self, loss: AnyLoss, inputs: Tensor, targets: Tensor | None = None, /) -> Tensor:
        """Return T̂_γ(inputs), detached: the ``onward`` points of ``solve``, of the same shape."""
        if self.label_cost is not None:
            raise UnsupportedError(
                "With a `label_cost` labels move too: call `solve`, which also returns the moved targets."
            )
        return self._solve(loss, inputs, targets, precision=self.precision).onward

    def solve(
        self,
        loss: AnyLoss,
        inputs: Tensor,
        targets: Tensor | None = None,
        *,
        curvature_bound: float | None = None,
        callback: Callback | None = None,
        weights: Tensor | None = None,
    ) -> InnerSolution:
        """Solve the inner problem for each sample. The state of the model is restored.

        Args:
            loss: ``(inputs, targets) -> (batch,)``, or ``(inputs) -> (batch,)`` without targets. It is
                called with *some* samples of the batch at a time, and its models run in eval mode.
            inputs: (batch, …) points of Z.
            targets: their targets, or None.
            curvature_bound: an upper bound L⁺ on the curvature of the loss in the cost's norm, if you have
                one. Then ``gap`` is a bound that rests on yours, wherever sγ > L⁺.
            callback: called as ``callback(step, point, value)`` while the ascent on the given labels runs.
            weights: (batch,) weights of the samples in the mean cost that γ follows; equal when None.
        """
        precision = "float32" if self.precision == "auto" else self.precision
        return self._solve(
            loss,
            inputs,
            targets,
            curvature_bound=curvature_bound,
            callback=callback,
            weights=weights,
            precision=precision,
        )

    def _solve(
        self,
        loss: AnyLoss,
        inputs: Tensor,
        targets: Tensor | None,
        *,
        curvature_bound: float | None = None,
        callback: Callback | None = None,
        weights: Tensor | None = None,
        precision: str,
    ) -> InnerSolution:
        check_batch(inputs, targets)
        check_loss(loss, targets)
        check_geometry(inputs, self.cost, self.domain)
        if self.label_cost is not None:
            check_label_cost(targets, self.label_cost)
        if curvature_bound is not None:
            number = isinstance(curvature_bound, int | float) and not isinstance(curvature_bound, bool)
            valid = number and abs(curvature_bound) < torch.inf  # NaN compares false
            require(valid, "curvature_bound", "be a finite number", curvature_bound)
        given, loss = loss, in_precision(loss, inputs, precision)
        dtype = getattr(loss, "autocast", None)
        self.used_precision = str(inputs.dtype if dtype is None else dtype).removeprefix("torch.")
        # Frozen parameters spare the ascent their casts, and the graph that remembers them.
        alone = nullcontext() if given is loss else frozen(loss)
        with torch.inference_mode(False), torch.no_grad(), loss_eval_mode(loss), alone:
            origin = differentiable(inputs).detach()
            labels = None if targets is None else targets.detach().clone()
            unit = torch.ones(len(origin), dtype=origin.dtype, device=origin.device)
            objective = Objective(loss, origin, labels, unit, self.cost, self.domain, curvature_bound)
            if self._gamma is None:
                if not self.training:
                    raise ArgumentError(
                        "`gamma` is undefined: solve a batch in train() mode, or load a state."
                    )
                self._start(objective, weights)
            assert self._gamma is not None
            objective = replace(objective, gamma=penalties(self._gamma, origin))
            solution = self.maximizer.maximize(objective, callback)
            if self.label_cost is not None:
                solution = self._over_labels(objective, solution, self.label_cost)
        if self.rho is not None and self.training:
            finite = torch.isfinite(solution.value) & torch.isfinite(solution.transport_cost)
            mean = _mean(solution.transport_cost, finite, weights)
            if mean is not None:
                excess = min(mean / self.rho - 1, 1.0)
                self._gamma = max(float(self._gamma) * math.exp(_RATE * excess), self.gamma_min)
        return solution

    def _start(self, objective: Objective, weights: Tensor | None) -> None:
        """Set γ to its value for a linear loss, for one gradient per sample: with the move δ at γ = 1, such a
        loss moves a point by δ/γ, at a cost of c(δ)/γ²."""
        linear = replace(objective, domain=Unbounded()).evaluate(objective.origin)
        cost = objective.cost.value(linear.target, objective.origin)
        mean = _mean(cost, linear.finite & torch.isfinite(cost), weights)
        assert self.rho is not None
        guess = math.sqrt(mean / self.rho) if mean is not None and mean > 0 else 1.0
        self._gamma = max(guess, self.gamma_min)

    def _over_labels(
        self, objective: Objective, solution: InnerSolution, label_cost: LabelCost
    ) -> InnerSolution:
        """Return the maximum over labels of φ_γ(x₀, y) − γ·price·1{y ≠ y₀}."""
        assert objective.targets is not None  # check_label_cost refuses the rest
        for shift in range(1, label_cost.classes):
            labels = (objective.targets + shift) % label_cost.classes
            other = self.maximizer.maximize(replace(objective, targets=labels))
            value = other.value - objective.gamma * label_cost.price
            moved = replace(other, value=value, transport_cost=other.transport_cost + label_cost.price)
            solution = solution.better(moved)
        return solution


def _mean(values: Tensor, valid: Tensor, weights: Tensor | None) -> float | None:
    """Return the mean of the valid values over all processes; None if there is none."""
    valid_here = valid.cpu()
    share = valid_here.double() if weights is None else valid_here * weights.cpu().double()
    sums = (torch.where(valid_here, values.cpu().double(), 0.0) * share).sum()
    total = torch.stack([sums, share.sum()])
    if distributed.is_available() and distributed.is_initialized():
        total = total.to(values.device)  # processes share devices that have float64: MPS has one only
        distributed.all_reduce(total)
    return float(total[0] / total[1]) if total[1] > 0 else None


def robust_surrogate(
    loss: AnyLoss,
    inputs: Tensor,
    targets: Tensor | None = None,
    *,
    gamma: float | Tensor,
    cost: Cost = _L2,
    domain: Domain = _EVERYWHERE,
    maximizer: Maximizer | None = None,
    label_cost: LabelCost | None = None,
) -> Tensor:
    """Return φ_γ(θ; z₀), one value per sample: *estimated*, from below, by a precise ascent.

    Differentiable in θ: ∇_θ φ_γ = ∇_θ ℓ(θ; T_γ) (lemma:smoothness), so ``.mean().backward()`` is a step
    of Algorithm 1. With gradients enabled this costs one more forward pass, in the model's present mode.

    Returns: (batch,) tensor.

    >>> slope = torch.tensor([3.0, 4.0])
    >>> robust_surrogate(lambda z: z @ slope, torch.zeros(1, 2), gamma=0.5)   # ‖slope‖²/4γ
    tensor([12.5000])
    """
    maximizer = maximizer or default_maximizer(cost, domain, tolerance=1e-6, max_gradients=200)
    wrm = WRM(gamma, cost=cost, domain=domain, maximizer=maximizer, label_cost=label_cost)
    solution = wrm.solve(loss, inputs, targets)
    if not torch.is_grad_enabled():
        return solution.value
    losses = evaluate_loss(loss, solution.inputs, solution.targets)
    # The attained value; the difference of the losses is 0, and carries the gradient in θ.
    return solution.value + (losses - losses.detach())


def transport_map(
    loss: AnyLoss,
    inputs: Tensor,
    targets: Tensor | None = None,
    *,
    gamma: float | Tensor,
    cost: Cost = _L2,
    domain: Domain = _EVERYWHERE,
    maximizer: Maximizer | None = None,
) -> Tensor:
    """Return T_γ(θ; z₀), where the worst case moves each sample: *estimated* by a precise ascent.

    Returns: tensor of the inputs' shape, detached.

    >>> slope = torch.tensor([3.0, 4.0])
    >>> transport_map(lambda z: z @ slope, torch.zeros(1, 2), gamma=0.5)      # z₀ + slope/2γ
    tensor([[3., 4.]])
    """
    maximizer = maximizer or default_maximizer(cost, domain, tolerance=1e-6, max_gradients=200)
    return WRM(gamma, cost=cost, domain=domain, maximizer=maximizer)(loss, inputs, targets)
