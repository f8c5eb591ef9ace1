"""Attacks of ``certus attack`` and ``certus compare``: budgets, trials, and tables of results."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from certus._names import NORMS
from certus._progress import counting_bar
from certus.attacks.evaluation import (
    ATTACK_OPTIONS,
    WORST,
    Evaluation,
    Trial,
    as_row,
    fair_epsilon,
    sweep,
    typical_length,
)
from certus.cli.options import AttackOptions, unused_by_methods
from certus.cli.output import (
    console,
    messages,
    print_json,
    print_table,
    require_file,
    require_picture,
    same_place,
)
from certus.cli.table_files import as_csv, as_latex, flat_rows
from certus.costs import Cost
from certus.data import Samples, Subset
from certus.display.canvas import save_figure
from certus.display.figures import Curve, Panel, sweep_figure
from certus.display.text import number
from certus.domains import Domain, Unbounded
from certus.errors import ArgumentError, require
from certus.evidence import Evidence
from certus.runs.directory import RunDirectory
from certus.runs.factory import own_model, read_settings
from certus.runs.files import serialize
from certus.runs.loaded_run import LoadedRun, open_run, recorded_rho_hat, training_rho
from certus.storage.write import write_atomically, write_json


def read_epsilon(text: str, norm: str, data: str, standardize: bool, models: Sequence[str] = ()) -> float:
    """Return ε from a number, or from how far the WRM of a run moves its training data (eqn:fgm-fair).

    Args:
        data, standardize: what will be moved; a budget of other data would be in other units.
        models: among them the FILE.py:FACTORY of the run, if it has one.
    """
    if not text.startswith("from:"):
        try:
            return float(text)
        except ValueError:
            raise ArgumentError(f"`epsilon` must be a number, or from:RUN; got {text!r}.") from None
    require(text != "from:", "epsilon", "name a run after from:", repr(text))
    run = RunDirectory.open(Path(text.removeprefix("from:")))
    settings = read_settings(run)
    same = (settings.data, settings.standardize) == (data, standardize)
    scaled = "" if settings.data != data else ", scaled otherwise"
    rule = f"come from a run on the same data, {data}"
    require(same, "epsilon", rule, f"{text}, which is on {settings.data}{scaled}")
    rho_hat = recorded_rho_hat(run, NORMS[norm])
    if rho_hat is not None:
        epsilon = math.sqrt(rho_hat)
    else:
        trained = open_run(run, model=own_model(run, models))
        count = len(trained.data.train)
        messages.print(f"Measuring how far {trained.run.path} moves its {count} training samples.")
        epsilon = fair_epsilon(trained.wrm, trained.loss, trained.data.train, NORMS[norm])
    messages.print(
        f"epsilon = {epsilon:.4g} in the norm {norm}: the root mean square distance by which that run's wrm "
        "moves its training data (estimated)."
    )
    return epsilon


def check_places(options: AttackOptions) -> None:
    """Raise ``ArgumentError`` for a file that could not be written at the end."""
    output, plot = options.output, options.plot
    if output is not None:
        require_file("--output", output)
    if plot is not None:
        require_picture("--plot", plot)
        apart = output is None or not same_place(output, plot)
        require(apart, "--plot", "be another file than --output", plot)


def unused_in_attacks(options: AttackOptions) -> dict[str, str | None]:
    """Return the options that none of the chosen attacks takes."""
    chosen = _chosen(options)
    unused = unused_by_methods(chosen, ATTACK_OPTIONS | {"relative": ATTACK_OPTIONS["epsilon"]})
    if not options.epsilon:
        unused.setdefault("relative", "without --epsilon: the default is in units of the inputs")
    if options.epsilon and all(text.startswith("from:") for text in options.epsilon):
        unused["relative"] = "where epsilon comes from a run, in units of the inputs"
    if "pgd" not in chosen and options.samples is None:
        unused["seed"] = f"for {', '.join(chosen)} without --samples: nothing is random"
    return unused


def _chosen(options: AttackOptions) -> list[str]:
    return list(dict.fromkeys(options.attacks or ["pgd"]))


def choose_samples(trained: LoadedRun, options: AttackOptions) -> Subset:
    """Return a simple random subset of the test data: intervals assume independent samples."""
    count, name = options.samples, f"{trained.data.name}@test"
    require(count is None or count >= 2, "samples", "be at least 2, for intervals", count)
    return Subset.of(trained.data.test, name, count, seed=options.seed, stratify=False)


def make_trials(trained: LoadedRun, options: AttackOptions, *, models: Sequence[str]) -> list[Trial]:
    """Return every attack at every strength that it takes."""
    chosen, norm, message = _chosen(options), options.norm or "inf", ""
    require(bool(options.gamma) or "wrm" not in chosen, "gamma", "be given for wrm", "none")
    budgets, settings = [], trained.settings
    unit = typical_length(trained.data.train, NORMS[norm]) if options.relative else 1.0
    for text in options.epsilon:
        epsilon = read_epsilon(text, norm, settings.data, settings.standardize, models)
        budgets.append(epsilon if text.startswith("from:") else epsilon * unit)
    if not options.epsilon and any(name in ATTACK_OPTIONS["epsilon"] for name in chosen):
        norm, epsilon, message = _default_budget(trained, options.norm)
        budgets = [epsilon]
    trials = []
    for name in chosen:
        if name == "wrm":
            penalties = sorted(set(options.gamma), reverse=True)
            trials += [Trial(name, None, None, gamma=value, clipped=options.clip) for value in penalties]
            continue
        keywords: dict[str, Any] = {"steps": 1} if name == "fgsm" else {"step_size": options.step_size}
        if name != "fgsm" and options.steps is not None:
            keywords["steps"] = options.steps
        if name == "pgd" and options.restarts is not None:
            keywords["restarts"] = options.restarts
        trials += [
            Trial(name, NORMS[norm], value, **keywords, clipped=options.clip)
            for value in sorted(set(budgets))
        ]
    if message:
        messages.print(message)
    return trials


def _default_budget(trained: LoadedRun, typed_norm: str | None) -> tuple[str, float, str]:
    """Return norm and ε that the run was trained for, and a message about them.

    They are its ε, or √ρ in the norm of its cost; in other norms, as far as its wrm moves. Raises
    ``ArgumentError`` for a run that has neither.
    """
    settings, run, rho = trained.settings, trained.run, training_rho(trained.run)
    ball = trained.cost.attack_ball(trained.domain)
    own_norm = settings.norm or next((text for text, p in NORMS.items() if ball.own and p == ball.p), "2")
    norm = typed_norm or own_norm
    if settings.epsilon is not None and norm == own_norm:
        epsilon, origin = settings.epsilon, "as far as its training moved each sample"
    elif rho is not None and ball.own and NORMS[norm] == ball.p:
        epsilon, origin = math.sqrt(rho[0]), f"the root of {rho[0]:.4g}, {rho[1]}"
    else:
        rule = f"be given for {run.path}, which has none of its own in the norm {norm}"
        require(trained.gamma is not None, "--epsilon", rule, "none")
        epsilon = fair_epsilon(trained.wrm, trained.loss, trained.data.train, NORMS[norm])
        origin = "the root mean square move of its training data by its wrm (estimated)"
    words = f"each sample moves by at most epsilon = {epsilon:.4g} in the norm {norm}, by default: {origin}."
    return norm, epsilon, f"No --epsilon given: {words}"


def run_attacks(
    trained: LoadedRun, data: Samples, trials: list[Trial], seed: int
) -> list[tuple[Trial, Evaluation]]:
    with counting_bar(messages, f"attacking {trained.run.path}", len(data) * len(trials)) as advance:
        return sweep(
            trained.loss,
            data,
            trials,
            domain=trained.data.domain,
            cost=trained.cost,
            seed=seed,
            progress=advance,
        )


def show_results(
    options: AttackOptions,
    outcomes: dict[str, list[tuple[Trial, Evaluation]]],
    content: dict[str, Any],
    samples: Subset,
    domain: Domain,
    last: str,
    *,
    as_json: bool,
) -> None:
    """Write, draw and print the results of attacks.

    Args:
        outcomes: run → its trials; content: the JSON of all of them, with its ``rows``.
        last: the end of the text under the table.
    """
    rows = content["rows"]
    caption = f"{samples.words}; {_common_settings(rows, domain)}"
    try:
        save_result(options.output, content)
        if options.plot is not None:
            _draw(outcomes, options.plot, f"{caption}; 95% intervals", content["units"])
    finally:  # shown even if it cannot be written
        if as_json:
            print_json(content)
        else:
            _print_columns(_columns(rows))
            others = [row for row in rows if row.get("minus_first") is not None]
            if others:
                _print_columns(_distinguishing(rows, others) | _differences(others))
            console.print(f"{caption}. {last}{frozen_words(samples.data)}")


def save_result(output: Path | None, content: dict[str, Any]) -> None:
    """Write the rows as LaTeX or CSV, or all of it as JSON, by the suffix of the file, if one was named."""
    if output is None:
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    suffix = output.suffix.lower()
    if suffix == ".tex":
        write_atomically(output, as_latex(_columns(content["rows"]) | _differences(content["rows"])).encode())
    elif suffix == ".csv":
        write_atomically(output, as_csv(flat_rows(content["rows"])).encode())
    else:
        write_json(output, content)


def make_rows(outcomes: list[tuple[Trial, Evaluation]], cost: Cost) -> list[dict[str, Any]]:
    """Return one row for each trial, with the cost that wrm pays."""
    return [
        {**as_row(trial, outcome), "cost": serialize(cost) if trial.attack == "wrm" else None}
        for trial, outcome in outcomes
    ]


def describe(trained: LoadedRun, samples: Subset, seed: int) -> dict[str, Any]:
    """Return the content that all rows of a file share."""
    return {
        "data": trained.data.name,
        "units": trained.data.units,
        "samples": len(samples.data),
        "chosen": samples.words,
        "domain": serialize(trained.data.domain),
        "seed": seed,
        "evidence": Evidence.ATTAINED,
    }


def frozen_words(data: Samples) -> str:
    """Return a sentence about the columns of a table that attacks leave alone; empty if there are none."""
    if data.encoding is None or data.encoding.plain:
        return ""
    return " Numbers without gaps move alone: categories, gaps and dates stay as they are."


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the columns that distinguish the rows, and those of the measurements."""
    labelled = rows[0]["error"] is not None
    columns = _distinguishing(rows)
    for name in ("error", "loss") if labelled else ("loss",):
        digits = ".3f" if name == "error" else ".3g"
        columns[name] = [f"{row[name]['value']:{digits}}" for row in rows]
        if name == "error" or not labelled:
            columns["95%"] = [f"{row[name]['low']:{digits}}–{row[name]['high']:{digits}}" for row in rows]
    columns["mean squared L2 move"] = [f"{row['rho_test']:.3g}" for row in rows]
    return columns


def _differences(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the differences to the first run, a dash for the first run itself; empty for a single run."""
    gaps = [row.get("minus_first") for row in rows]
    of = next((gap["of"] for gap in gaps if gap is not None), None)
    if of is None:
        return {}
    values = ["–" if gap is None else f"{gap['value']:+.3f}" for gap in gaps]
    intervals = ["–" if gap is None else f"{gap['low']:+.3f} to {gap['high']:+.3f}" for gap in gaps]
    return {f"{of} minus first": values, "95% of the difference": intervals}


def _distinguishing(
    rows: list[dict[str, Any]], selected: list[dict[str, Any]] | None = None
) -> dict[str, list[str]]:
    """Return the columns in which the rows differ, for all or for selected rows."""
    columns = {
        name: [number(row[name]) for row in selected or rows]
        for name in ("attack", "norm", "epsilon", "gamma")
        if len({row[name] for row in rows}) > 1
    }
    return ({"run": [row["run"] for row in selected or rows]} if "run" in rows[0] else {}) | columns


def _print_columns(columns: dict[str, list[str]]) -> None:
    print_table(list(columns), zip(*columns.values(), strict=True))


def _draw(results: dict[str, list[tuple[Trial, Evaluation]]], path: Path, title: str, units: str) -> None:
    """Draw one panel for each attack, with a line for each run; of a single run, a line for each attack.

    Of wrm, a second panel shows ρ̂_test against γ (fig:mnist2).
    """
    lines: dict[str, dict[str, list[tuple[Trial, Evaluation]]]] = {}
    single = len(results) == 1
    for name, outcomes in results.items():
        for trial, outcome in outcomes:
            kind = "wrm" if trial.attack == "wrm" else f"norm {trial.norm:g}"
            panel = kind if single or kind == "wrm" else f"{trial.attack}, {kind}"
            line = trial.attack if single else name
            lines.setdefault(panel, {}).setdefault(line, []).append((trial, outcome))
    panels = []
    for panel, entries in lines.items():
        errors, distances, labelled = {}, {}, False
        for line, pairs in entries.items():
            pairs.sort(key=lambda pair: pair[0].strength)
            strengths, evaluations = [trial.strength for trial, _ in pairs], [each for _, each in pairs]
            labelled = evaluations[0].errors is not None
            errors[line] = Curve.of(strengths, [each.error or each.loss for each in evaluations])
            moves = [each.rho_test for each in evaluations]
            distances[line] = Curve(strengths, moves, moves, moves)
        quantity = "error rate under attack" if labelled else "mean loss under attack"
        if panel == "wrm":
            strength = "γ of the attack: less is stronger"
            panels.append(Panel(panel, strength, quantity, errors, towards=-1))
            panels.append(Panel(panel, strength, "ρ̂_test, mean squared distance", distances, towards=-1))
        else:
            panels.append(Panel(panel, f"inputs move by at most ε ({units})", quantity, errors, towards=1))
    save_figure(sweep_figure(panels, title), path)
    messages.print(f"Drawn into {path}")


def _common_settings(rows: list[dict[str, Any]], domain: Domain) -> str:
    """Return the settings that are the same in every row, which the table leaves out."""
    parts = [", ".join(dict.fromkeys(row["attack"] for row in rows if row["attack"] != WORST))]
    for name in ("norm", "epsilon", "gamma", "steps", "step_size", "restarts"):
        values = {row[name] for row in rows} - {None}
        if len(values) == 1 and (name, *values) != ("restarts", 1):
            parts.append(f"{name.replace('_', ' ')} {number(*values)}")
    costs = [row["cost"]["type"] for row in rows if row["cost"] is not None]
    parts += [f"cost {costs[0]}"] if costs else []
    return ", ".join([*parts, clipping(rows[0]["clipped"], domain)])


def clipping(clipped: bool, domain: Domain) -> str:
    """Return words about the set that perturbed inputs were kept in."""
    if not clipped:
        return "not clipped"
    unbounded = isinstance(domain, Unbounded)
    return "not clipped, since the data have no bounds" if unbounded else "clipped to the data's domain"


def open_comparable(runs: Sequence[Path], models: Sequence[str], run_data: str | None) -> list[LoadedRun]:
    """Open runs that have the same test samples, scaled alike.

    Raises:
        ArgumentError: for a run that is named twice, for different samples, or for a model file of no run.
    """
    names = ", ".join(map(str, runs))
    different = len({os.path.realpath(path) for path in runs}) == len(runs)
    require(different, "runs", "be named once each", names)
    folders = [RunDirectory.open(path, data=run_data) for path in runs]
    own = [own_model(folder, models) for folder in folders]
    unused = [text for text in models if text not in own]
    require(not unused, "--model", f"be of one of the runs {names}", ", ".join(unused))
    samples, words = set(), []
    for run in folders:
        settings, rows = read_settings(run), run.rows["test"].tolist()
        samples.add((run.record.data_sha256, tuple(rows)))
        words.append(f"{run.path} with {len(rows)} samples of {settings.data}, split by seed {settings.seed}")
    require(len(samples) == 1, "runs", "have the same test samples, to be compared", "; ".join(words))
    opened = [open_run(folder, model=model) for folder, model in zip(folders, own, strict=True)]
    for other in opened[1:]:
        same = torch.equal(other.data.test.inputs, opened[0].data.test.inputs)
        rule = f"have inputs scaled as those of {runs[0]}"
        require(same, "runs", rule, f"{other.run.path}, which scales otherwise")
    return opened
