"""What ``certus cartpole`` does: agents are trained, tried on the paper's seven systems, and compared."""

from __future__ import annotations

import math
import re
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from certus.cli.output import console, messages, print_json, require_folder
from certus.figures.canvas import new_figure
from certus.mdp.pictures import draw_curves
from certus.mdp.study import PAPER, PENALTIES, Study, compare_agents
from certus.mdp.tabular import Landing
from certus.runs.owners import STUDY, require_folder_of
from certus.storage.together import appearing_together, complete, remove_files
from certus.storage.writing import write_json
from certus.texts.plain_text import make_table

_RESULT = "result.json"


def carry_out_study(
    gamma: float | None,
    episodes: int,
    seeds: int,
    trials: int,
    output: Path,
    *,
    covering: bool,
    locking: bool,
    as_json: bool,
) -> None:
    """Train and try the agents, write what they are and do, and show it."""
    # Whatever would fail at the end is tried before the training.
    require_folder("--output", output)
    require_folder_of(STUDY, "--output", output)
    new_figure(1, 1)
    output.mkdir(parents=True, exist_ok=True)
    complete(output, _RESULT, locking=locking)
    landing = Landing.COVER if covering else Landing.ROUND
    gamma = PENALTIES[landing] if gamma is None else gamma
    began = time.perf_counter()
    with _warnings_as_messages():
        study = compare_agents(
            gamma,
            seeds=seeds,
            episodes=episodes,
            trials=trials,
            landing=landing,
            progress=messages.print,
        )
    settings = {
        "gamma": gamma,
        "episodes": episodes,
        "seeds": seeds,
        "trials": trials,
        "covering": covering,
    }
    result = {"settings": settings, **study.summary()}
    require_folder_of(STUDY, "--output", output)  # it may have become another's meanwhile
    with appearing_together(output, _RESULT, locking=locking) as new:
        for agent, policies in study.policies.items():
            for seed, policy in enumerate(policies):
                policy.save(new / f"{agent}-{seed}.safetensors")
        draw_curves(study.curves, new / "training.png")
        write_json(new / _RESULT, result)
    remove_files(output, _policies_beyond(output, seeds))
    if as_json:
        print_json(result)
        return
    _show(study, seeds, trials)
    console.print(f"{time.perf_counter() - began:.0f} s; policies, result.json and training.png in {output}")


@contextmanager
def _warnings_as_messages() -> Iterator[None]:
    """Each warning as one line on stderr, at once, and once."""
    said: set[str] = set()

    def show(message: Warning | str, *also: object, **more: object) -> None:
        if str(message) not in said:
            said.add(str(message))
            messages.print(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield


def _policies_beyond(folder: Path, seeds: int) -> list[str]:
    """Those of an earlier study with more seeds."""
    found = [re.fullmatch(r"(?:nominal|robust)-(\d+)\.safetensors", path.name) for path in folder.iterdir()]
    return [policy.string for policy in found if policy is not None and int(policy[1]) >= seeds]


def _show(study: Study, seeds: int, trials: int) -> None:
    nominal, robust, gains = study.means("nominal"), study.means("robust"), study.gains()
    shown = make_table("system", "nominal", "robust", "gain [95%]", "paper nominal", "paper robust")
    for name, (before, after) in PAPER.items():
        gain = gains[name]
        between = f" [{gain.low:z.0f}, {gain.high:z.0f}]" if seeds > 1 else ""
        cells = [_pair(means[name].mean, means[name].error) for means in (nominal, robust)]
        shown.add_row(name, *cells, f"{gain.mean:+z.0f}{between}", _pair(*before), _pair(*after))
    console.print(shown)
    console.print(
        f"Episode length, at most 400: mean ± standard error over {_count(seeds, 'seed')} of "
        f"{_count(trials, 'trial')} each; the paper's over 1,000 trials. "
        "The gain is paired by seed. All estimated."
    )
    for agent in ("nominal", "robust"):
        share = study.share_run_off(agent)
        if math.isfinite(share):
            console.print(
                f"Of the early ends of {agent} agents {share:.0%} are carts that ran off the track."
            )
    longer = study.learning_gain().mean
    console.print(
        f"In training, on the original system, robust episodes are {abs(longer):.1f} steps "
        f"{'longer' if longer >= 0 else 'shorter'}."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _pair(mean: float, error: float) -> str:
    return f"{mean:.1f} ± {error:.1f}" if math.isfinite(error) else f"{mean:.1f}"
