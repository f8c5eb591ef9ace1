"""fig:supremum: does the inner problem of the heads converge in 20 steps?

    f(z) = ℓ(θ; z) − γ‖z − z₀‖²

As printed, z ← z + 10·∇f(z) at γ = 10⁵: each step multiplies the distance to z₀ by 2·10·10⁵ − 1. With
∇f/γ in place of ∇f it is still 19 times. In units of 1/2γ, as in the authors' code for MNIST, steps of 1/√t
converge. The paper's curve is the mean of f and its standard error over the first epoch of training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from certus.data import Split
from certus.display.canvas import COLOURS, new_figure
from certus.inner import WRM, PaperAscent
from certus.losses import CrossEntropy, ModelLoss, loss_and_slope
from studies.dog_heads import PAPER_GAMMA, head, head_features, spoken_gamma, trained_head
from studies.reproduction import Measured
from studies.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER_STEP, PAPER_STEPS = 10.0, 20


def literal_ascent(
    loss: ModelLoss, data: Split, gamma: float, step: float, steps: int, *, divided: bool
) -> list[float]:
    """The mean of f before and after each step of z ← z + step·∇f(z), or of ∇f(z)/γ; it ends where f is not
    finite any more.

    >>> from torch import nn
    >>> constant = nn.Sequential(nn.Flatten(), nn.Linear(1, 2))
    >>> _ = nn.init.zeros_(constant[1].weight), nn.init.zeros_(constant[1].bias)
    >>> data = Split(torch.zeros(1, 1), torch.zeros(1, dtype=torch.long))
    >>> [round(value, 2) for value in literal_ascent(ModelLoss(constant), data, 1.0, 10.0, 2, divided=False)]
    [0.69, 0.69, 0.69]
    """
    point, values = data.inputs.clone(), []
    for number in range(steps + 1):
        value, slope = loss_and_slope(loss, point.requires_grad_(), data.targets)
        point = point.detach()
        moved = point - data.inputs
        f = value.detach().double() - gamma * moved.double().flatten(1).square().sum(1)
        mean = float(f.mean())
        if not math.isfinite(mean):
            break
        values.append(mean)
        if number < steps:
            rise = slope - 2 * gamma * moved
            point = point + step * (rise / gamma if divided else rise)
    return values


def trace_of_first_epoch(
    loss: ModelLoss, data: Split, how: Mapping[str, Any], gamma: float, steps: int
) -> dict[str, Any]:
    """Train for one epoch by Algorithm 1, and keep f after each inner step: its mean and standard error."""
    optimizer = torch.optim.Adam(loss.model.parameters(), lr=how["rate"])
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(how["seed"]))
    rows: list[Tensor] = []
    for chosen in order.split(how["batch"]):
        batch = data[chosen]
        with torch.no_grad():
            seen = [loss(batch.inputs, batch.targets)]

        def keep(step: int, point: Tensor, value: Tensor, seen: list[Tensor] = seen) -> None:
            seen.append(value)

        found = WRM(gamma, maximizer=PaperAscent(steps)).solve(
            loss, batch.inputs, batch.targets, callback=keep
        )
        rows.append(torch.stack(seen, 1))
        loss(found.inputs, batch.targets).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    values = torch.cat(rows).double()
    return {
        "gamma": gamma,
        "samples": len(values),
        "mean": values.mean(0).tolist(),
        "standard_error": (values.std(0) / math.sqrt(len(values))).tolist(),
        "gain": (values - values[:, :1]).mean(0).tolist(),
    }


def measure_ascent(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The three ascents at γ = 10⁵, and the one that converges at the proven γ."""
    how = settings["how"]
    gamma = trained_head(workshop, "proven", how).facts["gamma"]
    data = head_features(workshop, how).train

    def fresh() -> ModelLoss:
        return ModelLoss(head(how["units"], how["seed"]), CrossEntropy())

    few = data[: settings["few"]]
    found: dict[str, Any] = {
        "printed": literal_ascent(fresh(), few, PAPER_GAMMA, PAPER_STEP, PAPER_STEPS, divided=False),
        "divided": literal_ascent(fresh(), few, PAPER_GAMMA, PAPER_STEP, PAPER_STEPS, divided=True),
    }
    for name, level, samples in (("proven", gamma, data), ("paper", PAPER_GAMMA, few)):
        found[name] = trace_of_first_epoch(fresh(), samples, how, level, PAPER_STEPS)
    return found


def draw_ascent(measured: Measured) -> Figure:
    """Left as printed, which diverges; in the middle 10⁵, right the γ that is proven."""
    found = measured["ascent"]
    figure = new_figure(12.6, 3.9)
    left, *others = figure.subplots(1, 3)
    for name, label, colour in (("printed", "steps of 10 ∇f", 1), ("divided", "steps of 10 ∇f/γ", 3)):
        falls = [found[name][0] - value for value in found[name]]
        left.plot(range(1, len(falls)), falls[1:], "o-", markersize=4, color=COLOURS[colour], label=label)
    left.set(yscale="log", title="as printed: γ = 10⁵, step 10", ylabel="how far f has fallen below f(z₀)")
    left.legend(frameon=False, fontsize="small")
    titles = {"paper": "γ = 10⁵, steps of 1/(2γ√t)", "proven": "γ = {gamma}, from a proven bound"}
    for axes, (name, title) in zip(others, titles.items(), strict=True):
        trace = found[name]
        mean, error = torch.tensor(trace["mean"]), torch.tensor(trace["standard_error"])
        steps = range(len(mean))
        axes.plot(steps, mean, color=COLOURS[0], label="mean of f")
        axes.fill_between(steps, mean - error, mean + error, color=COLOURS[0], alpha=0.2, linewidth=0)
        axes.set(
            title=title.format(gamma=spoken_gamma(trace["gamma"])), ylabel="ℓ − γc, mean and standard error"
        )
    for axes in (left, *others):
        axes.set(xlabel="inner iteration", xlim=(0, PAPER_STEPS))
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("CIFAR-10 in place of Stanford Dogs", fontsize=10)
    return figure
