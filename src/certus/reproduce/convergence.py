"""thm:convergence in numbers: its step, its rate, and what Algorithm 1 does beside it.

A linear softmax classifier ℓ(W; x, y) = lse(Wx) − (Wx)_y has constants that are proven for all W with
‖W‖₂ ≤ b and all inputs that the adversary can reach, ‖x‖ ≤ R:

    L_θθ = R²/2,   L_θx = bR/2 + √2,   ‖∇_W ℓ‖ ≤ √2 R,   L⁺ = b²/2,   μ = 2γ − L⁺

since the softmax Hessian is at most ½, and ∇_W ℓ = (p − e_y)xᵀ with ‖p − e_y‖₂ ≤ √2. The samples have
norm at most R₀, and T_γ moves them by at most √2b/(2γ): R = R₀ + b/(√2γ). σ² = 2R² bounds the variance of a
gradient, and at W = 0 the surrogate is ln K, so Δ = ln K. That the iterates stay within ‖W‖₂ ≤ b is
checked, step by step. Then the theorem says, for its constant step and an ε-approximate maximiser,

    (1/T) Σ_t E‖∇F(W_t)‖² ≤ 4σ√(L_φΔ/T) + 4L_θx² ε/μ                                     [thm:convergence]

ℓ is convex in W, so F is too: the convex case of sec:optimization is the same run, seen by F(W̄_T) − min F.

For the 2-4-2-2 network of ELUs no constants are known. Exact Hessians at samples, along a training, give
values that the true constants exceed: *estimated*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap

from certus.data import load
from certus.data.rings import rings
from certus.figures.canvas import COLOURS, new_figure
from certus.losses import CrossEntropy, ModelLoss
from certus.models.paper import toy_mlp
from certus.reproduce.page import markdown_table
from certus.reproduce.reproduction import Comparison, Extent, Measured, Part, Picture, Reproduction
from certus.reproduce.workshop import Workshop
from certus.split import Split
from certus.surrogate import WRM, BarzilaiBorwein
from certus.training.theory import ConvergenceConstants

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEP_GAMMA, NORM_BOUND = 4.0, 3.0
CAREFUL = BarzilaiBorwein(1e-10, 200)
_ASCENTS = {1: "no step", 2: "one step", 3: "two steps", 50: "exact"}  # the first gradient is at the sample
_LOOKS = 100  # how often ∇F is computed during a run


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


def _measure(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """One run of Algorithm 1 with the theorem's step: one sample at a time, uniformly at random."""
    data, steps = _digits(), settings["steps"]
    constants = softmax_constants(1.0, 10)
    model, rate = _linear(64, 10), constants.step_size(steps)
    loss, average = ModelLoss(model, CrossEntropy()), torch.zeros_like(model.weight)
    generator = torch.Generator().manual_seed(settings["seed"])
    looks = set(torch.linspace(0, steps - 1, min(_LOOKS, steps)).long().tolist())
    squares, largest, missed = [], 0.0, 0.0
    method = WRM(STEP_GAMMA, maximizer=BarzilaiBorwein(settings["tolerance"], settings["gradients"]))
    for step in range(steps):
        row = torch.randint(len(data), (1,), generator=generator)
        inputs, targets = data.inputs[row], data.targets[row]
        if step in looks:
            squares.append(surrogate_gradient(model, data)[1].square().sum().item())
            largest = max(largest, torch.linalg.matrix_norm(model.weight.detach(), 2).item())
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


def _measure_best(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
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


def _measure_deeper(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
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


def _parts(extent: Extent) -> list[Part]:
    lengths = (100, 300, 1000) if extent is Extent.QUICK else (100, 300, 1000, 3000, 10_000, 30_000, 100_000)
    exact = [
        Part(
            f"exact-{steps}",
            {"steps": steps, "seed": 0, "gradients": 50, "tolerance": 1e-8},
            _measure,
            effort=steps / 100 + 10,
        )
        for steps in lengths
    ]
    steps = lengths[-1] if extent is Extent.QUICK else 10_000
    rough = [
        Part(
            f"rough-{gradients}",
            {"steps": steps, "seed": 0, "gradients": gradients, "tolerance": 1e-12},
            _measure,
            effort=steps / 100 + 10,
        )
        for gradients in (1, 2, 3)
    ]
    epochs = 3 if extent is Extent.QUICK else 20
    deeper = Part(
        "deeper", {"seed": 0, "samples": 2000, "epochs": epochs}, _measure_deeper, effort=5 * epochs
    )
    return [*exact, *rough, Part("best", {"iterations": 500}, _measure_best, effort=20), deeper]


def _runs(measured: Measured, kind: str) -> list[Mapping[str, Any]]:
    found = [one for name, one in measured.items() if name.startswith(kind)]
    return sorted(found, key=lambda one: (one["steps"], one["gradients"]))


def _draw(measured: Measured) -> Figure:
    figure = new_figure(10.2, 4.0)
    rate, convex = figure.subplots(1, 2)
    exact, rough = _runs(measured, "exact"), _runs(measured, "rough")
    steps = [one["steps"] for one in exact]
    rate.plot(steps, [one["bound"] for one in exact], color=COLOURS[0], label="the theorem's bound (proven)")
    rate.plot(
        steps,
        [one["mean_square"] for one in exact],
        "o-",
        color=COLOURS[1],
        label="measured, exact ascent (estimated)",
    )
    for marker, one in zip("sDv", rough, strict=True):
        words = _ASCENTS[one["gradients"]]
        rate.plot(one["steps"], one["mean_square"], marker, color=COLOURS[2], label=f"measured, {words}")
    rate.set(xscale="log", yscale="log", xlabel="steps T", ylabel="mean of ‖∇F‖² over the run")
    rate.set_title("Stationarity")
    best = measured["best"]["value"]
    gaps = [one["average_value"] - best for one in exact]
    convex.plot(steps, gaps, "o-", color=COLOURS[1], label="F at the average iterate, less min F")
    line = [gaps[0] * math.sqrt(steps[0] / one) for one in steps]
    convex.plot(steps, line, "--", color="#5f5f5f", label="a rate of 1/√T")
    convex.set(xscale="log", yscale="log", xlabel="steps T", ylabel="F(W̄_T) − min F")
    convex.set_title("The convex case")
    for axes in (rate, convex):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize="small")
    return figure


def _statements(measured: Measured) -> list[Comparison]:
    exact, rough = _runs(measured, "exact"), _runs(measured, "rough")
    held = all(one["mean_square"] <= one["bound"] for one in (*exact, *rough))
    inside = max(one["largest_norm"] for one in (*exact, *rough))
    last = exact[-1]
    best = measured["best"]["value"]
    first_gap, last_gap = exact[0]["average_value"] - best, last["average_value"] - best
    power = math.log(first_gap / last_gap) / math.log(last["steps"] / exact[0]["steps"])
    fall = math.log(exact[0]["mean_square"] / last["mean_square"]) / math.log(
        last["steps"] / exact[0]["steps"]
    )
    worst = max(rough, key=lambda one: one["accuracy"])
    alike = abs(worst["mean_square"] - _at(exact, worst["steps"])["mean_square"])
    return [
        Comparison(
            "thm:convergence",
            "The mean of ‖∇F‖² over T steps is at most 4σ√(L_φΔ/T) + 4L_θz²ε/μ.",
            f"At T = {last['steps']:,}: {last['mean_square']:.2g} measured, {last['bound']:.2g} by "
            f"the theorem. "
            f"Below the bound at every T and ε that was tried; ‖W‖ reached {inside:.2f} of the "
            f"{NORM_BOUND:g} assumed.",
            held and inside <= NORM_BOUND,
        ),
        Comparison(
            "thm:convergence",
            "It falls like 1/√T.",
            f"It falls like T^−{fall:.2f} from T = {exact[0]['steps']} to {last['steps']:,}.",
            fall > 0.4,
            reason=""
            if fall > 0.4
            else "The constant step shrinks with T, and short runs hardly leave the start.",
        ),
        Comparison(
            "thm:convergence",
            "The accuracy ε of the inner problem has a fixed effect, independent of T.",
            f"Without any ascent (ε up to {worst['accuracy']:.2g}) the mean of ‖∇F‖² changes by {alike:.1g}; "
            f"the theorem allows {worst['bound'] - _at(exact, worst['steps'])['bound']:.2g}.",
            alike <= worst["bound"] - _at(exact, worst["steps"])["bound"],
        ),
        Comparison(
            "sec:optimization",
            "In the convex case F converges at rate 1/√T.",
            f"F(W̄_T) − min F falls like T^−{power:.2f}.",
            power > 0.4,
            reason="" if power > 0.4 else "The theorem's step is small: short runs are still on their way.",
        ),
        Comparison(
            "assumption:smoothness",
            "∇ℓ is Lipschitz in θ and z, with constants L_θθ, L_θz.",
            _deeper_words(measured["deeper"]["along"]),
            None,
            reason="the paper gives no number; of a deeper network none is proven here.",
        ),
    ]


def _at(runs: list[Mapping[str, Any]], steps: int) -> Mapping[str, Any]:
    return next(one for one in runs if one["steps"] == steps)


def _deeper_words(rows: list[Mapping[str, Any]]) -> str:
    most = {
        name: max(one[name] for one in rows)
        for name in ("parameter_smoothness", "cross_smoothness", "gradient")
    }
    return (
        f"Linear softmax: proven, in the table. The toy network with ELUs, at samples along a "
        f"training: L_θθ at least "
        f"{most['parameter_smoothness']:.3g}, L_θz at least {most['cross_smoothness']:.3g}, "
        f"‖∇_θ ℓ‖ up to {most['gradient']:.3g}."
    )


def _text(measured: Measured) -> str:
    constants = softmax_constants(1.0, 10)
    words = (
        f"Digits, pixels scaled to norm at most 1; γ = {STEP_GAMMA:g}, ‖W‖₂ ≤ {NORM_BOUND:g}. Proven: "
        f"L_θθ = {constants.parameter_smoothness:.3g}, L_θx = {constants.cross_smoothness:.3g}, "
        f"μ = {constants.modulus:.3g}, L_φ = {constants.smoothness:.3g}, σ = {constants.noise:.3g}, "
        f"Δ = {constants.initial_gap:.3g}."
    )
    rows = [
        [
            f"{one['steps']:,}",
            _ASCENTS[one["gradients"]],
            *(
                f"{one[name]:.2g}"
                for name in ("step_size", "accuracy", "mean_square", "bound", "average_value")
            ),
        ]
        for one in (*_runs(measured, "exact"), *_runs(measured, "rough"))
    ]
    head = ["T", "ascent", "step", "ε, at most", "mean of ‖∇F‖²", "bound", "F at the average"]
    return f"{words}\n\n{markdown_table(head, rows)}"


REPRODUCTION = Reproduction(
    name="convergence",
    title="Convergence of Algorithm 1: the theorem's step and rate as numbers",
    shows=("thm:convergence", "sec:optimization", "assumption:smoothness"),
    minutes={Extent.QUICK: 0.5, Extent.PAPER: 15},
    parts=_parts,
    pictures=(
        Picture(
            "rates", "Left: ‖∇F‖² under the theorem's step, beside its bound. Right: the convex case.", _draw
        ),
    ),
    statements=_statements,
    text=_text,
    smaller={Extent.QUICK: "At most 1,000 steps."},
)
