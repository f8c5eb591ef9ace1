"""What ``certus attack`` and ``certus compare`` share: trials, tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from certus.attacks.budgets import typical_length
from certus.attacks.outcomes import Outcome
from certus.attacks.sweeps import ATTACK_OPTIONS, ATTACKS, WORST, Trial, as_row, sweep
from certus.cli.epsilon import read_epsilon, read_norm
from certus.cli.idle import of_others
from certus.cli.output import (
    console,
    make_table,
    messages,
    number,
    require_file,
    require_picture,
    require_two,
)
from certus.cli.progress import counting
from certus.costs import Cost
from certus.domains import Domain, Unbounded
from certus.errors import require
from certus.evidence import Evidence
from certus.figures.attack_curves import Curve, Panel, draw_sweeps
from certus.runs.tags import to_tag
from certus.runs.trained import TrainedRun
from certus.split import Split
from certus.storage.writing import write_json
from certus.subsets import Subset

_WORDS = {
    "norm": "norm {}",
    "epsilon": "epsilon {}",
    "gamma": "gamma {}",
    "steps": "steps {}",
    "step_size": "step size {}",
    "restarts": "random starts {}",
}


def check_places(output: Path | None, plot: Path | None) -> None:
    """Refuse what could not be written at the end, before anything is attacked."""
    if output is not None:
        require_file("--output", output)
    if plot is not None:
        require_picture("--plot", plot)
    require_two(output, plot)


def save_result(output: Path | None, content: object) -> None:
    """Write the rows, if a file was named."""
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_json(output, content)


def idle_in_attacks(
    attacks: list[str] | None, epsilon: list[str] | None, samples: int | None
) -> dict[str, str | None]:
    """What idles for the chosen attacks: options that none of them takes."""
    chosen = _chosen(attacks)
    idle = of_others(chosen, ATTACK_OPTIONS | {"relative": ATTACK_OPTIONS["epsilon"]})
    if epsilon and all(text.startswith("from:") for text in epsilon):
        idle["relative"] = "where epsilon comes from a run, in units of the inputs"
    if "pgm" not in chosen and samples is None:
        idle["seed"] = f"for {', '.join(chosen)} without --samples: nothing is random"
    return idle


def _chosen(attacks: list[str] | None) -> list[str]:
    chosen = list(dict.fromkeys(attacks or ["pgm"]))
    for name in chosen:
        require(name in ATTACKS, "attack", f"be one of {', '.join(ATTACKS)}", repr(name))
    return chosen


def some_samples(trained: TrainedRun, samples: int | None, seed: int) -> Subset:
    """A plain random subset of the test data: intervals for the population take samples to be independent."""
    require(samples is None or samples >= 2, "samples", "be at least 2, for intervals", samples)
    return Subset.of(trained.data.test, f"{trained.data.name}@test", samples, seed=seed, stratify=False)


def make_trials(
    trained: TrainedRun,
    *,
    attacks: list[str] | None,
    norm: str | None,
    epsilon: list[str] | None,
    gamma: list[float] | None,
    relative: bool,
    steps: int | None,
    step_size: float | None,
    restarts: int | None,
    clip: bool,
    models: Sequence[str],
) -> list[Trial]:
    """Every attack at every strength that it takes."""
    chosen = _chosen(attacks)
    for option, needed in (("gamma", gamma), ("epsilon", epsilon)):
        named = [name for name in chosen if name in ATTACK_OPTIONS[option]]
        require(bool(needed) or not named, option, f"be given for {', '.join(named)}", "none")
    budgets = sorted(set(_budgets(trained, epsilon or [], norm or "inf", relative, models)))
    penalties = sorted(set(gamma or []), reverse=True)
    trials = []
    for name in chosen:
        if name == "wrm":
            trials += [Trial(name, None, None, gamma=value, clipped=clip) for value in penalties]
            continue
        options: dict[str, Any] = {"steps": 1} if name == "fgm" else {"step_size": step_size}
        if name != "fgm" and steps is not None:
            options["steps"] = steps
        if name == "pgm" and restarts is not None:
            options["restarts"] = restarts
        trials += [Trial(name, read_norm(norm or "inf"), value, **options, clipped=clip) for value in budgets]
    return trials


def _budgets(
    trained: TrainedRun, epsilon: list[str], norm: str, relative: bool, models: Sequence[str]
) -> list[float]:
    """Every ε, in units of the inputs."""
    numbers = [text for text in epsilon if not text.startswith("from:")]
    unit = typical_length(trained.data.train, read_norm(norm)) if relative else 1.0
    settings = trained.settings
    return [
        read_epsilon(text, norm, settings.data, settings.standardize, models)
        * (unit if text in numbers else 1)
        for text in epsilon
    ]


def make_rows(done: list[tuple[Trial, Outcome]], cost: Cost) -> list[dict[str, Any]]:
    """Rows with all that decides them: wrm pays a cost, too."""
    return [
        {**as_row(trial, outcome), "cost": to_tag(cost) if trial.attack == "wrm" else None}
        for trial, outcome in done
    ]


def describe(trained: TrainedRun, samples: Subset, seed: int) -> dict[str, Any]:
    """What every row of a file shares."""
    return {
        "data": trained.data.name,
        "samples": len(samples.data),
        "chosen": samples.words,
        "domain": to_tag(trained.data.domain),
        "seed": seed,
        "evidence": Evidence.ATTAINED,
    }


def run_attacks(
    trained: TrainedRun, data: Split, trials: list[Trial], seed: int
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


def print_rows(rows: list[dict[str, Any]]) -> None:
    """A table of results; what is the same in every row, or absent, is left out."""
    labelled = rows[0]["error"] is not None
    columns: dict[str, list[str]] = {"run": [row["run"] for row in rows]} if "run" in rows[0] else {}
    columns["attack"] = [row["attack"] for row in rows]
    columns["norm"] = [row["norm"] or "–" for row in rows]
    columns["epsilon"] = [number(row["epsilon"]) for row in rows]
    columns["gamma"] = [number(row["gamma"]) for row in rows]
    columns = {name: cells for name, cells in columns.items() if name == "run" or len(set(cells)) > 1}
    for name in ("error", "loss") if labelled else ("loss",):
        digits = ".3f" if name == "error" else ".3g"
        columns[name] = [f"{row[name]['value']:{digits}}" for row in rows]
        if name == "error" or not labelled:
            columns["95%"] = [f"{row[name]['low']:{digits}}–{row[name]['high']:{digits}}" for row in rows]
    columns["rho_test"] = [f"{row['rho_test']:.3g}" for row in rows]
    if "run" in rows[0]:
        columns["minus first, 95%"] = [_difference(row["minus_first"]) for row in rows]
    shown = make_table(*columns)
    for cells in zip(*columns.values(), strict=True):
        shown.add_row(*cells)
    console.print(shown)


def _difference(gap: dict[str, Any] | None) -> str:
    return "" if gap is None else f"{gap['value']:+.3f} ({gap['low']:+.3f} to {gap['high']:+.3f})"


def draw(results: dict[str, list[tuple[Trial, Outcome]]], path: Path, title: str) -> None:
    """One panel for each attack, one line for each run; of a single run, one line for each attack."""
    kinds: dict[str, list[tuple[str, Trial, Outcome]]] = {}
    for name, done in results.items():
        for trial, outcome in done:
            kind = "wrm" if trial.attack == "wrm" else f"norm {trial.norm:g}"
            panel = kind if len(results) == 1 or trial.attack == "wrm" else f"{trial.attack}, {kind}"
            kinds.setdefault(panel, []).append((trial.attack if len(results) == 1 else name, trial, outcome))
    panels = []
    for panel, entries in kinds.items():
        curves = {}
        for line in dict.fromkeys(label for label, _, _ in entries):
            mine = sorted(
                ((trial.strength, outcome) for label, trial, outcome in entries if label == line),
                key=lambda pair: pair[0],
            )
            intervals = [outcome.error() or outcome.mean_loss() for _, outcome in mine]
            curves[line] = Curve(
                [strength for strength, _ in mine],
                [one.value for one in intervals],
                [one.low for one in intervals],
                [one.high for one in intervals],
            )
        labelled = entries[0][2].wrong is not None
        strength = "gamma of the attack" if "wrm" in panel else "epsilon"
        panels.append(Panel(panel, strength, "error" if labelled else "mean loss", curves))
    draw_sweeps(panels, path, title)
    messages.print(f"Drawn into {path}")


def where(rows: list[dict[str, Any]], domain: Domain) -> str:
    """What the table leaves out, since it is the same in every row, in words."""
    said = [", ".join(dict.fromkeys(row["attack"] for row in rows if row["attack"] != WORST))]
    for name, words in _WORDS.items():
        values = {row[name] for row in rows} - {None}
        if len(values) == 1 and (name, *values) != ("restarts", 1):
            said.append(words.format(number(*values)))
    costs = [row["cost"]["type"] for row in rows if row["cost"] is not None]
    said += [f"cost {costs[0]}"] if costs else []
    return ", ".join([*said, clipping(rows[0]["clipped"], domain)])


def clipping(clipped: bool, domain: Domain) -> str:
    """Where moved inputs were kept."""
    if not clipped:
        return "not clipped"
    unbounded = isinstance(domain, Unbounded)
    return "not clipped, since the data have no bounds" if unbounded else "clipped to the data's domain"
