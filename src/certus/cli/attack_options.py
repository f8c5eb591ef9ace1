"""Options that ``certus attack`` and ``certus compare`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Attack = Annotated[
    list[str] | None, typer.Option("--attack", help="fgm, ifgm, pgm or wrm; several: the worst of them too.")
]
NormOption = Annotated[
    str | None, typer.Option("--norm", help="Of fgm, ifgm and pgm: 1, 2 or inf (default).")
]
Epsilon = Annotated[
    list[str] | None,
    typer.Option(help="How far to move; several make a sweep. from:RUN is as far as that run's wrm moves."),
]
Gamma = Annotated[list[float] | None, typer.Option(help="Penalty of the attack wrm; several make a sweep.")]
Relative = Annotated[
    bool, typer.Option("--relative", help="Epsilon in units of the mean length of an input.")
]
Steps = Annotated[
    int | None, typer.Option(help="Gradient steps of ifgm and pgm; 15 by default, 20 with --nearest.")
]
StepSize = Annotated[float | None, typer.Option(help="Of ifgm and pgm; 2.5 epsilon / steps by default.")]
Restarts = Annotated[int | None, typer.Option(help="Random starts of pgm; the worst counts. 1 by default.")]
Clip = Annotated[bool, typer.Option(help="Keep moved inputs where the data live, e.g. in [0, 1].")]
Samples = Annotated[
    int | None, typer.Option(help="How many test samples, chosen by the seed; all by default.")
]
Plot = Annotated[Path | None, typer.Option(help="Draw the sweep into this file (.png, .svg, .pdf).")]
Save = Annotated[Path | None, typer.Option("--output", "-o", help="Write the rows as JSON into this file.")]
AttackSeed = Annotated[int, typer.Option(help="Chooses the samples, and random starts.")]
