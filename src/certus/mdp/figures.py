"""Pictures of agents: episode lengths during training, and two cart-poles that move."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from certus.errors import UnsupportedError
from certus.mdp.cartpole import START, CartPole, advance, fallen
from certus.mdp.policies import Policy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#D55E00", "#0072B2")  # vermilion and blue of Okabe and Ito: told apart by everybody


def _figure(**settings: Any) -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UnsupportedError("Pictures need matplotlib: pip install 'certus[report]'.") from None
    figure = Figure(**settings)
    FigureCanvasAgg(figure)
    return figure


def draw_curves(curves: Mapping[str, NDArray[np.int64]], path: Path, window: int = 50) -> None:
    """Episode length during training: mean over the seeds, and the middle half of them as a band.

    Args:
        curves: by agent, (seeds, episodes).
        window: episodes that are averaged for one point.
    """
    figure = _figure(figsize=(7, 4), dpi=130, layout="constrained")
    axes = figure.subplots()
    for (agent, lengths), colour in zip(curves.items(), COLOURS, strict=False):
        width = min(window, lengths.shape[1])
        blocks = lengths.shape[1] // width
        smooth = lengths[:, : blocks * width].reshape(len(lengths), blocks, width).mean(2)
        at = (np.arange(blocks) + 0.5) * width
        axes.plot(at, smooth.mean(0), color=colour, label=agent)
        axes.fill_between(at, *np.quantile(smooth, [0.25, 0.75], axis=0), color=colour, alpha=0.2, lw=0)
    seeds = len(next(iter(curves.values())))
    axes.set(
        xlabel="training episode",
        ylabel="episode length",
        title=f"Cart-pole: mean of {seeds} agents each, band: their middle half",
    )
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(path)


def animate(
    policies: Mapping[str, Policy], system: CartPole, path: Path, *, steps: int = 200, seed: int = 0
) -> None:
    """A GIF of policies from the same first state, side by side, every second step; what is over stays.

    Args:
        policies: by the name to write above each.
        path: the GIF file to write.
    """
    from matplotlib.animation import PillowWriter

    traces = {name: _trace(policy, system, steps, seed) for name, policy in policies.items()}
    figure = _figure(figsize=(3.2 * len(traces), 2.2), dpi=80, layout="constrained")
    panels: list[Axes] = list(np.atleast_1d(figure.subplots(1, len(traces))))
    writer = PillowWriter(fps=25)
    with writer.saving(figure, str(path), 80):
        for step in range(0, steps, 2):
            for panel, (name, trace), colour in zip(panels, traces.items(), COLOURS, strict=False):
                _draw(panel, name, trace, step, system, colour)
            writer.grab_frame()


def _trace(policy: Policy, system: CartPole, steps: int, seed: int) -> NDArray[np.float64]:
    """(until it falls, 4) states."""
    state = np.random.default_rng(seed).uniform(-START, START, (4, 1))
    states = [state[:, 0]]
    while len(states) < steps and not fallen(state[0], state[2], system)[0]:
        x, speed, angle, spin = state
        push = 2.0 * policy.actions(state.T) - 1.0
        state = np.stack(advance(x, speed, angle, spin, push, system))
        states.append(state[:, 0])
    return np.stack(states)


def _draw(
    panel: Axes, name: str, trace: NDArray[np.float64], step: int, system: CartPole, colour: str
) -> None:
    over = step >= len(trace)
    x, _, angle, _ = trace[min(step, len(trace) - 1)]
    fell = over and abs(angle) > system.angle_limit
    angle = np.copysign(np.pi / 2, angle) if fell else angle
    reach = 2 * system.length
    panel.clear()
    panel.plot([-system.position_limit, system.position_limit], [0, 0], color="#c4c4c4", lw=1)
    panel.plot([x - 0.25, x + 0.25], [0, 0], color="#1a1a1a", lw=9, solid_capstyle="butt")
    panel.plot([x, x + reach * np.sin(angle)], [0, reach * np.cos(angle)], color=colour, lw=4)
    panel.set(xlim=(-2.5, 2.5), ylim=(-0.3, 1.4), aspect="equal")
    panel.set_axis_off()
    end = "fell" if fell else "ran off the track"
    state = f"{end} after {len(trace) - 1} steps" if over else f"step {step}"
    panel.set_title(f"{name}: {state}", fontsize=11, color=colour)
