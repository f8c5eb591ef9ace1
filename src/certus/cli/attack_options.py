"""The options that ``certus attack`` and ``certus compare`` share: each is written once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True)
class AttackOptions:
    """What was asked for, as it was typed."""

    attacks: Annotated[
        list[str] | None,
        typer.Option("--attack", help="fgsm, bim, pgd or wrm; several: the worst of them too."),
    ] = None
    norm: Annotated[
        str | None,
        typer.Option(
            help="Norm of fgsm, bim and pgd: 1, 2 or inf. Default: inf; without --epsilon, the run's own."
        ),
    ] = None
    epsilon: Annotated[
        list[str] | None,
        typer.Option(
            help="How far each sample may move; several make a sweep. from:RUN is as far as that run's wrm "
            "moves. By default as far as the run was trained for."
        ),
    ] = None
    gamma: Annotated[
        list[float] | None, typer.Option(help="Penalty of the attack wrm; several make a sweep.")
    ] = None
    relative: Annotated[
        bool, typer.Option("--relative", help="Epsilon in units of the mean length of an input.")
    ] = False
    steps: Annotated[
        int | None,
        typer.Option(help="Gradient steps of bim and pgd; 15 by default (20 for attack --nearest)."),
    ] = None
    step_size: Annotated[
        float | None, typer.Option(help="Of bim and pgd; 2.5 epsilon / steps by default.")
    ] = None
    restarts: Annotated[
        int | None, typer.Option(help="Random starts of pgd; the worst counts. 1 by default.")
    ] = None
    clip: Annotated[bool, typer.Option(help="Keep moved inputs where the data live, e.g. in [0, 1].")] = True
    samples: Annotated[
        int | None, typer.Option(help="How many test samples, chosen by the seed; all by default.")
    ] = None
    seed: Annotated[int, typer.Option(help="Chooses the samples, and random starts.")] = 0
    plot: Annotated[Path | None, typer.Option(help="Draw the sweep into this file (.png, .svg, .pdf).")] = (
        None
    )
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File for the rows: LaTeX (.tex), CSV (.csv), else JSON."),
    ] = None
