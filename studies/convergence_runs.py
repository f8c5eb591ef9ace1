"""Runs of Algorithm 1 whose constants are known, for thm:convergence.

A linear softmax classifier ℓ(W; x, y) = lse(Wx) − (Wx)_y has constants that are proven for all W with
‖W‖₂ ≤ b and all inputs that the adversary can reach, ‖x‖ ≤ R:

    L_θθ = R²/2,   L_θx = bR/2 + √2,   ‖∇_W ℓ‖ ≤ √2 R,   L⁺ = b²/2,   μ = 2γ − L⁺

since the softmax Hessian is at most ½, and ∇_W ℓ = (p − e_y)xᵀ with ‖p − e_y‖₂ ≤ √2. The samples have
norm at most R₀, and T_γ moves them by at most √2b/(2γ): R = R₀ + b/(√2γ). σ² = 2R² bounds the variance of a
gradient, and at W = 0 the surrogate is ln K, so Δ = ln K. That the iterates stay within ‖W‖₂ ≤ b is
checked at every step of each run. Then the theorem says, for its constant step and an ε-approximate
maximiser,

    (1/T) Σ_t E‖∇F(W_t)‖² ≤ 4σ√(L_φΔ/T) + 4L_θx² ε/μ                                     [thm:convergence]

ℓ is convex in W, so F is too: the convex case of sec:optimization is the same run, seen by F(W̄_T) − min F.

For the 2-4-2-2 network of ELUs no constants are known. Exact Hessians at samples, along a training, give
values that the true constants exceed: *estimated*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap

from certus.data import Split
from certus.datasets import load
from certus.datasets.bundled import rings
from certus.inner import WRM, BarzilaiBorwein
from certus.losses import CrossEntropy, ModelLoss
from certus.models.paper import toy_mlp
from certus.training.convergence import ConvergenceConstants
from studies.workshop import Workshop

STEP_GAMMA, NORM_BOUND = 4.0, 3.3
CAREFUL = BarzilaiBorwein(1e-10, 200)
LOOKS = 100  # how often ∇F is computed during a run


def softmax_constants(largest_input: float, classes: int) -> ConvergenceConstants:
    """What the text above derives: proven for ‖W‖₂ ≤ ``NORM_BOUND`` and inputs of norm at most R₀."""
    reach = largest_input + NORM_BOUND / (math.sqrt(2) * STEP_GAMMA)
    return ConvergenceConstants(
        parameter_smoothness=reach**2 / 2,
        cross_smoothness=NORM_BOUND * reach / 2 + math.sqrt(2),
        modulus=2 * STEP_GAMMA - NORM_BOUND**2 / 2,
        initial_gap=math.log(classes),
        noise=math.sqrt(2) * reach,
    )


def _digits() -> Split:
    """Pixels scaled so that the largest norm is 1; float64."""
    train = load("digits").train
    inputs = train.inputs.flatten(1).double()
    return Split(inputs / inputs.norm(dim=1).max(), train.targets)


def _linear(inputs: int, classes: int) -> nn.Linear:
    model = nn.Linear(inputs, classes, bias=False).double()
    nn.init.zeros_(model.weight)
    return model


def surrogate_gradient(model: nn.Linear, data: Split) -> tuple[float, Tensor]:
    """F and ∇F over the data, with inner problems solved to 1e-10."""
    loss = ModelLoss(model, CrossEntropy())
    solved = WRM(STEP_GAMMA, maximizer=CAREFUL).solve(loss, data.inputs, data.targets)
    (slope,) = torch.autograd.grad(loss(solved.inputs, data.targets).mean(), [model.weight])
    return solved.value.mean().item(), slope


def measure_run(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """One run of Algorithm 1 with the theorem's step: one sample at a time, uniformly at random."""
    data, steps = _digits(), settings["steps"]
    constants = softmax_constants(1.0, 10)
    model, rate = _linear(64, 10), constants.step_size(steps)
    loss, average = ModelLoss(model, CrossEntropy()), torch.zeros_like(model.weight)
    generator = torch.Generator().manual_seed(settings["seed"])
    looks = set(torch.linspace(0, steps - 1, min(LOOKS, steps)).long().tolist())
    squares, largest, missed = [], 0.0, 0.0
    method = WRM(STEP_GAMMA, maximizer=BarzilaiBorwein(settings["tolerance"], settings["gradients"]))
    for step in range(steps):
        row = torch.randint(len(data), (1,), generator=generator)
        inputs, targets = data.inputs[row], data.targets[row]
        largest = max(largest, torch.linalg.matrix_norm(model.weight.detach(), 2).item())
        if step in looks:
            squares.append(surrogate_gradient(model, data)[1].square().sum().item())
        solved = method.solve(loss, inputs, targets)
        gap = solved.gradient_norm.square() / (2 * constants.modulus)
        missed = max(missed, gap.max().item())  # φ − f ≤ ‖∇f‖²/2μ
        average += model.weight.detach() / steps
        (slope,) = torch.autograd.grad(loss(solved.inputs, targets).sum(), [model.weight])
        with torch.no_grad():
            model.weight -= rate * slope
    with torch.no_grad():
        model.weight.copy_(average)
    return {
        "steps": steps,
        "step_size": rate,
        "mean_square": sum(squares) / len(squares),
        "accuracy": missed,
        "bound": constants.bound(steps, missed),
        "largest_norm": largest,
        "average_value": surrogate_gradient(model, data)[0],
        "gradients": settings["gradients"],
    }


def measure_best(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """min F, by L-BFGS on the convex F; its gradient there says how well."""
    data, model = _digits(), _linear(64, 10)
    search = torch.optim.LBFGS(
        model.parameters(),
        max_iter=settings["iterations"],
        tolerance_grad=1e-8,
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        value, model.weight.grad = surrogate_gradient(model, data)
        return value

    search.step(closure)
    value, slope = surrogate_gradient(model, data)
    norm = torch.linalg.matrix_norm(model.weight.detach(), 2).item()
    return {"value": value, "gradient_norm": slope.norm().item(), "norm": norm}


def measure_deeper(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Exact second derivatives of the paper's toy network at samples, before and during training."""
    torch_generator = torch.Generator().manual_seed(settings["seed"])
    data = rings(train=settings["samples"]).train
    model = toy_mlp().double()
    with torch.no_grad():
        for one in model.parameters():
            one.copy_(torch.randn(one.shape, generator=torch_generator, dtype=torch.float64) / 2)
    rows = []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss, method = ModelLoss(model, CrossEntropy()), WRM(2.0)
    inputs, targets = data.inputs.double(), data.targets
    for epoch in range(settings["epochs"] + 1):
        rows.append({"epoch": epoch, **_second_derivatives(model, inputs[:200], targets[:200])})
        for batch in torch.randperm(len(inputs), generator=torch_generator).split(64):
            moved = method(loss, inputs[batch], targets[batch])
            optimizer.zero_grad()
            loss(moved, targets[batch]).mean().backward()
            optimizer.step()
    return {"along": rows}


def _second_derivatives(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, float]:
    """The largest ‖∇²_θθ ℓ‖, ‖∇²_θx ℓ‖ and ‖∇_θ ℓ‖ over samples."""
    shapes = {name: one.shape for name, one in model.named_parameters()}
    flat = torch.cat([one.detach().flatten() for one in model.parameters()])

    def value(theta: Tensor, point: Tensor, label: Tensor) -> Tensor:
        pieces = theta.split([shape.numel() for shape in shapes.values()])
        weights = {
            name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
        }
        outputs = functional_call(model, weights, (point.unsqueeze(0),))
        return nn.functional.cross_entropy(outputs, label.unsqueeze(0))

    both = vmap(jacrev(grad(value)), (None, 0, 0))(flat, inputs, targets)
    mixed = vmap(jacrev(grad(value), argnums=1), (None, 0, 0))(flat, inputs, targets)
    slopes = vmap(grad(value), (None, 0, 0))(flat, inputs, targets)
    return {
        "parameter_smoothness": torch.linalg.matrix_norm(both, 2).max().item(),
        "cross_smoothness": torch.linalg.matrix_norm(mixed, 2).max().item(),
        "gradient": slopes.norm(dim=1).max().item(),
    }
