"""``certus attack`` and ``certus compare``: what models lose to attacks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from certus.attacks.budgets import typical_length
from certus.attacks.comparison import Difference, paired_differences
from certus.attacks.evaluation import Outcome
from certus.attacks.smallest import nearest_error
from certus.attacks.sweeps import Trial, as_row, sweep
from certus.cli.budgets import read_epsilon, read_norm
from certus.cli.output import Json, console, messages, number, print_json, table
from certus.cli.progress import counting
from certus.data import Split
from certus.errors import ArgumentError, require
from certus.report.sweeps import Curve, Panel, draw_sweeps
from certus.runs.directory import RunDirectory
from certus.runs.files import write_json
from certus.runs.trained import TrainedRun, open_trained

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


def attack(
    run: Annotated[Path, typer.Argument(help="A complete run directory.")],
    attacks: Attack = None,
    norm: NormOption = "inf",
    epsilon: Epsilon = None,
    gamma: Gamma = None,
    relative: Relative = False,
    steps: Steps = 15,
    step_size: StepSize = None,
    restarts: Restarts = 1,
    clip: Clip = True,
    nearest: Annotated[
        bool, typer.Option("--nearest", help="Search the nearest error of each sample instead.")
    ] = False,
    samples: Samples = None,
    seed: Seed = 0,
    plot: Plot = None,
    output: Save = None,
    model: ModelFile = None,
    as_json: Json = False,
) -> None:
    """Attack the test data of a run: error, loss and distance, with 95% intervals.

    \b
    certus attack runs/digits --epsilon 0.05
    certus attack runs/digits --attack pgm --attack fgm --norm 2 --epsilon 0.5 --epsilon 1 --plot sweep.png
    certus attack runs/digits --norm 2 --epsilon from:runs/digits --no-clip
    certus attack runs/digits --attack wrm --gamma 4 --gamma 2 --gamma 1
    certus attack runs/digits --nearest --norm 2

    What an attack finds is attained: a lower bound on the worst case, never a certificate.
    """
    trained = open_trained(RunDirectory.open(run), model=model)
    data = _first(trained.data.test, samples)
    if nearest:
        _show_nearest(trained, data, norm, clip, steps, restarts, as_json)
        return
    unit = typical_length(data, read_norm(norm)) if relative else 1.0
    trials = _trials(attacks, norm, epsilon, gamma, steps, step_size, restarts, clip, unit, model)
    done = _run(trained, data, trials, seed)
    rows = [as_row(trial, outcome) for trial, outcome in done]
    about = {"run": str(run), "data": trained.data.name, "seed": seed, "rows": rows}
    if output is not None:
        write_json(output, about)
    if plot is not None:
        _draw({str(run): done}, plot)
    if as_json:
        print_json(about)
        return
    _print_rows(rows)
    console.print(f"{len(data)} test samples; {_where(clip)}. Attained by actual points: a lower bound.")


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Two or more runs on the same data; differences to the first.")
    ],
    attacks: Attack = None,
    norm: NormOption = "inf",
    epsilon: Epsilon = None,
    gamma: Gamma = None,
    relative: Relative = False,
    steps: Steps = 15,
    step_size: StepSize = None,
    restarts: Restarts = 1,
    clip: Clip = True,
    samples: Samples = None,
    seed: Seed = 0,
    plot: Plot = None,
    output: Save = None,
    as_json: Json = False,
) -> None:
    """Attack several models on the same samples, side by side with paired differences.

    \b
    certus compare runs/digits-wrm runs/digits-erm --epsilon 0 --epsilon 0.05 --epsilon 0.1
    certus compare runs/wrm runs/pgm --norm 2 --epsilon from:runs/wrm --plot compare.png

    The differences are sample by sample, so that much smaller ones show than two intervals would tell.
    """
    require(len(runs) >= 2, "runs", "be two or more", f"{len(runs)}")
    opened = {str(path): open_trained(RunDirectory.open(path)) for path in runs}
    first = next(iter(opened.values()))
    for name, other in opened.items():
        same = other.data.sha256 == first.data.sha256 and torch.equal(
            other.data.rows["test"], first.data.rows["test"]
        )
        require(same, "runs", f"have the test samples of {runs[0]}", f"{name}, which has others")
    data = _first(first.data.test, samples)
    unit = typical_length(data, read_norm(norm)) if relative else 1.0
    trials = _trials(attacks, norm, epsilon, gamma, steps, step_size, restarts, clip, unit, None)
    done = {name: _run(one, data, trials, seed) for name, one in opened.items()}
    base = next(iter(done.values()))
    content = []
    for name, results in done.items():
        for (trial, outcome), (_, reference) in zip(results, base, strict=True):
            difference = None if results is base else paired_differences(outcome, reference)
            content.append({"run": name, **as_row(trial, outcome), "minus_first": _plain(difference)})
    about = {"data": first.data.name, "seed": seed, "rows": content}
    if output is not None:
        write_json(output, about)
    if plot is not None:
        _draw(done, plot)
    if as_json:
        print_json(about)
        return
    _print_rows(content)
    console.print(f"{len(data)} test samples; {_where(clip)}. Differences are paired, to {runs[0]}.")


def _first(data: Split, samples: int | None) -> Split:
    if samples is None:
        return data
    require(samples >= 1, "samples", "be at least 1", samples)
    return data[:samples]


def _trials(
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


def _run(trained: TrainedRun, data: Split, trials: list[Trial], seed: int) -> list[tuple[Trial, Outcome]]:
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


def _print_rows(rows: list[dict[str, Any]]) -> None:
    several = "run" in rows[0]
    names = ["attack", "norm", "epsilon", "gamma", "error", "95%", "loss", "rho_test"]
    shown = table(*(["run"] if several else []), *names, *(["difference"] if several else []))
    for row in rows:
        error, loss = row["error"], row["loss"]
        interval = (
            f"{error['low']:.3f}–{error['high']:.3f}" if error else f"{loss['low']:.3g}–{loss['high']:.3g}"
        )
        cells = [row["attack"], row["norm"] or "–", number(row["epsilon"]), number(row["gamma"])]
        cells += [f"{error['value']:.4f}" if error else "–", interval]
        cells += [number(loss["value"]), number(row["rho_test"])]
        if several:
            gap = row["minus_first"]
            text = "–" if gap is None else f"{gap['value']:+.4f} ({gap['low']:+.4f} to {gap['high']:+.4f})"
            shown.add_row(row["run"], *cells, text)
        else:
            shown.add_row(*cells)
    console.print(shown)


def _show_nearest(
    trained: TrainedRun, data: Split, norm: str, clip: bool, steps: int, restarts: int, as_json: bool
) -> None:
    options: dict[str, Any] = {"domain": trained.data.domain} if clip else {}
    distances = []
    with counting(messages, f"attacking {trained.run.path}", len(data)) as advance:
        for start in range(0, len(data), 256):
            batch = data[start : start + 256]
            found = nearest_error(
                trained.loss,
                batch.inputs,
                batch.targets,
                norm=read_norm(norm),
                steps=steps,
                restarts=restarts,
                **options,
            )
            distances.append(found.distance)
            advance(len(batch))
    lengths = torch.cat(distances).double()
    shares = (0.05, 0.25, 0.5, 0.75, 0.95)
    quantiles = {share: float(lengths.quantile(share, interpolation="lower")) for share in shares}
    if as_json:
        plain = [value if value < float("inf") else None for value in lengths.tolist()]
        print_json({"run": str(trained.run.path), "norm": norm, "clipped": clip, "distances": plain})
        return
    shown = table("share of samples", "nearest error within")
    for share, length in quantiles.items():
        shown.add_row(f"{share:.0%}", number(length))
    console.print(shown)
    console.print(
        f"{len(data)} test samples; norm {norm}; {_where(clip)}. Attained: the nearest error is no farther."
    )


def _draw(results: dict[str, list[tuple[Trial, Outcome]]], path: Path) -> None:
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


def _where(clip: bool) -> str:
    return "clipped to the data's domain" if clip else "not clipped"


def _plain(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {"of": difference.of, "value": difference.value, "low": difference.low, "high": difference.high}
