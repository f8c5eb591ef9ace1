"""Cart-poles that move, side by side."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from certus.display.canvas import COLOURS, new_figure
from certus.errors import require_count
from certus.mdp.cartpole import START, STEP_LIMIT, CartPole, advance, fallen
from certus.mdp.policies import Policy
from certus.storage.write import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AGENT_COLOURS = (COLOURS[1], COLOURS[0])  # vermilion and blue


def animate(
    policies: Mapping[str, Policy],
    system: CartPole,
    path: str | Path,
    *,
    steps: int = STEP_LIMIT,
    seed: int = 0,
) -> None:
    """A GIF of policies from the same first state, side by side, in real time; what is over stays.

    Args:
        policies: by the name to write above each.
        path: the GIF file to write.
        steps: how many to show, every second one; the last stays for two seconds.
        seed: of the first state.
    """
    require_count("steps", steps)
    figure = new_figure(4 * len(policies), 2.1)
    from matplotlib.animation import PillowWriter  # matplotlib is there, or new_figure has said so

    traces = {name: _trace(policy, system, steps, seed) for name, policy in policies.items()}
    panels: list[Axes] = list(np.atleast_1d(figure.subplots(1, len(traces))))
    writer = PillowWriter(fps=round(1 / (2 * system.interval)))
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.gif"
        with writer.saving(figure, str(made), 80):
            for step in (*range(0, steps, 2), *[steps] * 2 * writer.fps):
                for panel, (name, trace), colour in zip(panels, traces.items(), AGENT_COLOURS, strict=False):
                    _draw(panel, name, trace, step, system, colour)
                writer.grab_frame()
        write_atomically(Path(path), made.read_bytes())


def _trace(policy: Policy, system: CartPole, steps: int, seed: int) -> NDArray[np.float64]:
    """(until it is over, 4) states, the first one included."""
    state = np.random.default_rng(seed).uniform(-START, START, (4, 1))
    states = [state[:, 0]]
    while len(states) <= steps and not fallen(state[0], state[2], system)[0]:
        x, speed, angle, spin = state
        push = 2.0 * policy.actions(state.T) - 1.0
        state = np.stack(advance(x, speed, angle, spin, push, system))
        states.append(state[:, 0])
    return np.stack(states)


def _draw(
    panel: Axes, name: str, trace: NDArray[np.float64], step: int, system: CartPole, colour: str
) -> None:
    last = len(trace) - 1
    x, _, angle, _ = trace[min(step, last)]
    end, reach = system.position_limit, 2 * system.length
    panel.clear()
    panel.plot([-end, -end, end, end], [0.3, 0, 0, 0.3], color="#9a9a9a", lw=1)  # the track and its ends
    panel.plot([x - 0.25, x + 0.25], [0, 0], color="#1a1a1a", lw=9, solid_capstyle="butt")
    panel.plot([x, x + reach * np.sin(angle)], [0, reach * np.cos(angle)], color=colour, lw=4)
    panel.set(xlim=(-end - 0.6, end + 0.6), ylim=(-0.2, reach + 0.2), aspect="equal")
    panel.set_axis_off()
    if step < last or not fallen(x, angle, system):
        state = f"step {step}"
    else:
        state = f"{'fell' if abs(angle) > system.angle_limit else 'off the track'} after {last} steps"
    panel.set_title(f"{name}: {state}", fontsize=11, color=colour)
