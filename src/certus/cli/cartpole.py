"""``certus cartpole``: nominal and robust agents on the paper's seven systems."""

from __future__ import annotations

import math
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from certus.cli.output import Json, console, messages, print_json, table
from certus.errors import require, require_count
from certus.runs.files import write_json

if TYPE_CHECKING:
    from certus.mdp.study import Study

Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for policies, results and the plot.")]


def cartpole(
    gamma: Annotated[
        float, typer.Option(help="Penalty on moving a transition, for the robust agents.")
    ] = 50.0,
    episodes: Annotated[int, typer.Option(help="Training episodes of each agent.")] = 4000,
    seeds: Annotated[int, typer.Option(help="Agents of each kind.")] = 5,
    trials: Annotated[int, typer.Option(help="Episodes to try each agent for, on each system.")] = 1000,
    covering: Annotated[
        bool, typer.Option("--covering", help="Minimise over the cells, with the Q-term (wants gamma ~ 1e5).")
    ] = False,
    output: Output = Path("runs/cartpole"),
    as_json: Json = False,
) -> None:
    """Balance a pole whose mass, length or gravity is not what the agent was trained on.

    \b
    certus cartpole
    certus cartpole --gamma 30 --seeds 20
    certus cartpole --covering --gamma 1e5
    """
    # Imported here, or every command would wait for it.
    from certus.mdp.figures import draw_curves
    from certus.mdp.study import compare
    from certus.mdp.tabular import Landing

    require_count("trials", trials)
    require(not output.exists() or output.is_dir(), "output", "be a folder", output)
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        study = compare(
            gamma,
            seeds=seeds,
            episodes=episodes,
            trials=trials,
            landing=Landing.COVER if covering else Landing.ROUND,
            progress=messages.print,
        )
    for remark in dict.fromkeys(str(warning.message) for warning in caught):
        messages.print(f"warning: {remark}")
    output.mkdir(parents=True, exist_ok=True)
    for agent, policies in study.policies.items():
        for seed, policy in enumerate(policies):
            policy.save(output / f"{agent}-{seed}.safetensors")
    settings = {
        "gamma": gamma,
        "episodes": episodes,
        "seeds": seeds,
        "trials": trials,
        "covering": covering,
    }
    result = {"settings": settings, **study.summary()}
    write_json(output / "result.json", result)
    draw_curves(study.curves, output / "training.png")
    if as_json:
        print_json(result)
        return
    _show(study, seeds, trials)
    console.print(f"{time.perf_counter() - began:.0f} s; policies, result.json and training.png in {output}")


def _show(study: Study, seeds: int, trials: int) -> None:
    from certus.mdp.study import PAPER

    nominal, robust, gains = study.means("nominal"), study.means("robust"), study.gains()
    shown = table("system", "nominal", "robust", "gain [95%]", "paper nominal", "paper robust")
    for name, (before, after) in PAPER.items():
        gain = gains[name]
        between = f" [{gain.low:.0f}, {gain.high:.0f}]" if seeds > 1 else ""
        cells = [_pair(means[name].mean, means[name].error) for means in (nominal, robust)]
        shown.add_row(name, *cells, f"{gain.mean:+.0f}{between}", _pair(*before), _pair(*after))
    console.print(shown)
    console.print(
        f"Episode length, at most 400: mean ± standard error over {seeds} seeds of {trials} trials each; "
        "the paper's over 1,000 trials. The gain is paired by seed. All estimated."
    )
    longer = study.learning_gain().mean
    console.print(f"In training, on the original system, robust episodes are {longer:+.1f} steps longer.")


def _pair(mean: float, error: float) -> str:
    return f"{mean:.1f} ± {error:.1f}" if math.isfinite(error) else f"{mean:.1f}"
