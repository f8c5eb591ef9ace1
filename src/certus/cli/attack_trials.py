"""What ``certus attack`` and ``certus compare`` do alike: from their options to trials, and the attacks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from certus._names import NORMS, PAPER_NAMES
from certus._progress import counting
from certus.attacks.evaluate import (
    ATTACK_OPTIONS,
    ATTACKS,
    Outcome,
    Trial,
    fair_epsilon,
    sweep,
    typical_length,
)
from certus.cli.attack_options import AttackOptions
from certus.cli.epsilon import read_epsilon, read_norm
from certus.cli.idle import of_others
from certus.cli.output import (
    messages,
    require_file,
    require_picture,
    require_two,
)
from certus.data import Samples, Subset
from certus.errors import require
from certus.runs.loaded_run import TrainedRun, own_rho


def check_places(asked: AttackOptions) -> None:
    """Refuse what could not be written at the end, before anything is attacked."""
    if asked.output is not None:
        require_file("--output", asked.output)
    if asked.plot is not None:
        require_picture("--plot", asked.plot)
    require_two(asked.output, asked.plot)


def idle_in_attacks(asked: AttackOptions) -> dict[str, str | None]:
    """What idles for the chosen attacks: options that none of them takes."""
    chosen = _chosen(asked)
    idle = of_others(chosen, ATTACK_OPTIONS | {"relative": ATTACK_OPTIONS["epsilon"]})
    if not asked.epsilon:
        idle.setdefault("relative", "without --epsilon: the default is in units of the inputs")
    if asked.epsilon and all(text.startswith("from:") for text in asked.epsilon):
        idle["relative"] = "where epsilon comes from a run, in units of the inputs"
    if "pgd" not in chosen and asked.samples is None:
        idle["seed"] = f"for {', '.join(chosen)} without --samples: nothing is random"
    return idle


def _chosen(asked: AttackOptions) -> list[str]:
    chosen = list(dict.fromkeys(PAPER_NAMES.get(name, name) for name in asked.attacks or ["pgd"]))
    for name in chosen:
        require(name in ATTACKS, "attack", f"be one of {', '.join(ATTACKS)}", repr(name))
    return chosen


def some_samples(trained: TrainedRun, asked: AttackOptions) -> Subset:
    """A plain random subset of the test data: intervals for the population take samples to be independent."""
    count, name = asked.samples, f"{trained.data.name}@test"
    require(count is None or count >= 2, "samples", "be at least 2, for intervals", count)
    return Subset.of(trained.data.test, name, count, seed=asked.seed, stratify=False)


def make_trials(trained: TrainedRun, asked: AttackOptions, *, models: Sequence[str]) -> list[Trial]:
    """Every attack at every strength that it takes."""
    chosen = _chosen(asked)
    if not asked.epsilon and any(name in ATTACK_OPTIONS["epsilon"] for name in chosen):
        asked = _with_own_epsilon(trained, asked)
    require(bool(asked.gamma) or "wrm" not in chosen, "gamma", "be given for wrm", "none")
    budgets = sorted(set(_budgets(trained, asked, models)))
    penalties = sorted(set(asked.gamma or []), reverse=True)
    trials = []
    for name in chosen:
        if name == "wrm":
            trials += [Trial(name, None, None, gamma=value, clipped=asked.clip) for value in penalties]
            continue
        options: dict[str, Any] = {"steps": 1} if name == "fgsm" else {"step_size": asked.step_size}
        if name != "fgsm" and asked.steps is not None:
            options["steps"] = asked.steps
        if name == "pgd" and asked.restarts is not None:
            options["restarts"] = asked.restarts
        norm = read_norm(asked.norm or "inf")
        trials += [Trial(name, norm, value, **options, clipped=asked.clip) for value in budgets]
    return trials


def _with_own_epsilon(trained: TrainedRun, asked: AttackOptions) -> AttackOptions:
    """As far as the run was trained for, announced: its ε, or √ρ in the norm of its cost; in other norms, as
    far as its wrm moves. Raises ``ArgumentError`` for a run that has neither."""
    settings, run = trained.settings, trained.run
    ball = trained.cost.attack_ball(trained.domain)
    own_norm = settings.norm or next((text for text, p in NORMS.items() if ball.own and p == ball.p), "2")
    norm, known = asked.norm or own_norm, own_rho(run)
    if settings.epsilon is not None and norm == own_norm:
        epsilon, origin = settings.epsilon, "as far as its training moved each sample"
    elif known is not None and ball.own and read_norm(norm) == ball.p:
        epsilon, origin = math.sqrt(known[0]), f"the root of {known[0]:.4g}, {known[1]}"
    else:
        rule = f"be given for {run.path}, which has none of its own in the norm {norm}"
        require(trained.gamma is not None, "--epsilon", rule, "none")
        epsilon = fair_epsilon(trained.wrm, trained.loss, trained.data.train, read_norm(norm))
        origin = "the root mean square move of its training data by its wrm (estimated)"
    messages.print(
        f"No --epsilon given: each sample moves by at most epsilon = {epsilon:.4g} in the norm {norm}, by "
        f"default: {origin}."
    )
    return replace(asked, norm=norm, epsilon=[repr(epsilon)])


def _budgets(trained: TrainedRun, asked: AttackOptions, models: Sequence[str]) -> list[float]:
    """Every ε, in units of the inputs."""
    norm, settings = asked.norm or "inf", trained.settings
    unit = typical_length(trained.data.train, read_norm(norm)) if asked.relative else 1.0
    return [
        read_epsilon(text, norm, settings.data, settings.standardize, models)
        * (1 if text.startswith("from:") else unit)
        for text in asked.epsilon or []
    ]


def run_attacks(
    trained: TrainedRun, data: Samples, trials: list[Trial], seed: int
) -> list[tuple[Trial, Outcome]]:
    with counting(messages, f"attacking {trained.run.path}", len(data) * len(trials)) as advance:
        return sweep(
            trained.loss,
            data,
            trials,
            domain=trained.data.domain,
            cost=trained.cost,
            seed=seed,
            progress=advance,
        )
