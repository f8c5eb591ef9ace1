"""thm:convergence in numbers: its step, its rate, and runs of Algorithm 1 beside it.

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
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap

from certus._format import at_least, at_most
from certus.data import Samples
from certus.datasets import load
from certus.datasets.bundled import rings
from certus.display.canvas import COLOURS, new_figure
from certus.inner import WRM, BarzilaiBorwein
from certus.losses import CrossEntropy, ModelLoss
from certus.models.networks import toy_mlp
from certus.training.optimizers import ConvergenceConstants
from studies.page import at_most_digits, markdown_table
from studies.study import Measured, Outcome, Part, Picture, Quantity, Scale, Study, Verdict, outcome_of
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEP_GAMMA, NORM_BOUND = 4.0, 3.3
CAREFUL = BarzilaiBorwein(1e-10, 200)
LOOKS = 100  # how often ∇F is computed during a run


def softmax_constants(largest_input: float, classes: int) -> ConvergenceConstants:
    """Return the constants derived above, proven for ‖W‖₂ ≤ ``NORM_BOUND`` and inputs of norm at most R₀."""
    reach = largest_input + NORM_BOUND / (math.sqrt(2) * STEP_GAMMA)
    return ConvergenceConstants(
        parameter_smoothness=reach**2 / 2,
        cross_smoothness=NORM_BOUND * reach / 2 + math.sqrt(2),
        modulus=2 * STEP_GAMMA - NORM_BOUND**2 / 2,
        initial_gap=math.log(classes),
        noise=math.sqrt(2) * reach,
    )


def _digits() -> Samples:
    """Pixels scaled so that the largest norm is 1; float64."""
    train = load("digits").train
    inputs = train.inputs.flatten(1).double()
    return Samples(inputs / inputs.norm(dim=1).max(), train.targets)


def _linear(inputs: int, classes: int) -> nn.Linear:
    model = nn.Linear(inputs, classes, bias=False).double()
    nn.init.zeros_(model.weight)
    return model


def surrogate_gradient(model: nn.Linear, data: Samples) -> tuple[float, Tensor]:
    """Return F and ∇F over the data, with inner problems solved to 1e-10."""
    loss = ModelLoss(model, CrossEntropy())
    solved = WRM(STEP_GAMMA, maximizer=CAREFUL).solve(loss, data.inputs, data.targets)
    (slope,) = torch.autograd.grad(loss(solved.inputs, data.targets).mean(), [model.weight])
    return solved.value.mean().item(), slope


def measure_run(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run Algorithm 1 with the theorem's step, on one uniformly random sample at a time."""
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


def measure_best(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Minimise the convex F by L-BFGS; return min F and the norm of its gradient."""
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


def measure_deeper(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return exact second derivatives of the paper's toy network at samples, before and during training."""
    torch_generator = torch.Generator().manual_seed(settings["seed"])
    data = rings(train=settings["samples"]).train
    model = toy_mlp().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch_generator, dtype=torch.float64) / 2)
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
    """Return the largest ‖∇²_θθ ℓ‖, ‖∇²_θx ℓ‖ and ‖∇_θ ℓ‖ over samples."""
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

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


_ASCENTS = {1: "no step", 2: "one step", 3: "two steps", 50: "exact"}  # the first gradient is at the sample
_KNOWN = softmax_constants(1.0, 10)  # of the digits: inputs of norm at most 1, 10 classes


def _parts(scale: Scale) -> list[Part]:
    lengths = [100, 300, 1000]
    if scale is Scale.FULL:
        lengths += [3000, 10_000, 30_000, 100_000, 300_000]
    exact = [
        Part(
            f"exact-{steps}",
            {"steps": steps, "seed": 0, "gradients": 50, "tolerance": 1e-8},
            measure_run,
            effort=steps / 100 + 10,
        )
        for steps in lengths
    ]
    steps = lengths[-1] if scale is Scale.QUICK else 10_000
    rough = [
        Part(
            f"rough-{gradients}",
            {"steps": steps, "seed": 0, "gradients": gradients, "tolerance": 1e-12},
            measure_run,
            effort=steps / 100 + 10,
        )
        for gradients in (1, 2, 3)
    ]
    epochs = 3 if scale is Scale.QUICK else 20
    deeper = Part("deeper", {"seed": 0, "samples": 2000, "epochs": epochs}, measure_deeper, effort=5 * epochs)
    return [*exact, *rough, Part("best", {"iterations": 500}, measure_best, effort=20), deeper]


def _runs(measured: Measured, kind: str) -> list[Mapping[str, Any]]:
    runs = [entry for name, entry in measured.items() if name.startswith(kind)]
    return sorted(runs, key=lambda entry: (entry["steps"], entry["gradients"]))


def _draw(measured: Measured) -> Figure:
    figure = new_figure(10.2, 4.0)
    rate, convex = figure.subplots(1, 2)
    exact, rough = _runs(measured, "exact"), _runs(measured, "rough")
    steps = [run["steps"] for run in exact]
    rate.plot(steps, [run["bound"] for run in exact], color=COLOURS[0], label="the theorem's bound (proven)")
    rate.plot(
        steps,
        [run["mean_square"] for run in exact],
        "o-",
        color=COLOURS[1],
        label="measured, exact ascent (estimated)",
    )
    for (marker, size), run in zip((("s", 12), ("D", 8), ("v", 4)), rough, strict=True):
        words = f"measured, {_ASCENTS[run['gradients']]}"
        rate.plot(
            run["steps"], run["mean_square"], marker, ms=size, mfc="none", color=COLOURS[2], label=words
        )
    rate.set(xscale="log", yscale="log", xlabel="steps T", ylabel="mean of ‖∇F‖² over the run")
    rate.set_title("Stationarity")
    best = measured["best"]["value"]
    gaps = [run["average_value"] - best for run in exact]
    convex.plot(steps, gaps, "o-", color=COLOURS[1], label="measured (estimated)")
    line = [gaps[0] * math.sqrt(steps[0] / step) for step in steps]
    convex.plot(steps, line, "--", color="#5f5f5f", label="a rate of 1/√T")
    convex.set(xscale="log", yscale="log", xlabel="steps T", ylabel="F at the average iterate, less min F")
    convex.set_title("The convex case")
    for axes in (rate, convex):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize="small")
    return figure


def _verdicts(measured: Measured) -> list[Verdict]:
    exact, rough = _runs(measured, "exact"), _runs(measured, "rough")
    best = measured["best"]["value"]
    return [
        _about_the_bound([*exact, *rough], exact[-1]),
        Verdict(
            name="order",
            label="thm:convergence",
            claim="So it is at most of the order of 1/√T.",
            rule="",
            outcome=Outcome.NOT_COMPARABLE,
            ours=_powers(exact, [entry["mean_square"] for entry in exact]),
            paper={"p of T^p, at most": -0.5},
        ),
        _about_accuracy(exact, rough),
        Verdict(
            name="convex case",
            label="sec:optimization",
            claim="In the convex case a stochastic variational inequality is solved at rate 1/√T.",
            rule="",
            outcome=Outcome.NOT_COMPARABLE,
            ours=_powers(exact, [entry["average_value"] - best for entry in exact]),
            paper={"p of T^p": -0.5},
        ),
        _about_smoothness(measured["deeper"]["along"]),
    ]


def _about_the_bound(runs: list[Mapping[str, Any]], last: Mapping[str, Any]) -> Verdict:
    """Judge the bound; it says nothing of a run that left the ball that its constants are proven for."""
    above = [run for run in runs if run["mean_square"] > run["bound"]]
    left = [run for run in runs if run["largest_norm"] > NORM_BOUND]
    broken = [run for run in above if run not in left]
    return Verdict(
        name="bound",
        label="thm:convergence",
        claim="The mean of ‖∇F‖² over T steps is at most 4σ√(L_φΔ/T) + 4L_θz²ε/μ.",
        rule="no run above its bound; not comparable where a run left the ball that the constants are proven "
        f"for, ‖W‖ ≤ {NORM_BOUND:g}",
        outcome=outcome_of(False if broken else None if left else True),
        ours={
            "T": Quantity(last["steps"], places=0),
            "mean of ‖∇F‖²": Quantity(last["mean_square"]),
            "the theorem's bound": Quantity(last["bound"], side="at most"),
            "runs": Quantity(len(runs), places=0),
            "above the bound": Quantity(len(above), places=0),
            "smallest ratio of bound to mean": Quantity(
                min(run["bound"] / run["mean_square"] for run in runs)
            ),
            "largest mean of all runs": Quantity(max(run["mean_square"] for run in runs)),
            "smallest bound": Quantity(min(run["bound"] for run in runs), side="at most"),
            "largest ‖W‖": Quantity(max(run["largest_norm"] for run in runs), places=2),
        },
    )


def _about_accuracy(exact: list[Mapping[str, Any]], rough: list[Mapping[str, Any]]) -> Verdict:
    worst = max(rough, key=lambda entry: float(entry["accuracy"]))
    same = next(entry for entry in exact if entry["steps"] == worst["steps"])
    return Verdict(
        name="inner accuracy",
        label="thm:convergence",
        claim="The accuracy ε of the inner problem has a fixed effect, independent of T.",
        rule="",
        outcome=Outcome.NOT_COMPARABLE,
        ours={
            "T": Quantity(worst["steps"], places=0),
            "ε": Quantity(worst["accuracy"], side="at most"),
            "change of the mean of ‖∇F‖²": Quantity(abs(worst["mean_square"] - same["mean_square"])),
            "change that the theorem allows": Quantity(worst["bound"] - same["bound"]),
            "the mean itself": Quantity(same["mean_square"]),
        },
    )


def _powers(runs: list[Mapping[str, Any]], values: list[float]) -> dict[str, Quantity]:
    """Return the exponent p of T^p between neighbouring lengths of runs: the first and the last."""
    steps = [run["steps"] for run in runs]
    powers = [
        math.log(after / before) / math.log(longer / shorter)
        for (shorter, longer), (before, after) in zip(pairwise(steps), pairwise(values), strict=True)
    ]
    return {
        f"p from T = {steps[0]:,} to {steps[1]:,}": Quantity(powers[0], places=2),
        f"from {steps[-2]:,} to {steps[-1]:,}": Quantity(powers[-1], places=2),
    }


def _about_smoothness(rows: list[Mapping[str, Any]]) -> Verdict:
    most = {
        name: max(row[name] for row in rows)
        for name in ("parameter_smoothness", "cross_smoothness", "gradient")
    }
    return Verdict(
        name="smoothness",
        label="assumption:smoothness",
        claim="∇ℓ is Lipschitz in θ and z, with constants L_θθ, L_θz.",
        rule="",
        outcome=Outcome.NOT_COMPARABLE,
        ours={
            "linear softmax, L_θθ (proven)": Quantity(_KNOWN.parameter_smoothness, places=2, side="at most"),
            "L_θz (proven)": Quantity(_KNOWN.cross_smoothness, places=2, side="at most"),
            "toy network, L_θθ": Quantity(most["parameter_smoothness"], places=1, side="at least"),
            "L_θz": Quantity(most["cross_smoothness"], places=1, side="at least"),
            "largest ‖∇_θ ℓ‖": Quantity(most["gradient"], places=2),
        },
    )


def _text(measured: Measured) -> str:
    upper = {
        "L_θθ": _KNOWN.parameter_smoothness,
        "L_θz": _KNOWN.cross_smoothness,
        "L_φ": _KNOWN.smoothness,
        "σ": _KNOWN.noise,
        "Δ": _KNOWN.initial_gap,
    }
    best = measured["best"]
    words = (
        f"Digits, pixels scaled to norm at most 1; γ = {STEP_GAMMA:g}, ‖W‖₂ ≤ {NORM_BOUND:g}. Proven: "
        f"{', '.join(f'{name} ≤ {at_most(value, 2)}' for name, value in upper.items())}, "
        f"μ ≥ {at_least(_KNOWN.modulus, 2)}. The bound on ‖W‖₂ was chosen after the longest run had left a "
        "smaller ball (3). That the iterates stay within this one is checked at every step. min F is "
        f"attained at ‖W‖₂ = {best['norm']:.2f}. Bounds and ε are rounded up."
    )
    rows = [
        [
            f"{entry['steps']:,}",
            _ASCENTS[entry["gradients"]],
            f"{entry['step_size']:.2g}",
            at_most_digits(entry["accuracy"]),
            f"{entry['mean_square']:.2g}",
            at_most_digits(entry["bound"]),
            f"{entry['average_value'] - best['value']:.2g}",
        ]
        for entry in (*_runs(measured, "exact"), *_runs(measured, "rough"))
    ]
    head = ["T", "ascent", "step", "ε, at most", "mean of ‖∇F‖²", "bound", "F at the average, less min F"]
    return f"{words}\n\n{markdown_table(head, rows)}"


STUDY = Study(
    name="convergence",
    title="Convergence of Algorithm 1: the theorem's step and rate as numbers",
    labels=("thm:convergence", "sec:optimization", "assumption:smoothness"),
    minutes={Scale.QUICK: 0.5, Scale.FULL: 20},
    parts=_parts,
    pictures=(
        Picture(
            "rates", "Left: ‖∇F‖² under the theorem's step, beside its bound. Right: the convex case.", _draw
        ),
    ),
    verdicts=_verdicts,
    text=_text,
    scope={Scale.QUICK: "At most 1,000 steps."},
    revision=4,
)
