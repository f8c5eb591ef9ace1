"""What ``certus attack`` and ``certus compare`` share: options, trials, tables and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from certus.attacks.evaluation import Outcome
from certus.attacks.sweeps import Trial, sweep
from certus.cli.budgets import read_epsilon, read_norm
from certus.cli.output import console, messages, number, table
from certus.cli.progress import counting
from certus.data import Split
from certus.errors import ArgumentError, require
from certus.report.sweeps import Curve, Panel, draw_sweeps
from certus.runs.trained import TrainedRun

Attack = Annotated[
    list[str] | None, typer.Option("--attack", help="fgm, ifgm, pgm or wrm; several: the worst of them too.")
]
NormOption = Annotated[str, typer.Option("--norm", help="Of fgm, ifgm and pgm: 1, 2 or inf.")]
Epsilon = Annotated[
    list[str] | None,
    typer.Option(help="How far to move; several make a sweep. from:RUN is as far as that run's wrm moves."),
]
Gamma = Annotated[list[float] | None, typer.Option(help="Penalty of the attack wrm; several make a sweep.")]
Relative = Annotated[
    bool, typer.Option("--relative", help="Epsilon in units of the mean length of an input.")
]
Steps = Annotated[int, typer.Option(help="Gradient steps of ifgm and pgm.")]
StepSize = Annotated[float | None, typer.Option(help="Of ifgm and pgm; 2.5 epsilon / steps by default.")]
Restarts = Annotated[int, typer.Option(help="Random starts of pgm; the worst counts.")]
Clip = Annotated[bool, typer.Option(help="Keep moved inputs where the data live, e.g. in [0, 1].")]
Samples = Annotated[int | None, typer.Option(help="How many test samples, from the first; all by default.")]
Plot = Annotated[Path | None, typer.Option(help="Draw the sweep into this file (.png, .svg, .pdf).")]
Save = Annotated[Path | None, typer.Option("--output", "-o", help="Write the rows as JSON into this file.")]
Seed = Annotated[int, typer.Option(help="Of random starts.")]
ModelFile = Annotated[
    str | None, typer.Option("--model", help="The run's own FILE.py:FACTORY, if it has one: it is executed.")
]


def first_samples(data: Split, samples: int | None) -> Split:
    if samples is None:
        return data
    require(samples >= 2, "samples", "be at least 2, for intervals", samples)
    return data[:samples]


def make_trials(
    attacks: list[str] | None,
    norm: str,
    epsilon: list[str] | None,
    gamma: list[float] | None,
    steps: int,
    step_size: float | None,
    restarts: int,
    clip: bool,
    unit: float,
    model: str | None,
) -> list[Trial]:
    """Every attack at every strength that it takes."""
    chosen = attacks or ["pgm"]
    if gamma and "wrm" not in chosen:
        raise ArgumentError(f"`gamma` must be left out without --attack wrm; got {gamma}.")
    if epsilon and set(chosen) == {"wrm"}:
        raise ArgumentError(
            f"`epsilon` must be left out for the attack wrm, which takes gamma; got {epsilon}."
        )
    budgets = [
        read_epsilon(text, norm, model) * (1 if text.startswith("from:") else unit) for text in epsilon or []
    ]
    trials = []
    for name in chosen:
        if name == "wrm":
            if not gamma:
                raise ArgumentError("`gamma` must be given for the attack wrm; got none.")
            trials += [
                Trial(name, None, None, gamma=value, clipped=clip) for value in sorted(gamma, reverse=True)
            ]
        else:
            if not budgets:
                raise ArgumentError(f"`epsilon` must be given for the attack {name}; got none.")
            trials += [
                Trial(
                    name,
                    read_norm(norm),
                    value,
                    steps=1 if name == "fgm" else steps,
                    step_size=step_size,
                    restarts=restarts,
                    clipped=clip,
                )
                for value in sorted(budgets)
            ]
    return trials


def run_trials(
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
    shown = table(*columns)
    for cells in zip(*columns.values(), strict=True):
        shown.add_row(*cells)
    console.print(shown)


def _difference(gap: dict[str, Any] | None) -> str:
    return "" if gap is None else f"{gap['value']:+.3f} ({gap['low']:+.3f} to {gap['high']:+.3f})"


def draw(results: dict[str, list[tuple[Trial, Outcome]]], path: Path) -> None:
    """One panel for each attack, one line for each run; of a single run, one line for each attack."""
    kinds: dict[str, list[tuple[str, Trial, Outcome]]] = {}
    for name, done in results.items():
        for trial, outcome in done:
            kind = "wrm" if trial.attack == "wrm" else f"norm {trial.norm:g}"
            panel = kind if len(results) == 1 else f"{trial.attack}, {kind}"
            kinds.setdefault(panel, []).append((trial.attack if len(results) == 1 else name, trial, outcome))
    panels = []
    for title, entries in kinds.items():
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
        strength = "gamma of the attack" if "wrm" in title else "epsilon"
        panels.append(Panel(title, strength, "error" if labelled else "mean loss", curves))
    draw_sweeps(panels, path)
    messages.print(f"Drawn into {path}")


def where(trials: list[Trial]) -> str:
    """What the table does not say, in words."""
    kinds = ", ".join(dict.fromkeys(trial.attack for trial in trials))
    norms = {f" in the norm {trial.norm:g}" for trial in trials if trial.norm is not None}
    clipped = "clipped to the data's domain" if trials[0].clipped else "not clipped"
    return f"{kinds}{''.join(norms)}, {clipped}"
