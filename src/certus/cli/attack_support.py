"""Attacks of ``certus attack`` and ``certus compare``: budgets, trials, and tables of results."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from certus._names import ATTACK_OPTIONS, NORMS
from certus._progress import counting_bar
from certus.attacks import evaluation
from certus.attacks.evaluation import WORST, Evaluation, Trial
from certus.attacks.minimum_norm import largest_penalty, minimum_norm_attack
from certus.cli import output as out
from certus.cli.options import AttackOptions, refuse_unused, unused_by_data
from certus.cli.output import console, messages
from certus.costs.masked import masked_to
from certus.data import Samples, Subset
from certus.display.canvas import save_figure
from certus.display.figures import Curve, Panel, sweep_figure
from certus.display.text import make_table, number
from certus.domains import Domain, Unbounded
from certus.errors import ArgumentError, require, require_count
from certus.kernel.evidence import Evidence
from certus.runs.directory import RunDirectory
from certus.runs.factory import own_model, read_settings
from certus.runs.loaded_run import LoadedRun, open_run, recorded_rho_hat, training_rho
from certus.runs.serialization import serialize
from certus.storage.files import plain_json
from certus.storage.write import write_atomically, write_json


def epsilon_from(text: str, norm: str, data: str, standardize: bool, models: Sequence[str] = ()) -> float:
    """Return the ε of from:RUN: the distance by which the WRM of a run on the same data moves them
    (eqn:fgm-fair); ``models`` are candidates for the FILE.py:FACTORY of that run."""
    require(text != "from:", "epsilon", "name a run after from:", repr(text))
    run = RunDirectory.open(Path(text.removeprefix("from:")))
    settings = read_settings(run)
    same = (settings.data, settings.standardize) == (data, standardize)
    scaled = "" if settings.data != data else ", scaled differently"
    rule = f"come from a run on the same data, {data}"
    require(same, "epsilon", rule, f"{text}, which is on {settings.data}{scaled}")
    rho_hat = recorded_rho_hat(run, NORMS[norm])
    if rho_hat is not None:
        epsilon = math.sqrt(rho_hat)
    else:
        trained = open_run(run, model=own_model(run, models))
        count = len(trained.data.train)
        messages.print(f"Measuring how far {trained.run.path} moves its {count} training samples.")
        epsilon = evaluation.fair_epsilon(trained.wrm, trained.loss, trained.data.train, NORMS[norm])
    messages.print(
        f"epsilon = {epsilon:.4g} in the norm {norm}: the root mean square distance by which that run's wrm "
        "moves its training data (estimated)."
    )
    return epsilon


def _choose_samples(trained: LoadedRun, options: AttackOptions) -> tuple[Subset, dict[str, Any]]:
    """Return a simple random subset of the test data, as intervals assume, and its description as JSON."""
    count, data = options.samples, trained.data
    require(count is None or count >= 2, "samples", "be at least 2, for intervals", count)
    refuse_unused(unused_by_data(data))
    samples = Subset.of(data.test, f"{data.name}@test", count, seed=options.seed, stratify=False)
    about = {"data": data.name, "units": data.units, "samples": len(samples.data), "chosen": samples.words}
    about |= {"domain": serialize(data.domain), "seed": options.seed, "evidence": Evidence.ATTAINED}
    return samples, about


def _make_trials(trained: LoadedRun, options: AttackOptions, models: Sequence[str]) -> list[Trial]:
    """Return every attack at every strength that it takes."""
    chosen, norm, message = options.chosen, options.norm or "inf", ""
    require(bool(options.gamma) or "wrm" not in chosen, "gamma", "be given for wrm", "none")
    budgets: list[float] = []
    settings = trained.settings
    unit = evaluation.typical_length(trained.data.train, NORMS[norm]) if options.relative else 1.0
    for typed in options.epsilon:
        if isinstance(typed, str):
            budgets.append(epsilon_from(typed, norm, settings.data, settings.standardize, models))
        else:
            budgets.append(typed * unit)
    if not options.epsilon and set(chosen) & set(ATTACK_OPTIONS["epsilon"]):
        norm, epsilon, message = _default_budget(trained, options.norm)
        budgets = [epsilon]
    trials = []
    for name in chosen:
        if name == "wrm":
            penalties = sorted(set(options.gamma), reverse=True)
            trials += [Trial(name, None, None, gamma=value, clipped=options.clip) for value in penalties]
            continue
        keywords: dict[str, Any] = {"steps": 1} if name == "fgsm" else {}
        for option in ("steps", "step_size", "restarts"):
            value = getattr(options, option)
            if value is not None and name in ATTACK_OPTIONS[option]:
                keywords[option] = value
        strengths = sorted(set(budgets))
        trials += [Trial(name, NORMS[norm], value, **keywords, clipped=options.clip) for value in strengths]
    if message:
        messages.print(message)
    return trials


def _default_budget(trained: LoadedRun, typed_norm: str | None) -> tuple[str, float, str]:
    """Return norm and ε of the run's training, with a message: its ε, else √ρ, else how far its wrm moves."""
    settings, run, rho = trained.settings, trained.run, training_rho(trained.run)
    ball = trained.cost.attack_ball(trained.domain)
    own_norm = settings.norm or next((text for text, p in NORMS.items() if ball.own and p == ball.p), "2")
    norm = typed_norm or own_norm
    if settings.epsilon is not None and norm == own_norm:
        epsilon, origin = settings.epsilon, "the epsilon of its training"
    elif rho is not None and ball.own and NORMS[norm] == ball.p:
        epsilon, origin = math.sqrt(rho[0]), f"the root of {rho[0]:.4g}, {rho[1]}"
    else:
        rule = f"be given for {run.path}, whose training has no epsilon in the norm {norm}"
        require(trained.gamma is not None, "--epsilon", rule, "none")
        epsilon = evaluation.fair_epsilon(trained.wrm, trained.loss, trained.data.train, NORMS[norm])
        origin = "the root mean square distance by which wrm moves its training data (estimated)"
    words = f"each sample moves by at most epsilon = {epsilon:.4g} in the norm {norm}, by default: {origin}."
    return norm, epsilon, f"No --epsilon given: {words}"


def attack_runs(
    runs: Sequence[LoadedRun], options: AttackOptions, models: Sequence[str], *, as_json: bool
) -> None:
    """Attack runs on the same samples; write, draw and print the results. Every model meets the same
    adversary: wrm as an attack pays the cost of the first run."""
    first, single, seed = runs[0], len(runs) == 1, options.seed
    samples, content = _choose_samples(first, options)
    data, domain, trials = samples.data, first.data.domain, _make_trials(first, options, models)
    outcomes: dict[str, list[tuple[Trial, Evaluation]]] = {}
    rows = []
    for trained in runs:
        name = str(trained.run.path)
        with counting_bar(messages, f"attacking {name}", len(data) * len(trials)) as advance:
            outcomes[name] = evaluation.sweep(
                trained.loss, data, trials, domain=domain, cost=first.cost, seed=seed, progress=advance
            )
        for (trial, outcome), (_, base) in zip(outcomes[name], outcomes[str(first.run.path)], strict=True):
            cost = serialize(first.cost) if trial.attack == "wrm" else None
            row = evaluation.as_row(trial, outcome) | {"cost": cost}
            if not single:
                paired = evaluation.paired_differences(outcome, base)
                difference = None if trained is first else asdict(paired)
                row = {"run": name, **row, "minus_first": difference}
            rows.append(row)
    content = ({"run": str(first.run.path)} if single else {}) | content | {"rows": rows}
    caption = f"{samples.words}; {_common_settings(rows, domain)}"
    try:
        _save(options.output, content)
        if options.plot is not None:
            _draw(outcomes, options.plot, f"{caption}; 95% intervals", first.data.units)
    finally:  # shown even if it cannot be written
        if as_json:
            out.print_json(content)
        else:
            _print_columns(_columns(rows))
            last = "Attained: the attack found such points, so the worst case is at least this bad."
            if not single:
                others = [row for row in rows if row["minus_first"] is not None]
                _print_columns(_distinguishing(rows, others) | _differences(others))
                last = f"Attained. Differences are to {first.run.path}, paired sample by sample."
            console.print(f"{caption}. {last}{_frozen_words(data)}")


def attack_nearest(trained: LoadedRun, options: AttackOptions, *, as_json: bool) -> None:
    """Search for the nearest errors, or for the largest γ at which wrm errs, and print their quantiles."""
    samples, about = _choose_samples(trained, options)
    data, norm, by_penalty = samples.data, options.norm or "inf", options.attacks == ("wrm",)
    settings: dict[str, Any] = {"steps": 20, "restarts": 1}
    settings |= {name: getattr(options, name) for name in settings if getattr(options, name) is not None}
    for name, count in settings.items():
        require_count(f"--{name}", count)
    free = None if data.encoding is None else data.encoding.attackable
    domain = trained.data.domain if options.clip else Unbounded()
    # Columns that attacks leave alone cost infinitely much.
    cost = trained.cost if free is None or not by_penalty else masked_to(trained.cost, free)
    if cost is None:
        raise ArgumentError(
            f"`run` must have a numeric column without missing values; got {trained.data.name}."
        )
    penalties, distances = [], []
    with counting_bar(messages, f"attacking {trained.run.path}", len(data)) as advance:
        for start in range(0, len(data), 256):
            batch = data[start : start + 256]
            problem = trained.loss, batch.inputs, batch.targets
            if by_penalty:
                penalty = largest_penalty(*problem, cost=cost, domain=domain)
                penalties += penalty.gamma.double().tolist()
                distances += penalty.distance.double().tolist()
            else:
                error = minimum_norm_attack(
                    *problem, norm=NORMS[norm], domain=domain, seed=options.seed, free=free, **settings
                )
                distances += error.distance.double().tolist()
            advance(len(batch))
    content = {"run": str(trained.run.path)} | about
    columns = {"nearest error within": sorted(distances)}
    where = _clipping(options.clip, trained.data.domain)
    if by_penalty:
        content |= {"clipped": options.clip, "gammas": plain_json(penalties)}  # None: wrong without a move
        columns = {"an error at gamma of at least": sorted(penalties, reverse=True)} | columns
        caption = f"{trained.cost}, {where}. Attained: wrm causes an error at this gamma; "
        caption += "a larger gamma may cause one, too."
    else:
        content |= {"norm": norm, "clipped": options.clip, **settings}
        caption = f"norm {norm}, {where}. Attained: an error was found at these distances; the nearest error "
        caption += "may be closer."
    content["distances"] = plain_json(distances)  # None: no error was found
    try:
        _save(options.output, content)
    finally:  # shown even if it cannot be written
        if as_json:
            out.print_json(content)
        else:
            percents = (5, 25, 50, 75, 95)
            cells = {"share of samples": [f"{percent}%" for percent in percents]}
            for name, values in columns.items():  # ranks are rounded up
                cells[name] = [number(values[-(-percent * len(data) // 100) - 1]) for percent in percents]
            _print_columns(cells)
            console.print(f"{samples.words}; {caption}{_frozen_words(data)}")


def _save(output: Path | None, content: dict[str, Any]) -> None:
    """Write the rows as LaTeX or CSV, or all of it as JSON, by the suffix of the file, if one was named."""
    if output is None:
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    suffix, rows = output.suffix.lower(), content.get("rows", [])
    if suffix == ".tex":
        write_atomically(output, out.as_latex(_columns(rows) | _differences(rows)).encode())
    elif suffix == ".csv":
        write_atomically(output, out.as_csv(out.flat_rows(rows)).encode())
    else:
        write_json(output, content)


def _frozen_words(data: Samples) -> str:
    """Return a sentence about the columns of a table that attacks leave alone; empty if there are none."""
    if data.encoding is None or data.encoding.plain:
        return ""
    return " Only numeric columns without missing values move; other columns are fixed."


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
    differences = [row.get("minus_first") for row in rows]
    of = next((each["of"] for each in differences if each is not None), None)
    if of is None:
        return {}
    values = ["–" if each is None else f"{each['value']:+.3f}" for each in differences]
    intervals = [
        "–" if each is None else f"{each['low']:+.3f} to {each['high']:+.3f}" for each in differences
    ]
    return {f"{of} minus first": values, "95% of the difference": intervals}


def _distinguishing(
    rows: list[dict[str, Any]], selected: list[dict[str, Any]] | None = None
) -> dict[str, list[str]]:
    """Return the columns in which the rows differ, for all or for selected rows."""
    names = [name for name in ("attack", "norm", "epsilon", "gamma") if len({row[name] for row in rows}) > 1]
    names = ["run", *names] if "run" in rows[0] else names
    return {name: [number(row[name]) for row in selected or rows] for name in names}


def _print_columns(columns: dict[str, list[str]]) -> None:
    console.print(make_table(*columns, rows=zip(*columns.values(), strict=True)))


def _draw(results: dict[str, list[tuple[Trial, Evaluation]]], path: Path, title: str, units: str) -> None:
    """Draw one panel for each attack, with a line for each run; of a single run, a line for each attack. Of
    wrm, a second panel shows ρ̂_test against γ (fig:mnist2)."""
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
    messages.print(f"Written: {path}.")


def _common_settings(rows: list[dict[str, Any]], domain: Domain) -> str:
    """Return the settings that are the same in every row, which the table leaves out."""
    parts = [", ".join(dict.fromkeys(row["attack"] for row in rows if row["attack"] != WORST))]
    for name in ("norm", "epsilon", "gamma", "steps", "step_size", "restarts"):
        values = {row[name] for row in rows} - {None}
        if len(values) == 1 and (name, *values) != ("restarts", 1):
            parts.append(f"{name.replace('_', ' ')} {number(*values)}")
    costs = [row["cost"]["type"] for row in rows if row["cost"] is not None]
    parts += [f"cost {costs[0]}"] if costs else []
    return ", ".join([*parts, _clipping(rows[0]["clipped"], domain)])


def _clipping(clipped: bool, domain: Domain) -> str:
    """Return words about the set that perturbed inputs were kept in."""
    if not clipped:
        return "not clipped"
    unbounded = isinstance(domain, Unbounded)
    return "not clipped, since the data have no bounds" if unbounded else "clipped to the data's domain"


def open_comparable(runs: Sequence[Path], models: Sequence[str], run_data: str | None) -> list[LoadedRun]:
    """Open runs that have the same test samples, scaled alike; raise ``ArgumentError`` for others."""
    names = ", ".join(map(str, runs))
    different = len({os.path.realpath(path) for path in runs}) == len(runs)
    require(different, "runs", "be named once each", names)
    folders = [RunDirectory.open(path, data=run_data) for path in runs]
    own = [own_model(folder, models) for folder in folders]
    unused = [text for text in models if text not in own]
    require(not unused, "--model", f"belong to one of the runs {names}", ", ".join(unused))
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
        require(same, "runs", rule, f"{other.run.path}, which scales them differently")
    return opened
